"""Extenders score nodes (schedule_one.go: prioritizeNodes, v1.36)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ksched.errors import ExtenderError
from ksched.testing import cluster, make_node, make_pod

PRIORITIZE = {"prioritizeVerb": "prioritize", "weight": 1, "nodeCacheCapable": True}
# No opinion of its own on where a pod should go.
NO_SCORES = [
    {
        "schedulerName": "default-scheduler",
        "plugins": {"score": {"disabled": [{"name": "*"}]}},
    }
]
DOWN = ExtenderError("extender is down")


def config(*extenders: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", **one} for one in extenders], **more}


def scores(**by_node: int) -> list[dict[str, Any]]:
    return [{"Host": name, "Score": score} for name, score in by_node.items()]


async def test_best_score_wins(extenders) -> None:
    extenders.on("prioritize", scores(n1=1, n2=9, n3=3, mars=10))
    async with cluster(3, config=config(PRIORITIZE, profiles=NO_SCORES)) as c:
        await c.create(*(make_pod(f"web-{i}") for i in range(4)))
        await c.settle()

        assert {c.bound(f"web-{i}") for i in range(4)} == {"n2"}


@pytest.mark.parametrize(
    ("weight", "score", "winner"),
    [
        pytest.param(1, 9, "n2", id="90 points"),
        pytest.param(1, 11, "n1", id="110 points, beyond the documented range"),
        pytest.param(7, 1, "n2", id="70 points by weight"),
        pytest.param(3, 4, "n1", id="120 points by weight"),
    ],
)
async def test_scores_are_scaled_weighted_and_added_to_those_of_plugins(
    extenders, weight, score, winner
) -> None:
    """NodeAffinity gives 100 points to n2, the extender some to n1."""
    extenders.on("prioritize", scores(n1=score))
    plugins = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity"}]}
    profile = {"schedulerName": "default-scheduler", "plugins": {"score": plugins}}
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    term = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    pod = make_pod("web").to_dict()
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    nodes = [make_node("n1"), make_node("n2").label({"disk": "ssd"})]
    settings = config({**PRIORITIZE, "weight": weight}, profiles=[profile])
    async with cluster(nodes, config=settings) as c:
        await c.create(pod)
        await c.settle()

        assert c.bound("web") == winner


async def test_extenders_are_asked_for_scores_at_the_same_time(extenders) -> None:
    async def slowly(question: Any) -> Any:
        await asyncio.sleep(2)
        return scores(n1=5)

    for name in ("a", "b", "c"):
        extenders.on("prioritize", slowly, f"http://{name}")
    several = [{**PRIORITIZE, "urlPrefix": f"http://{name}"} for name in ("a", "b", "c")]
    async with cluster(2, config=config(*several, profiles=NO_SCORES)) as c:
        await c.create(make_pod("web"))
        await c.settle()
        await c.advance(2)

        assert c.bound("web") == "n1"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(DOWN, id="failure"),
        pytest.param({"Host": "n1"}, id="wrong type"),
        pytest.param(scores(n1=10**30), id="absurd score"),
        pytest.param(scores(n1=-(2**62)), id="absurdly negative score"),
    ],
)
@pytest.mark.parametrize("ignorable", [False, True])
async def test_failed_scores_are_left_out(extenders, answer, ignorable) -> None:
    extenders.on("prioritize", answer, "http://a")
    extenders.on("prioritize", scores(n2=1), "http://b")
    one = {**PRIORITIZE, "urlPrefix": "http://a", "ignorable": ignorable}
    two = {**PRIORITIZE, "urlPrefix": "http://b"}
    async with cluster(2, config=config(one, two, profiles=NO_SCORES)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n2"


async def test_negative_scores_do_not_revive_infeasible_nodes(extenders) -> None:
    extenders.on("prioritize", lambda asked: scores(**dict.fromkeys(asked["NodeNames"], -9)))
    nodes = [make_node("full").capacity(cpu="0"), make_node("n1"), make_node("n2")]
    async with cluster(nodes, config=config(PRIORITIZE)) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.bound("web") in ("n1", "n2")


async def test_single_feasible_node_is_not_scored(extenders) -> None:
    async with cluster(1, config=config(PRIORITIZE)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
    assert extenders.asked == []

"""Extenders and preemption: what filter says of nodes, and the preempt verb."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.errors import ExtenderError
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.builders import PodBuilder
from ksched.testing.harness import Cluster

DOWN = ExtenderError("extender is down")
PREEMPT = {"preemptVerb": "preempt"}


def config(*extenders: dict[str, Any]) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", **one} for one in extenders]}


async def create(c: Cluster, pod: PodBuilder, priority: int) -> None:
    """Create a pod as somebody would who may not name a priority but a class."""
    name = f"class-{priority}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await c.create({**kind, "metadata": {"name": name}, "value": priority})
    whole = pod.to_dict()
    whole["spec"]["priorityClassName"] = name
    await c.create(whole)


async def fill(c: Cluster) -> None:
    """One pod of priority i on each node ni, and a pod that needs the room of one."""
    for number in range(1, 4):
        await create(c, make_pod(f"victim-{number}").req(cpu="1").node(f"n{number}"), number)
    await create(c, make_pod("vip").req(cpu="1"), 100)
    await c.settle()


def small() -> list[Any]:
    return [make_node(f"n{number}").capacity(cpu="1") for number in range(1, 4)]


def gone(c: Cluster) -> list[str]:
    """The victims that were deleted or are on their way out."""
    left = {one["metadata"]["name"]: one["metadata"] for one in c.pods()}
    names = [f"victim-{number}" for number in range(1, 4)]
    return [
        name for name in names if "deletionTimestamp" in left.get(name, {"deletionTimestamp": 1})
    ]


def keep(*names: str) -> Any:
    """An extender that lets preemption happen on these nodes only."""

    def answer(question: Any) -> Any:
        offered = question["NodeNameToMetaVictims"] or {
            name: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]],
                "NumPDBViolations": victims["NumPDBViolations"],
            }
            for name, victims in question["NodeNameToVictims"].items()
        }
        return {"NodeNameToMetaVictims": {name: offered[name] for name in names}}

    return answer


@pytest.mark.parametrize("is_cache_capable", [False, True], ids=["whole pods", "uids"])
async def test_extender_narrows_down_where_to_preempt(extenders, is_cache_capable) -> None:
    extenders.on("preempt", keep("n2", "n3"))
    one = {**PREEMPT, "nodeCacheCapable": is_cache_capable}
    async with cluster(small(), config=config(one)) as c:
        await fill(c)

        assert gone(c) == ["victim-2"]
        assert c.pod("vip")["status"]["nominatedNodeName"] == "n2"
        uid = c.uid("victim-1")
    (question,) = extenders.questions("preempt")
    assert question["Pod"]["metadata"]["name"] == "vip"
    used, unused = "NodeNameToVictims", "NodeNameToMetaVictims"
    if is_cache_capable:
        used, unused = unused, used
        assert question[used]["n1"] == {"Pods": [{"UID": uid}], "NumPDBViolations": 0}
    else:
        (victim,) = question[used]["n1"]["Pods"]
        assert victim["spec"]["nodeName"] == "n1"
        assert victim["spec"]["containers"][0]["image"]
    assert sorted(question[used]) == ["n1", "n2", "n3"]
    assert question[unused] is None


async def test_extender_may_name_other_victims(extenders) -> None:
    async with cluster([make_node("n1").capacity(cpu="2")], config=config(PREEMPT)) as c:
        for name, priority in (("low", 1), ("high", 2)):
            await create(c, make_pod(name).req(cpu="1").node("n1"), priority)
        extenders.on(
            "preempt",
            lambda _: {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": c.uid("high")}]}}},
        )
        await create(c, make_pod("vip").req(cpu="1"), 100)
        await c.settle()

        assert c.pod("high")["metadata"].get("deletionTimestamp")
        assert not c.pod("low")["metadata"].get("deletionTimestamp")


async def test_each_extender_is_offered_what_the_one_before_left(extenders) -> None:
    extenders.on("preempt", keep("n2", "n3"), "http://a")
    extenders.on("preempt", keep("n3"), "http://b")
    several = [{**PREEMPT, "urlPrefix": f"http://{name}"} for name in ("a", "b")]
    async with cluster(small(), config=config(*several)) as c:
        await fill(c)

        assert gone(c) == ["victim-3"]
    (question,) = extenders.questions("preempt", "http://b")
    assert sorted(question["NodeNameToVictims"]) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(DOWN, "preemption: extender is down", id="failure"),
        pytest.param(
            {"NodeNameToMetaVictims": {"mars": {"Pods": [{"UID": "u"}]}}},
            'preemption: extender "http://x": preempt: node "mars" is not known',
            id="unknown node",
        ),
        pytest.param(
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}]}}},
            'preemption: extender "http://x" claims to preempt pod (UID: u) on node "n1", '
            "but the pod is not found on that node",
            id="unknown pod",
        ),
        pytest.param(
            {"NodeNameToMetaVictims": {"n1": {"Pods": []}}},
            'preemption: extender "http://x": expected at least one victim pod on node "n1"',
            id="no victims",
        ),
        pytest.param(
            {"NodeNameToMetaVictims": []},
            'preemption: extender "http://x": preempt: answer not understood: '
            "NodeNameToMetaVictims: Expected `object | null`, got `array`, "
            "got '{\"NodeNameToMetaVictims\": []}'",
            id="wrong type",
        ),
        pytest.param(
            {},
            "no new claims to deallocate, preemption: no candidate node for preemption",
            id="nothing left",
        ),
    ],
)
async def test_nothing_is_preempted_without_the_extenders_consent(
    extenders, answer, message
) -> None:
    extenders.on("preempt", answer)
    async with cluster(small(), config=config(PREEMPT)) as c:
        await fill(c)

        assert gone(c) == []
        assert c.message("vip") == f"0/3 nodes are available: 3 Insufficient cpu. {message}"


async def test_ignorable_extender_that_fails_is_not_heard(extenders) -> None:
    extenders.on("preempt", DOWN)
    async with cluster(small(), config=config({**PREEMPT, "ignorable": True})) as c:
        await fill(c)

        assert gone(c) == ["victim-1"]


async def test_nodes_for_which_an_ignorable_extender_names_nobody_are_dropped(extenders) -> None:
    def answer(question: Any) -> Any:
        kept = keep("n2", "n3")(question)
        kept["NodeNameToMetaVictims"]["n1"] = {"Pods": None}
        return kept

    extenders.on("preempt", answer)
    async with cluster(small(), config=config({**PREEMPT, "ignorable": True})) as c:
        await fill(c)

        assert gone(c) == ["victim-2"]


async def test_extender_that_manages_nothing_of_the_pod_is_not_asked(extenders) -> None:
    one = {**PREEMPT, "managedResources": [{"name": "example.com/fpga"}]}
    async with cluster(small(), config=config(one)) as c:
        await fill(c)

        assert gone(c) == ["victim-1"]
    assert extenders.asked == []


@pytest.mark.parametrize(
    ("failed", "outcome"),
    [
        pytest.param(
            # Tried: with all victims back the plugins find nothing wrong with the node.
            "FailedNodes",
            'preemption: expected at least one victim pod on node "n1"',
            id="may help",
        ),
        pytest.param(
            "FailedAndUnresolvableNodes",
            "no new claims to deallocate, preemption: 0/1 nodes are available: "
            "1 Preemption is not helpful for scheduling.",
            id="would not help",
        ),
    ],
)
async def test_preemption_passes_by_nodes_that_filter_calls_unresolvable(
    extenders, failed, outcome
) -> None:
    extenders.on("filter", {"NodeNames": [], failed: {"n1": "no"}})
    one = {"filterVerb": "filter", "nodeCacheCapable": True}
    async with cluster([make_node("n1")], config=config(one)) as c:
        await create(c, make_pod("victim-1").node("n1"), 1)
        await create(c, make_pod("vip"), 100)
        await c.settle()

        assert c.message("vip") == f"0/1 nodes are available: 1 no. {outcome}"


async def test_filter_is_asked_about_the_nominated_node_alone(extenders) -> None:
    extenders.on("filter", lambda asked: {"NodeNames": asked["NodeNames"]})
    one = {"filterVerb": "filter", "nodeCacheCapable": True}
    async with cluster(small(), config=config(one), kubelet=True) as c:
        await fill(c)
        await c.advance(60)

        assert c.bound("vip") == "n1"
    assert extenders.questions("filter")[-1]["NodeNames"] == ["n1"]


async def test_failure_on_the_nominated_node_leads_to_the_other_nodes(extenders) -> None:
    def answer(asked: Any) -> Any:
        return {"NodeNames": asked["NodeNames"]} if len(asked["NodeNames"]) > 1 else DOWN

    extenders.on("filter", answer)
    one = {"filterVerb": "filter", "nodeCacheCapable": True}
    async with cluster(2, config=config(one)) as c:
        await c.create(make_pod("web").gate("wait"))
        await c.patch("web", {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        await c.patch("web", {"spec": {"schedulingGates": None}})
        await c.settle()

        assert c.bound("web")
    sizes = [len(question["NodeNames"]) for question in extenders.questions("filter")]
    assert sizes == [1, 2]

"""Extenders bind pods (schedule_one.go: extendersBinding, v1.36), and are waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ksched.errors import ConfigError, ExtenderError
from ksched.metrics import Metrics
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.harness import Cluster

FPGA = "example.com/fpga"
FILTER = {"filterVerb": "filter", "nodeCacheCapable": True}
DOWN = ExtenderError("extender is down")


def config(*extenders: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", **one} for one in extenders], **more}


BIND = {"bindVerb": "bind"}


def bind_calls(metrics: Metrics) -> int:
    """How often Bind plugins were timed."""
    series = ("Bind", "Success", "default-scheduler")
    return metrics.framework_extension_point_duration.of(*series).count


def binding(c: Cluster) -> Any:
    async def bind(question: Any) -> Any:
        await c.bind(question["PodName"], question["Node"])
        return {"Error": ""}

    return bind


async def test_extender_binds_in_the_schedulers_place(extenders) -> None:
    metrics = Metrics()
    async with cluster(1, config=config(BIND), metrics=metrics) as c:
        extenders.on("bind", binding(c))
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
        uid = c.uid("web")
        assert [event.note for event in c.events("web")] == [
            "Successfully assigned default/web to n1"
        ]
        binders = [one.user for one in c.requests if one.path.endswith("/binding")]
        assert binders == ["test"]
    assert bind_calls(metrics) == 0
    assert extenders.questions("bind") == [
        {"PodName": "web", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
    ]


async def test_failed_bind_gives_the_place_back_and_is_tried_again(extenders) -> None:
    async with cluster([make_node("n1").capacity(cpu="1")], config=config(BIND)) as c:
        extenders.on("bind", {"Error": "quota"})
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.message("web") == 'extender "http://x": bind: quota'
        assert c.scheduler.cache.statistics().assumed_pods == 0
        extenders.on("bind", binding(c))
        await c.advance(3)
        assert c.bound("web") == "n1"


async def test_bind_that_took_effect_counts_whatever_was_answered(extenders) -> None:
    async with cluster(1, config=config(BIND)) as c:

        async def lose_the_answer(question: Any) -> Any:
            await c.bind(question["PodName"], question["Node"])
            return DOWN

        extenders.on("bind", lose_the_answer)
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
        assert c.message("web") == ""
        assert len(extenders.questions("bind")) == 1


@pytest.mark.parametrize("has_happened", [False, True], ids=["not bound", "bound"])
async def test_plugins_bind_when_an_ignorable_extender_fails(extenders, has_happened) -> None:
    async with cluster(1, config=config({**BIND, "ignorable": True})) as c:

        async def fail(question: Any) -> Any:
            if has_happened:
                await c.bind(question["PodName"], question["Node"])
            return DOWN

        extenders.on("bind", fail)
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
        assert c.message("web") == ""


async def test_pods_that_do_not_interest_the_binder_are_bound_by_plugins(extenders) -> None:
    managed, metrics = [{"name": FPGA}], Metrics()
    settings = config({**BIND, "managedResources": managed})
    async with cluster(1, config=settings, metrics=metrics) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
    assert extenders.asked == []
    assert bind_calls(metrics) == 1


# -- waiting ------------------------------------------------------------------------------------


async def test_everything_else_goes_on_while_an_extender_thinks(extenders) -> None:
    gate = asyncio.Event()

    async def think(question: Any) -> Any:
        if question["Pod"]["metadata"]["name"] == "slow":
            await gate.wait()
        return {"NodeNames": question["NodeNames"]}

    async def bind_slowly(question: Any) -> Any:
        await asyncio.sleep(1)
        await c.bind(question["PodName"], question["Node"])
        return {}

    extenders.on("filter", think)
    one = {**FILTER, **BIND, "httpTimeout": "60s"}
    async with cluster(2, config=config(one)) as c:
        extenders.on("bind", bind_slowly)
        await c.create(make_pod("early"), make_pod("slow"))
        await c.settle()
        assert c.bound("early") is None
        await c.delete_node("n1")
        await c.advance(1)

        assert c.bound("early"), "bindings go on"
        assert c.scheduler.cache.statistics().nodes == 1, "watches go on"
        snapshot = c.scheduler.cache.snapshot
        assert sorted(snapshot.table.rows) == ["n1", "n2"], "the snapshot does not change"
        gate.set()
        await c.advance(20)
        assert c.bound("slow") == "n2"


async def test_hanging_extender_costs_its_pod_the_timeout(extenders) -> None:
    async def hang(question: Any) -> Any:
        await asyncio.Event().wait()

    extenders.on("filter", hang)
    managed = [{"name": FPGA, "ignoredByScheduler": True}]
    one = {**FILTER, "managedResources": managed, "httpTimeout": "3s"}
    async with cluster(1, config=config(one)) as c:
        wanting = make_pod("web").to_dict()
        limits = {"limits": {FPGA: "1"}}
        wanting["spec"]["containers"] = [{"name": "c", "image": "i", "resources": limits}]
        await c.create(wanting, make_pod("other"))
        await c.advance(2.9)
        assert c.bound("other") is None, "the cycle is serialized"
        await c.advance(0.1)

        assert c.message("web").endswith("filter: timed out")
        assert c.bound("other") == "n1"


# -- configuration ------------------------------------------------------------------------------


async def test_settings_that_can_never_work_are_all_named_at_the_start() -> None:
    broken = config(
        {"urlPrefix": "127.0.0.1:80"},
        {"urlPrefix": "https://user:secret@h/", "tlsConfig": {"caFile": "/no/such/file"}},
        {"urlPrefix": "https://h", "tlsConfig": {"insecure": True, "caData": "eA=="}},
        {"urlPrefix": "https://h", "tlsConfig": {"certData": "eA=="}},
    )
    with pytest.raises(ConfigError) as raised:
        async with cluster(0, config=broken):
            pass

    problems = raised.value.problems
    assert [problem.partition(":")[0] for problem in problems] == [
        "extenders[0].urlPrefix",
        "extenders[1].tlsConfig",
        "extenders[2].tlsConfig",
        "extenders[3].tlsConfig",
    ]
    assert "secret" not in str(raised.value)

"""Another configuration for a running scheduler: what changes, and what stays.

Covers ``ksched.scheduling.reload_comparison``.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from ksched.errors import ConfigError
from ksched.framework import SUCCESS, PermitResult, Status, unschedulable, wait
from ksched.queue.places import Place
from ksched.testing import Checkers, cluster, make_node, make_pod
from lab.configurations import profile, with_args, without
from lab.gangs import Gang, configured, priority_class


def packing(kind: str) -> dict[str, Any]:
    """Only the amounts of resources decide, one way or the other."""
    resources = [{"name": "cpu", "weight": 1}]
    strategy = {"type": kind, "resources": resources}
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}
    args = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]
    return profile(plugins={"score": score}, pluginConfig=args)


class Lively:
    """Has a life, and lets pods wait at Permit; ``args`` are raw."""

    name = "Lively"
    made: ClassVar[list[Lively]]

    def __init__(self, args: Any, handle: Any) -> None:
        self.args, self.handle = args or {}, handle
        self.log: list[str] = []
        type(self).made.append(self)

    def start(self, handle: Any) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")

    def permit(self, state: Any, pod: Any, node_name: str) -> PermitResult | Status:
        return PermitResult(wait(), 600.0) if self.args.get("holds") else SUCCESS


@pytest.fixture
def lively() -> type[Lively]:
    class Fresh(Lively):
        made: ClassVar[list[Lively]] = []

    return Fresh


class Stages:
    """Rejects at the stage that its arguments name."""

    name = "Stages"

    def __init__(self, args: Any, handle: Any) -> None:
        self.closed = (args or {}).get("closed", "")
        self.seconds = (args or {}).get("seconds", 0.0)

    def pre_enqueue(self, pod: Any) -> Status:
        return unschedulable("not yet") if self.closed == "queue" else SUCCESS

    async def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
        await asyncio.sleep(self.seconds)
        return unschedulable("closed") if self.closed == "filter" else SUCCESS


def stages(**args: Any) -> dict[str, Any]:
    return with_args("Stages", **args)


def of_class(value: int) -> dict[str, Any]:
    return {"spec": {"priorityClassName": f"p{value}"}}


# -- what changes -------------------------------------------------------------------------------


async def test_the_next_pod_is_decided_by_the_new_configuration() -> None:
    nodes = [make_node("full").capacity(cpu="4"), make_node("empty").capacity(cpu="4")]
    async with cluster(nodes, config=packing("LeastAllocated")) as c:
        await c.create(make_pod("first").req(cpu="1").node("full"), make_pod("a").req(cpu="1"))
        await c.settle()
        assert c.bound("a") == "empty"
        await c.create(make_pod("second").req(cpu="1").node("full"))
        await c.settle()
        done = await c.reload(packing("MostAllocated"))
        # Of the same template as the one before: nothing cached may decide.
        await c.create(make_pod("b").req(cpu="1"))
        await c.settle()
        assert c.bound("b") == "full"
        assert done.is_applied
        assert done.rebuilt == (
            "default-scheduler/NodeResourcesFit",
            "default-scheduler/DefaultPreemption",
        )
        again = await c.reload(packing("MostAllocated"))
        assert not again.is_applied


async def test_a_pod_that_a_removed_plugin_rejected_is_tried_again() -> None:
    async with cluster([make_node("n1").taint("gpu", "true", "NoSchedule")]) as c:
        await c.create(make_pod("web"))
        await c.advance(20)
        assert c.place("web") is Place.UNSCHEDULABLE
        await c.reload(without("TaintToleration"))
        await c.settle()
        assert c.bound("web") == "n1"
        causes = [step.cause for step in c.story("web")]
        assert causes[-3:] == ["ConfigReload", "PodPopped", "PodDone"]
        Checkers(c).check_books()


async def test_pods_are_gated_and_released_by_the_new_plugins() -> None:
    async with cluster(1, config=stages(closed="queue"), plugins={"Stages": Stages}) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.place("web") is Place.GATED
        await c.reload(stages())
        await c.settle()
        assert c.bound("web") == "n1"


async def test_a_ready_pod_passes_the_new_pre_enqueue_before_it_is_tried() -> None:
    config = stages(seconds=5.0)
    async with cluster(1, config=config, plugins={"Stages": Stages}) as c:
        await c.create(*(make_pod(name) for name in "abc"))
        await c.advance(1)
        assert [c.place(name) for name in "abc"] == [Place.IN_FLIGHT, Place.ACTIVE, Place.ACTIVE]
        reloading = asyncio.get_running_loop().create_task(c.reload(stages(closed="queue")))
        await c.advance(1)
        assert not reloading.done(), "an attempt that has begun ends first"
        await c.advance(5)
        assert reloading.done()
        assert c.bound("a") == "n1"
        assert [c.place(name) for name in "bc"] == [Place.GATED, Place.GATED]
        assert [str(step.target) for step in c.story("b")] == ["active", "gated"]
        await c.reload(stages())
        await c.settle()
        assert c.bound("b") == c.bound("c") == "n1"


async def test_backoffs_change_for_later_failures() -> None:
    async with cluster(0) as c:
        await c.create(make_pod("web"))
        await c.settle()
        until = c.queued("web").backoff_expiration
        await c.reload({"podInitialBackoffSeconds": 40, "podMaxBackoffSeconds": 90})
        assert c.queued("web").backoff_expiration in (until, None)
        assert c.scheduler.configuration.pod_max_backoff_seconds == 90
        await c.create(make_pod("later"))
        await c.settle()
        later = c.queued("later")
        assert c.scheduler.queue._backoff.duration_seconds(later) == 40


async def test_an_equal_profile_stays_as_it_is() -> None:
    two = {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]}
    changed = {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", **_fewer()}]}
    async with cluster(1, config=two) as c:
        a, b = c.scheduler.profiles["a"], c.scheduler.profiles["b"]
        await c.reload(changed)
        assert c.scheduler.profiles["a"] is a
        assert c.scheduler.profiles["b"] is not b
        assert c.scheduler.profiles["b"].handle is b.handle


def _fewer() -> dict[str, Any]:
    return {"plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}}


async def test_a_preemption_sees_the_filters_of_now() -> None:
    nodes = [make_node("n1").capacity(cpu="4", memory="8Gi", pods=10)]
    async with cluster(nodes) as c:
        await c.create(priority_class(1), priority_class(9))
        await c.create(make_pod("low").req(cpu="4").merge(of_class(1)))
        await c.settle()
        high = make_pod("high").merge(of_class(9)).to_dict()
        amounts = {"cpu": "4", "example.com/fpga": "1"}
        high["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        await c.create(high)
        await c.settle()
        assert c.exists("low")
        ignored = ["example.com/fpga"]
        await c.reload(with_args("NodeResourcesFit", ignoredResources=ignored))
        await c.advance(60)
        assert not c.exists("low") or c.pod("low")["metadata"].get("deletionTimestamp")


async def test_gangs_that_were_proved_impossible_are_tried_again() -> None:
    names = [f"g{number}" for number in range(20)]
    async with cluster(2, config=configured("annotations")) as c:
        gangs = [Gang("annotations", name, 2, cpu="9") for name in names]
        for gang in gangs:
            await gang.create(c)
        await c.advance(30)
        assert len({c.queued(f"{name}-0").shared_wait for name in names}) == 1
        await c.reload(configured("annotations", "NodeResourcesFit"))
        await c.advance(30)
        assert all(c.bound(f"{name}-{index}") for name in names for index in range(2))


# -- what stays ---------------------------------------------------------------------------------


async def test_a_held_pod_is_bound_by_the_plugins_that_placed_it(lively: type[Lively]) -> None:
    config = with_args("Lively", holds=True)
    async with cluster(1, config=config, plugins={"Lively": lively}) as c:
        await c.create(make_pod("held"))
        await c.settle()
        [first] = lively.made
        await c.reload(with_args("Lively", holds=False))
        second = lively.made[1]
        await c.create(make_pod("next"))
        await c.advance(5)
        assert c.bound("next") == "n1"
        assert [one.pod.name for one in c.scheduler.waiting] == ["held"]
        assert (first.log, second.log) == (["start"], ["start"])
        first.handle.get_waiting_pod(c.uid("held")).allow("Lively")
        await c.advance(5)
        assert c.bound("held") == "n1"
        assert first.log == ["start", "stop"]
        assert c.scheduler.profiles["default-scheduler"].open_bindings == 0
        Checkers(c).check_books()
    assert second.log == ["start", "stop"]


async def test_a_pod_rejected_by_a_plugin_that_is_gone_does_not_wait_for_it(
    lively: type[Lively],
) -> None:
    config = with_args("Lively", holds=True)
    async with cluster(1, config=config, plugins={"Lively": lively}) as c:
        await c.create(make_pod("held"))
        await c.settle()
        await c.reload(without("Lively"))
        lively.made[0].handle.get_waiting_pod(c.uid("held")).reject("Lively", "no more")
        await c.advance(3)
        assert c.bound("held") == "n1"
        assert "ConfigReload meanwhile" in str([step.detail for step in c.story("held")])


async def test_a_plugin_with_the_same_arguments_lives_on(lively: type[Lively]) -> None:
    same = {"name": "Lively", "args": {"holds": True}}
    first = profile(pluginConfig=[same])
    other = profile(pluginConfig=[same], percentageOfNodesToScore=70)
    async with cluster(1, config=first, plugins={"Lively": lively}) as c:
        await c.create(make_pod("held"))
        await c.settle()
        done = await c.reload(other)
        assert done.is_applied
        assert done.rebuilt == ("default-scheduler/DefaultPreemption",)
        assert len(lively.made) == 1
        lively.made[0].handle.get_waiting_pod(c.uid("held")).allow("Lively")
        await c.settle()
        assert c.bound("held") == "n1"
    assert lively.made[0].log == ["start", "stop"]


async def test_places_backoffs_and_nominations_are_kept() -> None:
    nodes = [make_node("n1").capacity(cpu="4")]
    config = stages(seconds=3.0)
    async with cluster(nodes, config=config, plugins={"Stages": Stages}) as c:
        await c.create(*map(priority_class, range(10)))
        await c.create(make_pod("low").req(cpu="4").merge(of_class(1)))
        await c.advance(4)
        await c.create(make_pod("high").req(cpu="4").merge(of_class(9)))
        await c.advance(10)
        assert c.scheduler.nominator.node_of(c.uid("high")) == "n1"
        await c.create(*(make_pod(f"p{number}").merge(of_class(number)) for number in range(8)))
        await c.advance(1)
        order = [one.key for one in c.scheduler.queue.pending_pods()[Place.ACTIVE]]
        reloading = asyncio.get_running_loop().create_task(
            c.reload(profile(pluginConfig=config["profiles"][0]["pluginConfig"], **_fewer()))
        )
        await c.advance(2.5)
        assert reloading.done()
        assert c.scheduler.nominator.node_of(c.uid("high")) == "n1"
        left = [one.key for one in c.scheduler.queue.pending_pods()[Place.ACTIVE]]
        assert left == [key for key in order if key in left]
        assert len(left) >= len(order) - 1


async def test_templates_forget_profiles_that_are_gone() -> None:
    async with cluster(2) as c:
        await c.create(make_pod("web").req(cpu="1"), make_pod("big").req(cpu="99"))
        await c.settle()
        [template] = {one.template for one in c.scheduler.pending}
        for weight in range(2, 6):
            args = {"hardPodAffinityWeight": weight}
            await c.reload(with_args("InterPodAffinity", **args))
            await c.advance(20)
        pipeline = c.scheduler.profiles["default-scheduler"].pipeline
        caches = [key for key in template.facts if type(key).__name__ == "AnswerCache"]
        assert caches == pipeline.fact_keys()
        affinities = [key for key in template.facts if "Affinity" in type(key).__name__]
        assert len(affinities) <= 1


async def test_a_replica_that_does_not_schedule_is_ready_with_the_new_one() -> None:
    nodes = [make_node("n1").taint("gpu", "", "NoSchedule")]
    async with cluster(nodes, start=False) as c, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(c.scheduler.watch())
        await c.create(make_pod("web"))
        await c.settle()
        done = await c.reload(without("TaintToleration"))
        assert done.comparison is not None
        assert (done.comparison.pending, done.comparison.fit_now) == (1, 1)
        scheduling = tasks.create_task(c.scheduler.schedule())
        await c.settle()
        assert c.bound("web") == "n1"
        scheduling.cancel()
        watching.cancel()


async def test_reloads_take_turns() -> None:
    async with cluster(3) as c:
        loop = asyncio.get_running_loop()
        weights = range(1, 9)
        tasks = [
            loop.create_task(c.reload(with_args("InterPodAffinity", hardPodAffinityWeight=weight)))
            for weight in weights
        ]
        await c.create(*(make_pod(f"p{number}") for number in range(30)))
        await c.advance(5)
        assert all(task.result() for task in tasks)
        plugin = c.scheduler.profiles["default-scheduler"].framework.plugins["InterPodAffinity"]
        assert c.scheduler.configuration.profiles[0] == (
            c.scheduler.profiles["default-scheduler"].framework.configuration
        )
        assert plugin is not None
        assert all(c.bound(f"p{number}") for number in range(30))


# -- comparison ---------------------------------------------------------------------------------


async def test_pending_pods_are_compared_by_template() -> None:
    nodes = [
        make_node("n1").capacity(cpu="2").taint("gpu", "", "NoSchedule"),
        make_node("n2").capacity(cpu="2").label({"zone": "b"}),
    ]
    async with cluster(nodes, config=stages(closed="queue"), plugins={"Stages": Stages}) as c:
        await c.create(*(make_pod(f"small-{number}").req(cpu="1") for number in range(3)))
        await c.create(make_pod("large").req(cpu="9"))
        await c.settle()
        opened = await c.reload(stages(closed="filter"))
        assert opened.comparison is not None
        assert (opened.comparison.compared, opened.comparison.other_reason) == (4, 4)
        done = await c.reload(stages())
    found = done.comparison
    assert found is not None
    assert (found.pending, found.compared, found.different) == (4, 4, 4)
    assert (found.fit_now, found.other_reason) == (3, 1)
    assert found.examples[0].startswith("default/small-0 and 2 like it: no node (closed), then n2")


async def test_a_plugin_that_takes_long_is_left_out_of_the_comparison() -> None:
    async with cluster(1, config=stages(closed="filter"), plugins={"Stages": Stages}) as c:
        await c.create(make_pod("web"))
        await c.settle()
        done = await c.reload(stages(seconds=20.0))
        assert done.comparison is not None
        assert (done.comparison.pending, done.comparison.compared) == (1, 0)


# -- what fails ---------------------------------------------------------------------------------


async def test_a_plugin_that_would_end_the_process_is_refused() -> None:
    def ends(args: Any, handle: Any) -> Stages:
        if args:
            raise SystemExit(3)
        return Stages(args, handle)

    async with cluster(1, config=stages(), plugins={"Stages": ends}) as c:
        with pytest.raises(ConfigError, match="SystemExit"):
            await c.reload(stages(closed="filter"))
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") is not None


async def test_after_a_listener_failed_the_configuration_is_the_new_one() -> None:
    def fails() -> None:
        raise RuntimeError("no")

    async with cluster(1, config=packing("LeastAllocated")) as c:
        c.scheduler.reloading.listeners.insert(0, fails)
        done = await c.reload(packing("MostAllocated"))
        assert done.is_applied
        back = await c.reload(packing("LeastAllocated"))
        assert back.is_applied

"""An ``async def permit`` holds its own pod and nothing else, and every end of the pod ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ksched.daemon.observation import Observation
from ksched.framework import SUCCESS, PermitResult, Status, unschedulable, wait
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.waiting_pods import MAX_WAIT_SECONDS
from ksched.metrics import Metrics
from ksched.queue.places import Place
from ksched.testing import After, Call, Checkers, Cluster, FakePlugin, cluster, make_pod


class Asked:
    """An async Permit that notes how each of its calls began and ended; Reserve keeps books."""

    name = "Asked"
    timeout_seconds = 30.0
    permit_concurrency = 1024

    def __init__(self, seconds: float = 2.0, answer: Any = SUCCESS) -> None:
        self.seconds, self.answer = seconds, answer
        self.log: list[str] = []
        self.reserved: set[str] = set()
        self.most_at_once = self._at_once = 0

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        self.reserved.add(pod.name)
        return SUCCESS

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.log.append(f"unreserve {pod.name}")
        self.reserved.discard(pod.name)

    async def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        self.log.append(f"ask {pod.name}")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.log.append(f"cancel {pod.name}")
            raise
        finally:
            self._at_once -= 1
        self.log.append(f"answer {pod.name}")
        return self.answer(state, pod, node_name) if callable(self.answer) else self.answer


def names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


async def test_slow_permits_run_beside_each_other_and_hold_up_nobody() -> None:
    asked = Asked()
    config = {
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {"schedulerName": "plain", "plugins": {"permit": {"disabled": [{"name": "Asked"}]}}},
        ]
    }
    async with cluster(nodes=50, config=config, plugins=[asked]) as c:
        await c.create(*(make_pod(name) for name in names(300)))
        await c.create(*(make_pod(f"plain-{name}").scheduler("plain") for name in names(20)))
        await c.settle()
        assert all(c.bound(f"plain-{name}") for name in names(20))
        assert not any(c.bound(name) for name in names(300))
        await c.advance(2)
        assert all(c.bound(name) for name in names(300))
        assert asked.most_at_once == 300
        Checkers(c).check_books()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (unschedulable("not today"), "0/1 nodes are available: 1 not today."),
        (
            PermitResult(wait(), 7),
            "0/1 nodes are available: 1 rejected due to timeout after waiting 7s at plugin Asked.",
        ),
        (None, 'running Permit plugin "Asked": returned None, wanted a Status'),
        (wait(), 'running Permit plugin "Asked": returned wait() without a time, wanted'),
        (lambda *args: 1 / 0, 'running Permit plugin "Asked": ZeroDivisionError'),
    ],
    ids=["deny", "wait", "nonsense", "wait without a time", "raise"],
)
async def test_an_answer_other_than_yes_sends_the_pod_back(answer: Any, message: str) -> None:
    asked = Asked(answer=answer)
    async with cluster(nodes=1, plugins=[asked]) as c:
        await c.create(make_pod("web"))
        await c.advance(1.9)
        assert c.place("web") is Place.IN_FLIGHT
        await c.advance(8)
        assert any(message in event.note for event in c.events("web")), c.events("web")
        assert "unreserve web" in asked.log
        Checkers(c).check_books()


async def test_an_answer_to_wait_is_an_ordinary_wait_by_that_plugin() -> None:
    asked = Asked(answer=PermitResult(wait(), 60))
    gate = FakePlugin("Gate")
    async with cluster(nodes=1, plugins=[asked, gate]) as c:
        await c.create(make_pod("web"))
        await c.advance(1)
        assert list(gate.handle.waiting_pods()) == [], "nobody said WAIT yet"
        assert gate.handle.get_waiting_pod(c.uid("web")) is None
        await c.advance(1)
        [held] = gate.handle.waiting_pods()
        assert held.pending_plugins == {"Asked"}
        held.allow("Asked")
        await c.settle()
        assert c.bound("web") == "n1"


async def test_a_call_has_a_deadline() -> None:
    asked = Asked(seconds=1000)
    asked.timeout_seconds = 5.0
    async with cluster(nodes=1, plugins=[asked]) as c:
        await c.create(make_pod("web"))
        await c.advance(5)
        assert c.message("web") == 'running Permit plugin "Asked": no answer within 5s'
        assert asked.log[:3] == ["ask web", "cancel web", "unreserve web"]
        assert c.place("web") is Place.BACKOFF


# -- several plugins ------------------------------------------------------------------------------


async def test_synchronous_plugins_come_first_and_their_rejection_ends_it() -> None:
    asked, strict = Asked(), FakePlugin("Strict", permit=unschedulable("no"))
    async with cluster(nodes=1, plugins=[asked, strict]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web") == "0/1 nodes are available: 1 no."
        assert set(asked.log) == {"unreserve web"}


async def test_async_plugins_are_asked_in_order_and_beside_each_other() -> None:
    journal: list[Call] = []
    plugins = [
        FakePlugin("A", journal=journal, permit=After(3, SUCCESS)),
        FakePlugin("B", journal=journal, permit=After(4, SUCCESS)),
    ]
    async with cluster(nodes=1, plugins=plugins) as c:
        await c.create(make_pod("web"))
        await c.advance(3.9)
        assert c.bound("web") is None
        await c.advance(0.1)
        assert c.bound("web") == "n1"
        assert [call.plugin for call in journal] == ["A", "B"]


async def test_the_first_rejection_cancels_the_other_calls() -> None:
    asked, strict = Asked(10), FakePlugin("Strict", permit=After(1, unschedulable("no")))
    async with cluster(nodes=1, plugins=[asked, strict]) as c:
        await c.create(make_pod("web"))
        await c.advance(1)
        assert c.events("web")[0].note == "0/1 nodes are available: 1 no."
        assert asked.log[:3] == ["ask web", "cancel web", "unreserve web"]


async def test_a_wait_and_a_call_must_both_be_over() -> None:
    gate, asked = FakePlugin("Gate", permit=PermitResult(wait(), 60)), Asked(5)
    async with cluster(nodes=1, plugins=[gate, asked]) as c:
        await c.create(make_pod("web"))
        await c.advance(1)
        [held] = gate.handle.waiting_pods()
        held.allow("Gate")
        await c.advance(3)
        assert c.bound("web") is None
        await c.advance(1)
        assert c.bound("web") == "n1"


@pytest.mark.parametrize("is_rejected", [False, True])
async def test_a_synchronous_method_may_return_what_is_to_be_awaited(is_rejected: bool) -> None:
    asked = Asked()

    def permit(*args: Any) -> Any:
        return Asked.permit(asked, *args)

    asked.permit = permit  # type: ignore[assignment, method-assign]
    plugins: list[Any] = [asked]
    if is_rejected:
        plugins.append(FakePlugin("Strict", permit=unschedulable("no")))
    async with cluster(nodes=1, plugins=plugins) as c:
        await c.create(make_pod("web"), make_pod("other"))
        await c.advance(2)
        assert [c.bound("web"), c.bound("other")] == ([None] * 2 if is_rejected else ["n1"] * 2)


async def test_pods_to_activate_are_tried_when_the_call_has_answered() -> None:
    shy = FakePlugin("Shy", filter=unschedulable("not yet"), events_to_register=[])

    def answer(state: Any, pod: Any, node_name: str) -> PermitResult:
        held_back = c.scheduler.pending.get(c.uid("shy"))
        state.pods_to_activate["default/shy"] = held_back
        shy.answers["filter"] = SUCCESS
        return PermitResult(wait(), 60)

    async with cluster(nodes=1, plugins=[shy, Asked(answer=answer)]) as c:
        await c.create(make_pod("shy"))
        await c.settle()
        shy.answers["filter"] = lambda state, pod, node: (
            unschedulable("not yet") if pod.name == "shy" else SUCCESS
        )
        await c.create(make_pod("web"))
        await c.advance(2)
        assert c.place("shy") is Place.IN_FLIGHT


# -- slots ----------------------------------------------------------------------------------------


async def test_pods_beyond_the_bound_wait_in_order_and_their_deadline_with_them() -> None:
    asked = Asked(4)
    asked.permit_concurrency, asked.timeout_seconds = 2, 5.0
    async with cluster(nodes=1, plugins=[asked]) as c:
        await c.create(*(make_pod(name) for name in names(6)))
        await c.advance(12)
        assert all(c.bound(name) for name in names(6)), "12 s in line, 4 s each"
        assert asked.most_at_once == 2
        asks = [line for line in asked.log if line.startswith("ask")]
        assert asks == [f"ask {name}" for name in names(6)]


async def test_a_pod_deleted_in_line_is_never_asked_about() -> None:
    asked = Asked(4)
    asked.permit_concurrency = 1
    async with cluster(nodes=1, plugins=[asked]) as c:
        await c.create(*(make_pod(name) for name in names(3)))
        await c.advance(1)
        assert c.scheduler.permit_calls.sizes() == {"Asked": (1, 2)}
        await c.delete("p1")
        await c.settle()
        assert c.scheduler.permit_calls.sizes() == {"Asked": (1, 1)}
        await c.advance(7)
        assert (c.bound("p0"), c.bound("p2")) == ("n1", "n1")
        assert "ask p1" not in asked.log


async def test_no_pod_stays_in_line_longer_than_a_quarter_of_an_hour() -> None:
    asked = Asked(2 * MAX_WAIT_SECONDS)
    asked.permit_concurrency, asked.timeout_seconds = 1, 3 * MAX_WAIT_SECONDS
    async with cluster(nodes=1, plugins=[asked]) as c:
        await c.create(*(make_pod(name) for name in names(2)))
        await c.advance(MAX_WAIT_SECONDS)
        assert "after waiting 15m0s at plugin Asked" in c.events("p1")[-1].note
        assert c.place("p0") is Place.IN_FLIGHT


@pytest.mark.parametrize("bound", [0, -1, "many", 1.5])
async def test_a_bound_is_a_positive_whole_number(bound: Any) -> None:
    asked = Asked()
    asked.permit_concurrency = bound
    with pytest.raises(Exception, match="permit_concurrency must be a positive whole number"):
        async with cluster(plugins=[asked]):
            pass


# -- cancellation ---------------------------------------------------------------------------------


async def delete(c: Cluster) -> None:
    await c.delete("web")


async def bind_elsewhere(c: Cluster) -> None:
    await c.add_nodes(1)
    await c.bind("web", "n2")


async def preempt(c: Cluster) -> None:
    [held] = c.scheduler.waiting
    held.preempt("preempted")


async def reject(c: Cluster) -> None:
    [held] = c.scheduler.waiting
    held.reject("", "no")


@pytest.mark.parametrize("end", [delete, bind_elsewhere, preempt, reject])
async def test_whatever_ends_the_wait_cancels_the_call_before_the_place_is_given_back(
    end: Callable[[Cluster], Awaitable[None]],
) -> None:
    asked = Asked(10)
    async with cluster(nodes=1, plugins=[asked]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.advance(1)
        await end(c)
        await c.settle()
        assert asked.log[:3] == ["ask web", "cancel web", "unreserve web"]
        checkers.check_books()


async def test_the_end_of_the_scheduler_does_not_wait_for_calls() -> None:
    asked = Asked(60)
    async with cluster(nodes=1, plugins=[asked]) as c:
        await c.create(*(make_pod(name) for name in names(20)))
        await c.settle()
    assert c.clock.now() == 0
    assert len(asked.log) == 60
    assert (asked.reserved, len(c.scheduler.waiting)) == (set(), 0)
    assert c.scheduler.cache.statistics().assumed_pods == 0
    assert c.scheduler.permit_calls.sizes() == {"Asked": (0, 0)}


async def test_a_lost_lease_cancels_the_calls() -> None:
    asked = Asked(60)
    async with cluster(nodes=1, plugins=[asked], start=False) as c, asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(c.scheduler.watch())
        lead = tasks.create_task(c.scheduler.schedule())
        await c.create(make_pod("web"))
        await c.advance(1)
        lead.cancel()
        await asyncio.wait([lead])
        assert sorted(asked.log) == ["ask web", "cancel web", "unreserve web"]
        assert c.scheduler.cache.statistics().assumed_pods == 0
        watch.cancel()


class Stubborn(Asked):
    """Goes on when it is cancelled."""

    async def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        self.log.append(f"ask {pod.name}")
        end = asyncio.get_running_loop().time() + self.seconds
        while asyncio.get_running_loop().time() < end:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                self.log.append(f"swallow {pod.name}")
        return self.answer


async def test_a_plugin_that_swallows_its_cancellation_is_named_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = Stubborn(100)
    stubborn.permit_concurrency = 1
    async with cluster(nodes=1, plugins=[stubborn]) as c:
        await c.create(make_pod("web"))
        await c.advance(1)
        with caplog.at_level(logging.ERROR):
            await c.delete("web")
            await c.advance(2)
        assert stubborn.log == ["ask web", "swallow web", "unreserve web"]
        [record] = [one for one in caplog.records if "cancelled" in str(one.__dict__.get("err"))]
        assert record.__dict__["plugin"] == "Asked"
        await c.create(make_pod("next"))
        await c.advance(10)
        assert c.scheduler.permit_calls.sizes() == {"Asked": (1, 1)}, "it keeps its slot"
        began = c.clock.now()
    assert c.clock.now() - began <= 2
    await asyncio.sleep(100)


async def test_a_plugin_that_cancels_its_own_task_has_not_answered() -> None:
    class Suicidal(Asked):
        timeout_seconds = 5.0

        async def permit(self, state: Any, pod: Any, node_name: str) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

    async with cluster(nodes=1, plugins=[Suicidal()]) as c:
        await c.create(make_pod("web"))
        await c.advance(5)
        assert "no answer within 5s" in c.message("web")


# -- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "patches"), [(0.5, 0), (4.5, 0), (5.5, 1)])
async def test_only_a_slow_call_costs_a_request(seconds: float, patches: int) -> None:
    async with cluster(nodes=1, plugins=[Asked(seconds)]) as c:
        await c.create(make_pod("web"))
        await c.advance(8)
        assert c.bound("web") == "n1"
        assert sum(request.verb == "patch" for request in c.requests) == patches


async def test_what_held_up_the_cycle_and_what_did_not_is_measured() -> None:
    slow = FakePlugin("Slow", pre_filter=After(3, SUCCESS), reserve=After(1, SUCCESS))
    metrics = Metrics()
    observation = Observation(metrics)
    async with cluster(
        nodes=1, plugins=[slow, Asked(2)], metrics=metrics, observer=observation
    ) as c:
        observation.attach(c.scheduler)
        await c.create(make_pod("web"))
        await c.advance(5)
        [calls] = [one for one in metrics.collect() if one.name == "scheduler_plugin_permit_calls"]
        assert {
            (sample.labels["plugin"], sample.labels["state"]): sample.value
            for sample in calls.samples
        } == {("Asked", "running"): 1, ("Asked", "queued"): 0}
        await c.advance(1)
        assert c.bound("web")
    blocked = metrics.plugin_cycle_blocked_duration
    assert blocked.of("Slow", "PreFilter", "default-scheduler").sum == 3
    assert blocked.of("Slow", "Reserve", "default-scheduler").sum == 1
    held = metrics.plugin_permit_duration.of("Asked", "Success", "default-scheduler")
    assert (held.count, held.sum) == (1, 2)
    assert metrics.permit_wait_duration.of("Success").sum == 2


async def test_what_is_not_under_way_need_not_be_ended() -> None:
    await PermitCalls(lambda pods: None).aclose()

"""The composition root: profiles, gates, the end, a lost lease, pods that nobody confirms.

Covers ``ksched.scheduling.assembly``, ``ksched.scheduling.flushing``,
``ksched.framework.runtime.framework`` and
``ksched.framework.runtime.profiles`` too.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.status_errors import StatusError
from ksched.errors import ConfigError
from ksched.framework import SUCCESS, Status, unschedulable
from ksched.queue.places import Place
from ksched.scheduling.decisions import Result
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import (
    NEVER,
    After,
    Checkers,
    FakePlugin,
    PermitGate,
    cluster,
    make_node,
    make_pod,
)
from ksched.testing.harness import Cluster
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import StreamResponse

# -- profiles ---------------------------------------------------------------------------------


async def test_each_profile_serves_its_scheduler_name_with_its_own_plugins() -> None:
    picky = FakePlugin("Picky", filter=unschedulable("not for this profile"))
    config = {
        "profiles": [
            {"schedulerName": "easy", "plugins": {"filter": {"disabled": [{"name": "Picky"}]}}},
            {
                "schedulerName": "strict",
                "plugins": {"multiPoint": {"enabled": [{"name": "Picky"}]}},
            },
        ]
    }
    async with cluster(nodes=1, config=config, plugins=[picky]) as c:
        await c.create(
            make_pod("a").scheduler("easy"),
            make_pod("b").scheduler("strict"),
            make_pod("c").scheduler("somebody-else"),
        )
        await c.settle()
        assert c.bound("a") == "n1"
        assert c.message("b").startswith("0/1 nodes are available: 1 not for this profile.")
        assert {event.controller for event in c.events("a")} == {"easy"}
        assert {event.controller for event in c.events("b")} == {"strict"}
        assert (c.bound("c"), c.condition("c"), c.place("c")) == (None, None, Place.ABSENT)


async def test_problems_of_all_profiles_are_reported_together() -> None:
    config = {
        "profiles": [
            {"schedulerName": "a", "plugins": {"filter": {"enabled": [{"name": "Nobody"}]}}},
            {"schedulerName": "b", "plugins": {"score": {"enabled": [{"name": "Nothing"}]}}},
        ]
    }
    with pytest.raises(ConfigError) as caught:
        async with cluster(config=config):
            pass
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        'profile "a"',
        'profile "b"',
    ]


# -- pods that are not tried --------------------------------------------------------------------


async def test_a_gated_pod_is_left_alone_until_its_last_gate_is_gone() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web").gate("example.com/a").gate("example.com/b"))
        await c.advance(300)
        assert c.place("web") is Place.GATED
        assert c.events("web") == []
        reason = c.condition("web")
        assert reason is not None
        assert reason["reason"] == "SchedulingGated"
        await c.patch(
            "web", {"spec": {"schedulingGates": [{"name": "example.com/a", "$patch": "delete"}]}}
        )
        await c.settle()
        assert c.place("web") is Place.GATED
        await c.patch(
            "web", {"spec": {"schedulingGates": [{"name": "example.com/b", "$patch": "delete"}]}}
        )
        await c.settle()
        assert c.bound("web") == "n1"


async def test_a_pod_that_is_being_deleted_is_skipped_and_told_so() -> None:
    slow = FakePlugin("Slow", pre_filter=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[slow]) as c:
        await c.create(make_pod("first"))
        await c.settle()
        await c.create(make_pod("web").merge({"metadata": {"finalizers": ["example.com/slow"]}}))
        await c.delete("web")
        await c.advance(20)
        assert c.bound("first") == "n1"
        assert c.bound("web") is None
        assert [(event.type, event.reason, event.note) for event in c.events("web")] == [
            ("Warning", "FailedScheduling", "skip schedule deleting pod: default/web")
        ]
        assert c.place("web") is Place.ABSENT


async def test_a_pod_deleted_while_it_waits_in_the_queue_is_forgotten() -> None:
    async with cluster(nodes=1) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="100"))
        await c.settle()
        await c.delete("web")
        await c.advance(200)
        assert c.story("web")[-1].target is Place.ABSENT
        checkers.check_books()


# -- decisions ------------------------------------------------------------------------------------


async def test_every_attempt_is_a_decision() -> None:
    broken = StatusError(500, "InternalError", "no")
    faults = Faults([Rule(Fault(answer=broken), verb="create", resource="pods/binding")])
    async with cluster(nodes=2, faults=faults) as c:
        seen: list[Any] = []
        c.scheduler.decisions.observe(seen.append)
        await c.create(make_pod("web").req(cpu="1"), make_pod("big").req(cpu="100"))
        await c.advance(5)
        assert [one.result for one in c.scheduler.decisions.of("default/web")] == [
            Result.ERROR,
            Result.SCHEDULED,
        ]
        done = c.scheduler.decisions.of("default/web")[-1]
        assert (done.node_name, done.attempts, done.profile) == (
            c.bound("web"),
            2,
            "default-scheduler",
        )
        assert (done.evaluated_nodes, done.feasible_nodes, done.waited_seconds) == (2, 2, 2.0)
        stuck = c.scheduler.decisions.of("default/big")[-1]
        assert (stuck.result, stuck.message) == (Result.UNSCHEDULABLE, c.message("big"))
        assert seen == list(c.scheduler.decisions)


# -- the end --------------------------------------------------------------------------------------


async def test_bindings_on_their_way_finish_before_the_scheduler_ends() -> None:
    faults = Faults([Rule(Fault(delay_seconds=5.0), verb="create", resource="pods/binding")])
    async with cluster(nodes=1, faults=faults) as c:
        await c.create(make_pod("web"))
        await c.settle()
    assert c.bound("web") == "n1"
    assert [event.reason for event in c.events("web")] == ["Scheduled"]
    assert c.clock.now() == 5.0


@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(FakePlugin("Stuck", reserve=SUCCESS, pre_bind=NEVER), id="in pre_bind"),
        pytest.param(FakePlugin("Stuck", reserve=NEVER), id="in reserve"),
        pytest.param(FakePlugin("Stuck", reserve=SUCCESS, pre_filter=NEVER), id="in pre_filter"),
    ],
)
async def test_what_does_not_finish_is_cut_off_at_the_deadline(plugin: FakePlugin) -> None:
    plugin.timeout_seconds = 3600
    async with cluster(nodes=1, plugins=[plugin]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()
    assert c.clock.now() == 10.0
    assert c.bound("web") is None
    assert len(plugin.calls("unreserve")) == len(plugin.calls("reserve"))
    checkers.check_books()


async def test_a_plugin_that_cleans_up_is_waited_for_and_not_cancelled_again() -> None:
    cancellations = 0

    async def pre_bind(*args: Any) -> Status:
        nonlocal cancellations
        while True:
            try:
                await asyncio.sleep(3600 if not cancellations else 5)
            except asyncio.CancelledError:
                cancellations += 1
                continue
            raise asyncio.CancelledError

    slow = FakePlugin("Slow", pre_bind=SUCCESS)
    slow.pre_bind = pre_bind  # type: ignore[attr-defined]
    slow.timeout_seconds = 7200
    async with cluster(nodes=1, plugins=[slow]) as c:
        await c.create(make_pod("web"))
        await c.settle()
    assert (c.clock.now(), cancellations) == (15.0, 1)


async def test_no_pod_is_begun_after_the_end_was_asked_for() -> None:
    async with cluster(nodes=1) as c:
        c.scheduler.drain()
        await c.create(make_pod("late"))
        await c.advance(60)
        assert c.bound("late") is None


async def test_an_exception_in_the_block_does_not_wait_for_anything() -> None:
    async def fail() -> None:
        async with cluster(nodes=1, plugins=[PermitGate()]) as c:
            await c.create(make_pod("web"))
            await c.settle()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert asyncio.get_running_loop().time() == 0.0


class BrokenTransport:
    """Fails in a way that no transport may fail."""

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("wires crossed")

    def stream(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[StreamResponse]:
        raise RuntimeError("wires crossed")

    async def aclose(self) -> None: ...


async def test_a_scheduler_that_breaks_before_it_is_ready_says_why() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with Scheduler(BrokenTransport(), clock=VirtualClock()):
            pytest.fail("it cannot have become ready")
    assert caught.group_contains(RuntimeError, match="wires crossed")


# -- a lost lease -------------------------------------------------------------------------------


async def test_work_that_is_cancelled_leaves_clean_books_and_can_be_taken_up_again() -> None:
    """A replica that loses its lease keeps watching, and may lead again."""
    stuck = FakePlugin("Stuck", reserve=SUCCESS, pre_bind=NEVER)
    gate = PermitGate()
    async with (
        cluster(nodes=3, plugins=[stuck, gate], start=False) as c,
        anyio.create_task_group() as tasks,
    ):
        checkers = Checkers(c)
        tasks.start_soon(c.scheduler.watch)
        await c.create(make_pod("stuck").req(cpu="1"), make_pod("held").req(cpu="1"))
        with anyio.move_on_after(5):
            tasks.start_soon(_allow_after, gate, 1, "default/stuck")
            await c.scheduler.schedule()
        assert c.clock.now() == 5.0
        checkers.check_books()
        assert len(stuck.calls("pre_bind")) == 1
        assert len(stuck.calls("unreserve")) == 2
        assert {c.place("stuck"), c.place("held")} == {Place.BACKOFF}
        stuck.answers["pre_bind"] = SUCCESS
        gate.answers["permit"] = SUCCESS
        with anyio.move_on_after(5):
            await c.scheduler.schedule()
        assert c.bound("stuck") is not None
        assert c.bound("held") is not None
        checkers.check_books()
        tasks.cancel_scope.cancel()


async def _allow_after(gate: PermitGate, seconds: float, key: str) -> None:
    await asyncio.sleep(seconds)
    gate.allow(key)


# -- assumed pods ---------------------------------------------------------------------------------


async def lose_the_watch(c: Cluster) -> None:
    away = StatusError(503, "ServiceUnavailable", "away")
    c.faults.rules += [
        Rule(Fault(answer=away), verb=verb, resource="pods", times=None)
        for verb in ("watch", "list")
    ]
    c.server.drop_watches()


async def test_a_binding_that_the_watch_does_not_confirm_expires_and_is_not_bound_twice() -> None:
    slow = FakePlugin("Slow", pre_bind=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[slow], assume_ttl_seconds=30) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="1"))
        await c.advance(1)
        await lose_the_watch(c)
        await c.advance(10)
        assert c.bound("web") == "n1"
        assert c.scheduler.cache.is_assumed(c.uid("web"))
        await c.advance(30)
        # Given up, tried again, and found to be bound already.
        assert [event.reason for event in c.events("web")] == ["Scheduled", "Scheduled"]
        c.faults.rules.clear()
        await c.advance(60)
        checkers.check_books()


async def test_by_default_an_assumed_pod_is_never_given_up() -> None:
    slow = FakePlugin("Slow", pre_bind=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[slow]) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.advance(1)
        await lose_the_watch(c)
        await c.advance(3600)
        assert c.bound("web") == "n1"
        assert c.scheduler.cache.is_assumed(c.uid("web"))
        assert [event.reason for event in c.events("web")] == ["Scheduled"]


async def test_api_server_that_restarts_without_its_data_is_scheduled_for_again() -> None:
    async with cluster(nodes=2, start=False) as c:
        transport = InProcessTransport(c.server)
        async with Scheduler(transport, clock=c.clock, seed=1) as scheduler:
            await c.create(*(make_pod(f"lost-{n}") for n in range(10)))
            await c.settle()
            assert len(scheduler.cache.node_names()) == 2
            # Another server under the same address, whose versions begin anew.
            fresh = ApiServer(c.clock)
            transport._server = fresh
            await c.advance(700)  # the longest that a watch of the old one lives
            user = Cluster(fresh, scheduler, c.faults, c.clock, random.Random(1))
            await user.create(make_node("fresh"), make_pod("late"))
            await c.advance(60)
            assert user.bound("late") == "fresh"
            assert scheduler.cache.node_names() == ["fresh"]

"""Gangs when something fails in the middle: members, nodes, binds, schedulers; by scenario number.

Covers ``ksched.scheduling.group_cycle``, ``ksched.scheduling.quorum_gate`` and
``ksched.scheduling.attempts``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import anyio
import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.status_errors import GroupResource, conflict
from ksched.configuration import SchedulerConfiguration
from ksched.framework import SUCCESS, unschedulable
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import (
    After,
    Checkers,
    Cluster,
    FakePlugin,
    PermitGate,
    cluster,
    make_node,
    make_pod,
)
from lab.gangs import DIALECTS, Gang, configured, install, priority_class

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
DIALECT = "annotations"


def binds(c: Cluster) -> Counter[str]:
    """How often each pod was bound, by path."""
    return Counter(
        one.path for one in c.requests if one.path.endswith("/binding") and one.code == 201
    )


async def test_09_a_member_that_vanishes_during_the_decision_undoes_it() -> None:
    slow = FakePlugin("Slow", reserve=After(1.0, SUCCESS))
    async with cluster(2, config=configured(DIALECT), plugins=[slow]) as c:
        gang = Gang(DIALECT, "g", 4)
        await gang.create(c)
        await c.advance(2.5)
        await c.delete("g-3", grace_seconds=0)
        await c.advance(10)
        assert gang.bound(c) == 0
        assert len(c.scheduler.cache.pods()) == 0
        await c.create(gang.pod("3b"))
        await c.advance(10)
        assert gang.bound(c) == 3
        assert c.bound("g-3b") is not None


async def test_09_a_member_that_is_not_needed_may_vanish_during_the_decision() -> None:
    slow = FakePlugin("Slow", reserve=After(1.0, SUCCESS))
    async with cluster(2, config=configured(DIALECT), plugins=[slow]) as c:
        gang = Gang(DIALECT, "g", 5, minimum=3)
        await gang.create(c)
        await c.advance(1.5)
        await c.delete("g-0", grace_seconds=0)
        await c.advance(20)
        assert gang.bound(c) == 4


async def test_10_a_member_that_is_deleted_at_permit_releases_the_others_at_once() -> None:
    gate = PermitGate("Gate")
    async with cluster(2, config=configured(DIALECT), plugins=[gate]) as c:
        checkers = Checkers(c)
        gang = Gang(DIALECT, "g", 4)
        await gang.create(c)
        await c.settle()
        assert len(gate.held()) == 4
        await c.delete("g-1", grace_seconds=0)
        await c.settle()
        assert gate.held() == []
        assert len(c.scheduler.cache.pods()) == 0
        checkers.check_books()


async def test_10_members_at_permit_are_bound_when_the_last_is_allowed() -> None:
    gate = PermitGate("Gate")
    async with cluster(2, config=configured(DIALECT), plugins=[gate]) as c:
        gang = Gang(DIALECT, "g", 3)
        await gang.create(c)
        await c.settle()
        gate.allow("default/g-0", "default/g-1")
        await c.advance(20)
        assert gang.bound(c) == 0
        gate.allow("default/g-2")
        await c.settle()
        assert gang.bound(c) == 3


async def test_11_a_denied_member_sends_the_whole_group_back_with_the_plugins_words() -> None:
    gate = PermitGate("Gate")
    async with cluster(2, config=configured(DIALECT), plugins=[gate]) as c:
        gang = Gang(DIALECT, "g", 4)
        await gang.create(c)
        await c.settle()
        gate.allow("default/g-0")
        await c.settle()
        gate.reject("no licence left", "default/g-2")
        await c.settle()
        assert gang.bound(c) == 0
        assert gate.held() == []
        assert len(c.scheduler.cache.pods()) == 0
        assert "pod group is unschedulable, no licence left" in c.message("g-0")
        assert "no licence left" in c.message("g-2")
        await c.advance(15)
        assert len(gate.held()) == 4, "tried again after the backoff"


async def test_11_a_permit_plugin_that_rejects_at_once_undoes_everything() -> None:
    denied = {"default/g-2"}
    plugin = FakePlugin(
        "Deny",
        permit=lambda state, pod, node: (
            unschedulable("not this one") if pod.key in denied else SUCCESS
        ),
        events_to_register=[],
    )
    async with cluster(2, config=configured(DIALECT), plugins=[plugin]) as c:
        gang = Gang(DIALECT, "g", 4)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        assert len(c.scheduler.cache.pods()) == 0
        assert "not this one" in c.message("g-0")
        denied.clear()
        await c.advance(120)
        assert gang.bound(c) == 4


async def test_12_a_bind_that_fails_leaves_the_place_to_its_pod() -> None:
    taken = conflict(GroupResource("", "pods"), "g", "taken")
    async with cluster(1, config=configured(DIALECT)) as c:
        c.faults.rules.append(
            Rule(Fault(answer=taken), verb="create", resource="pods/binding", skip=2)
        )
        gang = Gang(DIALECT, "g", 4)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 3
        await c.create(make_pod("thief").req(cpu="1"))
        await c.settle()
        assert c.bound("thief") is None
        await c.advance(5)
        assert gang.bound(c) == 4
        assert c.bound("thief") is None


@every_dialect
async def test_13_members_of_a_lost_node_are_placed_again_and_the_others_stay(
    dialect: str,
) -> None:
    async with cluster(2, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            gang = Gang(dialect, "g", 8)
            await gang.create(c)
            await c.settle()
            before = {name: c.bound(name) for name in gang.names}
            lost = [name for name, node in before.items() if node == "n2"]
            assert lost
            await c.delete_node("n2")
            for name in lost:
                await c.delete(name, grace_seconds=0)
            await c.settle()
            for number in range(len(lost)):
                await c.create(gang.pod(f"again-{number}"))
            await c.settle()
            assert all(c.bound(f"g-again-{number}") is None for number in range(len(lost)))
            await c.add_nodes([make_node("n3")])
            await c.advance(15)
            assert all(c.bound(f"g-again-{number}") == "n3" for number in range(len(lost)))
            stayed = {name: node for name, node in before.items() if name not in lost}
            assert {name: c.bound(name) for name in stayed} == stayed


@every_dialect
@pytest.mark.parametrize("cut", range(6))
async def test_14_a_scheduler_that_dies_between_two_binds_is_succeeded_by_one_that_completes(
    dialect: str, cut: int
) -> None:
    async with cluster(3, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        gang = Gang(dialect, "g", 6, cpu="2")
        await gang.create(c)
        c.faults.rules.append(
            Rule(Fault(hang=True), verb="create", resource="pods/binding", skip=cut, times=None)
        )
        with anyio.CancelScope() as first:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(c.scheduler.run())
                await c.advance(1)
                assert gang.bound(c) == cut
                running.cancel()
            first.cancel()
        c.faults.rules.clear()
        # A small pod must not take what the gang still needs before it is counted.
        async with successor(c, dialect) as next_one:
            await c.advance(15)
            assert gang.bound(c) == 6
            assert next_one.cache.statistics().assumed_pods == 0
        assert set(binds(c).values()) == {1}


async def test_14_what_is_missing_of_a_cut_gang_needs_no_room_for_the_whole_of_it() -> None:
    """Its minimum resources are those of all members, and some hold theirs already."""
    dialect = "scheduler-plugins"
    async with cluster(2, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        gang = Gang(dialect, "g", 8, more={"minResources": {"cpu": "8"}})
        await gang.create(c)
        hang = Rule(Fault(hang=True), verb="create", resource="pods/binding", skip=3, times=None)
        c.faults.rules.append(hang)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(c.scheduler.run())
            await c.advance(1)
            running.cancel()
        assert gang.bound(c) == 3
        c.faults.rules.clear()
        async with successor(c, dialect):
            await c.advance(5)
            assert gang.bound(c) == 8


def successor(c: Cluster, dialect: str) -> Scheduler:
    configuration = c.scheduler.configuration
    assert isinstance(configuration, SchedulerConfiguration)
    transport = InProcessTransport(c.server, "system:kube-scheduler")
    return Scheduler(transport, configuration, clock=c.clock, seed=1)


async def test_15_after_a_takeover_the_counts_are_those_of_the_api_server() -> None:
    async with cluster(4, config=configured(DIALECT), start=False) as c:
        gangs = [Gang(DIALECT, f"g{number}", 5) for number in range(8)]
        for gang in gangs:
            await gang.create(c)
        async with c.scheduler:
            await c.settle()
        assert sorted(gang.bound(c) for gang in gangs) == [0] * 5 + [5] * 3
        async with successor(c, DIALECT) as next_one:
            await c.advance(5)
            placed = {str(group.key): group.placed for group in next_one.groups}
            assert placed == {f"default/{gang.name}": gang.bound(c) for gang in gangs}


async def test_30_volumes_that_cannot_be_provided_keep_the_whole_group_unbound() -> None:
    def pre_bind(state: Any, pod: Any, node: str) -> Any:
        return unschedulable("no disk") if pod.name == "g-2" and broken else SUCCESS

    broken = True
    disks = FakePlugin("Disks", pre_bind=pre_bind, pre_bind_pre_flight=SUCCESS)
    async with cluster(2, config=configured(DIALECT), plugins=[disks]) as c:
        gang = Gang(DIALECT, "g", 4)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        assert len(c.scheduler.cache.pods()) == 0
        assert "no disk" in c.message("g-0")
        broken = False
        await c.advance(15)
        assert gang.bound(c) == 4


async def test_42_a_gang_whose_bind_is_always_refused_does_not_keep_others_waiting() -> None:
    refused = conflict(GroupResource("", "pods"), "g", "refused")
    async with cluster(2, config=configured(DIALECT)) as c:
        c.faults.rules.append(
            Rule(
                Fault(answer=refused),
                verb="create",
                resource="pods/binding",
                when=lambda request: "/doomed-" in request.path,
                times=None,
            )
        )
        doomed = Gang(DIALECT, "doomed", 2)
        await doomed.create(c)
        await c.advance(120)
        tries = len([one for one in c.requests if "/doomed-" in one.path and "binding" in one.path])
        assert tries <= 2 * 20
        fine = Gang(DIALECT, "fine", 4)
        await fine.create(c)
        await c.settle()
        assert fine.bound(c) == 4


@pytest.mark.parametrize("fault", [Fault(duplicate_events=True), Fault(event_delay_seconds=0.3)])
async def test_43_a_watch_out_of_order_leaves_the_counts_right(fault: Fault) -> None:
    async with cluster(2, config=configured(DIALECT), start=False) as c:
        c.faults.rules.append(Rule(fault, verb="watch", times=None))
        async with c.scheduler:
            gangs = [Gang(DIALECT, f"g{number}", 4) for number in range(3)]
            for gang in gangs:
                await gang.create(c)
                c.server.drop_watches()
            await c.advance(30)
            await c.delete("g0-1", grace_seconds=0)
            await c.advance(30)
            assert sorted(gang.bound(c) for gang in gangs) in ([0, 3, 4], [0, 4, 4])
            for group in c.scheduler.groups:
                names = [f"{group.key.name}-{number}" for number in range(4)]
                bound = sum(c.exists(name) and c.bound(name) is not None for name in names)
                assert group.placed == bound


async def test_a_gang_with_a_member_on_a_lost_node_can_be_evicted_whole() -> None:
    """The member holds no room any more, and does not protect the others."""
    async with cluster(3, config=configured(DIALECT), kubelet=True) as c:
        await c.create(priority_class(1), priority_class(100))
        low = Gang(DIALECT, "low", 3, cpu="4", priority=1)
        await low.create(c)
        await c.settle()
        lost = c.bound("low-2")
        assert lost
        assert low.bound(c) == 3
        await c.delete_node(lost)
        high = Gang(DIALECT, "high", 2, cpu="4", priority=100)
        await high.create(c)
        await c.advance(60)
        assert high.bound(c) == 2
        deleted = {one.path for one in c.requests if one.verb == "delete"}
        assert {path.rpartition("/")[2] for path in deleted} >= {"low-0", "low-1", "low-2"}

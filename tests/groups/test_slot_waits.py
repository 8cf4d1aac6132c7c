"""Gangs that are impossible for one reason wait together: what an event costs does not depend on
how many they are, and none of them misses the room that appears.

Covers ``ksched.scheduling.slot_waits`` and ``ksched.scheduling.group_shortage``.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api.objects import Node
from ksched.cache.cache import SchedulerCache
from ksched.groups.slots import Slots, count_slots
from ksched.queue import unschedulable
from ksched.scheduling.slot_waits import FEW_NODES, MOST_WAITS, SlotWaits
from ksched.testing import Cluster, PodBuilder, cluster, make_node, make_pod
from lab.gang_histories import PREEMPTION, History
from lab.gangs import DIALECTS, Gang, configured, install

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def counted(c: Cluster) -> Counter[str]:
    """Work so far."""
    queue, pipeline = c.scheduler.queue.work, c.scheduler.profiles["default-scheduler"].pipeline
    return Counter(
        hints=queue.hint_calls,
        pre_enqueue=queue.pre_enqueue_calls,
        shared_waits=queue.shared_waits,
        cycles=pipeline.work.cycles,
        requests=len(c.requests),
    )


async def crowd(c: Cluster, dialect: str, number: int) -> list[Gang]:
    """So many gangs of five that each need one node more than there are."""
    await install(c, dialect)
    await c.advance(60)
    gangs = [Gang(dialect, f"g{index}", 5, cpu="4") for index in range(number)]
    for gang in gangs:
        await gang.create(c)
    await c.advance(70)
    assert c.scheduler.queue.statistics().unschedulable == 5 * number
    return gangs


async def work_of_singles(dialect: str, gangs: int) -> Counter[str]:
    """What ten pods that come and go cost beside a crowd."""
    async with cluster(4, config=configured(dialect), check_declarations=False) as c:
        await crowd(c, dialect, gangs)
        before = counted(c)
        for number in range(10):
            await c.create(make_pod(f"single-{number}").req(cpu="1"))
            await c.settle()
            assert c.bound(f"single-{number}") is not None
            await c.delete(f"single-{number}", grace_seconds=0)
            await c.settle()
        return counted(c) - before


@every_dialect
async def test_38_a_single_pod_costs_the_same_beside_four_times_the_gangs(dialect: str) -> None:
    few, many = await work_of_singles(dialect, 15), await work_of_singles(dialect, 60)
    assert few == many
    # One look at each deletion, and no attempt but those of the single pods.
    assert (few["shared_waits"], few["cycles"]) == (10, 10)


async def work_of_waiting(gangs: int) -> Counter[str]:
    """What five minutes without any event cost."""
    async with cluster(4, config=configured("annotations"), check_declarations=False) as c:
        await crowd(c, "annotations", gangs)
        before = counted(c)
        await c.advance(300)
        return counted(c) - before


async def test_38_waiting_costs_the_same_for_four_times_the_gangs() -> None:
    few, many = await work_of_waiting(15), await work_of_waiting(60)
    assert few == many
    # A few are tried again once in a while.
    assert few["pre_enqueue"] > 0


@every_dialect
async def test_a_crowd_is_placed_one_after_the_other_when_there_is_room(dialect: str) -> None:
    async with cluster(4, config=configured(dialect), check_declarations=False) as c:
        gangs = await crowd(c, dialect, 12)
        await c.add_nodes(31)
        await c.advance(3)
        assert sum(gang.bound(c) == 5 for gang in gangs) == 7
        assert all(gang.bound(c) in (0, 5) for gang in gangs)
        await c.add_nodes(25)
        # Those that were tried in vain back off.
        await c.advance(12)
        assert all(gang.bound(c) == 5 for gang in gangs)


async def test_a_crowd_gets_room_that_others_leave() -> None:
    async with cluster(5, config=configured("annotations"), check_declarations=False) as c:
        await c.create(make_pod("first").req(cpu="1"))
        await c.settle()
        gangs = await crowd(c, "annotations", 6)
        await c.delete("first", grace_seconds=0)
        await c.advance(3)
        assert sorted(gang.bound(c) for gang in gangs) == [0, 0, 0, 0, 0, 5]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["plain", PREEMPTION])
async def test_gangs_that_wait_together_miss_no_room(
    seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few that most gangs of the history are crowds.
    monkeypatch.setattr(unschedulable, "SCOUTS", 2)
    await History(seed, "annotations", kind).live()


# -- counting -------------------------------------------------------------------------------------


class World:
    """A cluster of nodes of 8 cores, and groups that need some slots of 3 cores."""

    def __init__(self, need: int, priority: int | None) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.need, self.priority = need, priority
        self.waits = SlotWaits(self.cache)
        self.pods = 0
        for number in range(3):
            self.cache.add_node(self.node(number))
        table = self.cache.update_snapshot().table
        slots = count_slots(table, {"cpu": 3000}, table.allowed_pods[: len(table)] > 0)
        wait = self.waits.proved("kind", need, priority, {"cpu": 3000}, slots)
        assert wait is not None
        self.wait = wait

    @staticmethod
    def node(number: int) -> Node:
        return make_node(f"n{number}").capacity(cpu="8", pods="3").obj()

    def pod(self, number: int, priority: int) -> PodBuilder:
        self.pods += 1
        spec = {"spec": {"priority": priority, "nodeName": f"n{number}"}}
        return make_pod(f"p{self.pods}").req(cpu="2").merge(spec)

    def apply(self, action: str, number: int, priority: int) -> None:
        cache, name = self.cache, f"n{number}"
        if action == "node":
            cache.add_node(self.node(number))
        elif action == "lost":
            if cache.get_node(name) is not None:
                cache.remove_node(name)
        elif action == "pod":
            cache.add_pod(cache.pod_info(self.pod(number, priority).obj()))
        elif action == "gone":
            for pod in [pod for pod in cache.pods() if pod.node_name == name][:1]:
                cache.remove_pod(pod.uid)
        else:
            cache.update_snapshot()

    def slots(self) -> int:
        total = 0
        for name in self.cache.node_names():
            info = self.cache.get_node(name)
            assert info is not None
            staying = [
                pod
                for pod in info.pods.values()
                if self.priority is None or pod.priority >= self.priority
            ]
            total += max(min((8 - 2 * len(staying)) // 3, 3 - len(staying)), 0)
        return total


actions = st.lists(
    st.tuples(
        st.sampled_from(("node", "lost", "pod", "pod", "gone", "publish")),
        st.integers(0, 5),
        st.sampled_from((0, 10)),
    ),
    max_size=30,
)


@given(actions, st.integers(1, 8), st.sampled_from((None, 5)))
def test_the_count_is_never_too_low_and_exact_once_published(
    history: list[tuple[str, int, int]], need: int, priority: int | None
) -> None:
    world = World(need, priority)
    for one in history:
        world.apply(*one)
        assert world.wait.can_end() or world.slots() < need
    world.cache.update_snapshot()
    assert world.wait.can_end() == (world.slots() >= need)


def test_after_many_changes_and_during_a_decision_an_attempt_is_worth_it() -> None:
    world = World(need=1000, priority=None)
    assert not world.wait.can_end()
    world.waits.is_deciding = True
    assert world.wait.can_end()
    world.waits.is_deciding = False
    for number in range(10, 10 + FEW_NODES):
        world.cache.add_node(world.node(number))
    assert not world.wait.can_end()
    world.cache.add_node(world.node(9))
    assert world.wait.can_end()


def test_the_waits_are_bounded_and_go_with_the_groups() -> None:
    world = World(need=4, priority=None)
    table = world.cache.snapshot.table
    slots = Slots(table.pod_count[: len(table)], 0, "cpu")
    kept = [world.waits.proved(kind, 2, None, {}, slots) for kind in range(MOST_WAITS)]
    assert kept[-1] is None
    assert None not in kept[:-1]
    kept.clear()
    assert world.waits.proved("another", 2, None, {}, slots) is not None

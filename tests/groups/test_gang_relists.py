"""Scenario 43: the watch loses its history while a gang is being decided, and everything is listed
again in the middle.

The changes of that time are known by the new list alone. Afterwards the cache is what the API
server has, nobody was bound twice, and no gang has less than its minimum.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from ksched.framework.time_slices import TimeSlice
from ksched.testing import Checkers, Cluster, cluster, make_pod
from lab.counted_time import calls_take_time
from lab.gangs import DIALECTS, Gang, configured, install

USER = "system:kube-scheduler"
Change = Callable[[Cluster], Awaitable[object]]


async def nothing(c: Cluster) -> None:
    """The list is as the cache."""


async def member_deleted(c: Cluster) -> None:
    await c.delete("g-1", grace_seconds=0)


async def member_made_anew(c: Cluster) -> None:
    """Under its name, which is another pod."""
    await c.delete("g-1", grace_seconds=0)
    await c.create(Gang("annotations", "g", 5, minimum=4).pod(1))


async def member_bound_by_another(c: Cluster) -> None:
    await c.bind("g-2", "n1")


async def node_lost(c: Cluster) -> None:
    await c.delete_node("n2")


async def room_taken(c: Cluster) -> None:
    theirs = make_pod("theirs").req(cpu="3")
    await c.create(theirs.merge({"spec": {"schedulerName": "kube-scheduler"}}))
    await c.bind("theirs", "n3")


CHANGES: tuple[Change, ...] = (
    nothing,
    member_deleted,
    member_made_anew,
    member_bound_by_another,
    node_lost,
    room_taken,
)


def lists(c: Cluster) -> Counter[str]:
    """How often the scheduler listed pods and nodes."""
    found = [one for one in c.requests if (one.user, one.verb) == (USER, "list")]
    return Counter(one.resource for one in found if one.resource in ("pods", "nodes"))


async def list_again(c: Cluster, change: Change) -> None:
    """Change something of which the watches are told nothing, until pods and nodes are listed."""
    before = lists(c)
    # What the streams have for their readers ends with them.
    c.server.drop_watches()
    await change(c)
    c.server.store.compact()
    while any(lists(c)[kind] == before[kind] for kind in ("pods", "nodes")):
        await c.clock.sleep(0.1)
    await c.clock.sleep(0.1)


async def decided_with_a_list(dialect: str, change: Change, pause: int) -> int:
    """List everything again at one pause of a gang's decision; returns how many there were."""
    count, give_way = 0, TimeSlice.give_way

    async def interrupted(self: TimeSlice) -> None:
        nonlocal count
        await give_way(self)
        task = asyncio.current_task()
        if task is None or task.get_name() != "scheduler":
            return
        count += 1
        if count == pause + 1:
            is_assumed = bool(c.scheduler.cache.assumed())
            # Between the decision and the binds two schedulers may both be wrong.
            await list_again(c, nothing if is_assumed and change is room_taken else change)

    async with cluster(4, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            await c.advance(61)
            checkers = Checkers(c)
            gang = Gang(dialect, "g", 5, minimum=4, cpu="2")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TimeSlice, "is_over", True)
                patch.setattr(TimeSlice, "give_way", interrupted)
                await gang.create(c)
                await c.advance(10)
            await c.advance(90)
            check(c, gang, checkers)
            assert gang.bound(c) == (4 if change is member_deleted else 5), pause
    return count


def check(c: Cluster, gang: Gang, checkers: Checkers) -> None:
    """Whether the scheduler knows what the API server has, and nothing is going on any more."""
    checkers.check_books()
    scheduler = c.scheduler
    [group] = scheduler.groups
    members = {c.pod(name)["metadata"]["uid"] for name in gang.names if c.exists(name)}
    assert group.members.keys() == members
    assert group.placed == gang.bound(c)
    assert not scheduler.cache.assumed()
    assert scheduler.queue.statistics().in_flight == 0
    assert not scheduler.unexpected_errors._reported
    assert checkers.ledger.binds == binds(c), "one was bound twice"


def binds(c: Cluster) -> int:
    """How often a pod was bound."""
    return sum(one.resource == "pods/binding" and one.code == 201 for one in c.requests)


@pytest.mark.parametrize(
    ("dialect", "change"),
    [("annotations", change) for change in CHANGES]
    + [(dialect, member_deleted) for dialect in DIALECTS if dialect != "annotations"],
)
async def test_43_everything_may_be_listed_again_at_any_pause_of_the_decision(
    dialect: str, change: Change
) -> None:
    pause, paused = 0, 1
    while pause < paused:
        paused = await decided_with_a_list(dialect, change, pause)
        pause += 1
    # Sorted, counted, tried and assumed, each member or step.
    assert pause > 10


async def test_43_a_large_gang_is_listed_again_between_two_slices_of_its_decision() -> None:
    async with cluster(100, config=configured("annotations"), check_declarations=False) as c:
        await c.advance(61)
        checkers = Checkers(c)
        gang = Gang("annotations", "g", 400, minimum=399)
        *most, last = gang.pods()
        await c.create(*most[:-1])
        await c.settle()
        with calls_take_time(1e-5):
            await c.create(most[-1], last)
            while c.scheduler.queue.statistics().in_flight < 399:
                await c.clock.sleep(0.01)
            await list_again(c, member_deleted)
            assert c.scheduler.queue.statistics().in_flight
            assert not c.scheduler.cache.pods(), "it is decided already"
            while not binds(c):
                await c.clock.sleep(0.01)
        await c.advance(90)
        assert gang.bound(c) == 399
        check(c, gang, checkers)

"""Gangs beside other schedulers, other stages of a job, and approvals from outside, by number.

Covers ``ksched.scheduling.group_trial`` and ``ksched.scheduling.group_cycle`` too.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from ksched.framework import SUCCESS, Status
from ksched.groups.states import state_of, waits_for
from ksched.testing import After, Checkers, FakePlugin, cluster, make_node, make_pod
from lab.gangs import DIALECTS, Gang, configured, install

DIALECT = "annotations"
BYTES_PER_HELD_POD = 10 * 1024

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@every_dialect
async def test_37_a_group_over_two_stages_says_what_is_not_created_and_blocks_nobody(
    dialect: str,
) -> None:
    """A JobSet that starts its jobs in order, with one group for both."""
    async with cluster(2, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            both = Gang(dialect, "jobset", 8)
            await c.create(*both.objects(), *both.pods()[:4])
            await c.advance(120)
            assert both.bound(c) == 0
            [group] = [one for one in c.scheduler.groups if one.key.name == "jobset"]
            assert (state_of(group), waits_for(group)) == ("incomplete", "4 of 8 pods exist")
            assert c.condition("jobset-0")["reason"] == "SchedulingGated"  # type: ignore[index]
            others = Gang(dialect, "other", 8)
            await others.create(c)
            await c.settle()
            assert others.bound(c) == 8, "it holds no room"


class Approval:
    """An async Permit whose answer does not come."""

    name = "Approval"
    timeout_seconds = 3600.0
    permit_concurrency = 10_000

    async def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        if pod.name.startswith("held"):
            await asyncio.sleep(3000)
        return SUCCESS


async def test_39_gangs_that_wait_for_an_approval_are_small_and_hold_up_nobody() -> None:
    nodes = [make_node(f"n{number}").capacity(cpu="1000", pods="1000") for number in range(5)]
    plugins = [Approval()]
    config = configured(DIALECT)
    async with cluster(nodes, config=config, plugins=plugins, check_declarations=False) as c:

        async def hold(first: int, count: int) -> None:
            for number in range(first, first + count):
                await Gang(DIALECT, f"held{number}", 10, cpu="100m").create(c)
            await c.settle()

        await hold(0, 5)
        gc.collect()
        tracemalloc.start()
        try:
            await hold(5, 20)
            gc.collect()
            kept = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(False, "*/ksched/apiserver/*")]
            )
            size = sum(one.size for one in kept.statistics("filename"))
        finally:
            tracemalloc.stop()
        assert len(c.scheduler.waiting) == 250
        assert size / 200 < BYTES_PER_HELD_POD
        free = Gang(DIALECT, "free", 10, cpu="100m")
        await free.create(c)
        await c.settle()
        assert free.bound(c) == 10


@every_dialect
async def test_41_a_member_that_another_scheduler_binds_meanwhile_counts(dialect: str) -> None:
    slow = FakePlugin("Slow", reserve=After(1.0, SUCCESS))
    async with cluster(2, config=configured(dialect), plugins=[slow], start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            checkers = Checkers(c)
            gang = Gang(dialect, "g", 4)
            await gang.create(c)
            await c.advance(1.5)
            await c.bind("g-3", "n1")
            await c.advance(30)
            assert gang.bound(c) == 4
            checkers.check_books()


@every_dialect
async def test_41_a_gang_whose_room_another_scheduler_takes_is_not_bound_in_part(
    dialect: str,
) -> None:
    slow = FakePlugin("Slow", reserve=After(1.0, SUCCESS))
    async with cluster(2, config=configured(dialect), plugins=[slow], start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            checkers = Checkers(c)
            gang = Gang(dialect, "g", 8)
            await gang.create(c)
            await c.advance(2.5)
            theirs = make_pod("theirs").req(cpu="3")
            await c.create(theirs.merge({"spec": {"schedulerName": "kube-scheduler"}}))
            await c.bind("theirs", "n1")
            await c.advance(60)
            assert gang.bound(c) == 0, "a node would be full beyond what it has"
            assert len(c.scheduler.cache.pods()) == 1
            await c.delete("theirs", grace_seconds=0)
            await c.advance(60)
            assert gang.bound(c) == 8
            checkers.check_books()

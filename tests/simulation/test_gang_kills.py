"""A leader that is killed at any step of the event loop leaves no gang cut.

Covers ``ksched.scheduling.attempts``, where decisions about thousands of pods are carried out in
slices, and ``lab.replicas``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

import pytest

from ksched.framework import time_slices
from ksched.scheduling import scheduler
from ksched.testing import Checkers, cluster
from ksched.testing.virtual_time import run
from lab.gangs import Gang, configured
from lab.replicas import Replicas

SIZE = 4


async def bound_when_killed_after(steps: int) -> int:
    """How many members were bound when the leader was killed so many steps after the last came."""
    gang = Gang("annotations", "g", SIZE)
    config = configured("annotations")
    async with cluster(2, config=config, start=False, check_declarations=False) as c:
        checkers = Checkers(c)
        async with Replicas.running(c) as replicas, asyncio.TaskGroup() as tasks:
            *most, last = gang.pods()
            await c.create(*most)
            await c.settle()
            tasks.create_task(c.create(last))
            for _ in range(steps):
                await asyncio.sleep(0)
            replicas.kill()
            await c.settle()
            bound = gang.bound(c)
            replicas.take_over(is_warm=steps % 2 == 0)
            await c.advance(15)
            assert gang.bound(c) == SIZE, f"killed after {steps} steps, {bound} were bound"
            assert not checkers.ledger.problems
            checkers.check_books()
    return bound


@pytest.mark.parametrize("slice_seconds", [time_slices.SLICE_SECONDS, -1.0])
def test_14_a_leader_killed_at_any_step_of_the_event_loop_leaves_no_gang_cut(
    monkeypatch: pytest.MonkeyPatch, slice_seconds: float
) -> None:
    monkeypatch.setattr(time_slices, "SLICE_SECONDS", slice_seconds)
    monkeypatch.setattr(scheduler, "MAX_CONCURRENT_BINDS", 1)
    bound: Counter[int] = Counter()
    for steps in count():
        number = run(bound_when_killed_after(steps))
        bound[number] += 1
        if number == SIZE:
            break
    # Killed before the first bind, and between any two.
    assert bound.keys() == set(range(SIZE + 1))

"""How many functions a decision calls, by workload of ``ksched bench``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import ksched
from ksched.benchmark import CoreBench, make_workload_pod

PACKAGE = str(Path(ksched.__file__).parent)
NODES = 400
WARM, COUNTED = 200, 200
"""Multiples of the cycles from one in which plugins are timed to the next."""

CALLS = {
    "basic": 216,
    "spread": 272,
    "prefspread": 253,
    "affinity": 296,
    "prefaffinity": 264,
    "antiaffinity": 295,
    "nodeaffinity": 216,
    "mixed": 273,
}
"""Per decision, with the events that confirm it."""

PASSES = {"prefspread": 1, "affinity": 1, "prefaffinity": 1, "mixed": 2 / 5}
"""How often a plugin is given all nodes in a decision."""


@pytest.mark.parametrize("workload", CALLS)
async def test_few_functions_are_called_for_a_decision(workload: str) -> None:
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_qualname] += 1

    bench = CoreBench(NODES, seed=0)
    for number in range(WARM + COUNTED):
        bench.scheduler.pods.added(make_workload_pod(number, workload).obj())
    for _ in range(WARM):
        await bench.schedule_one()
    [profile] = bench.scheduler.profiles.values()
    rows = profile.pipeline.work.rows
    sys.setprofile(note)
    try:
        for _ in range(COUNTED):
            await bench.schedule_one()
    finally:
        sys.setprofile(None)
    assert bench.placed == WARM + COUNTED
    assert calls.total() <= COUNTED * CALLS[workload], calls.most_common(20)
    few = 3 * COUNTED
    assert profile.pipeline.work.rows - rows <= PASSES.get(workload, 0) * NODES * COUNTED + few

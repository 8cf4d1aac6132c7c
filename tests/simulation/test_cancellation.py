"""Attempts cancelled at every wait; ``python -m lab.cancellation --seeds 1000`` tries many more."""

from __future__ import annotations

import os
from collections import Counter

from ksched.testing import virtual_time
from lab.cancellation import CancelledLife

SEEDS = 8
FIRST = int(os.environ.get("KSCHED_SIMULATION_FIRST", "0"))
MORE = int(os.environ.get("KSCHED_SIMULATION_SEEDS", "0"))


def test_nothing_stays_reserved_wherever_an_attempt_is_cancelled() -> None:
    happened: Counter[str] = Counter()
    cancelled: Counter[str] = Counter()
    for seed in (*range(SEEDS), *range(FIRST, FIRST + MORE)):
        life = CancelledLife(seed)
        virtual_time.run(life.run())
        happened += life.happened
        cancelled += life.cancelled
    assert happened.keys() == {"create", "delete", "preempt", "lease", "SIGTERM"}
    assert cancelled.keys() == {"Permit", "PreBind", "Bind"}

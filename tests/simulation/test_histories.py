"""Short lives of clusters; and that they find bugs of known kinds.

``python -m lab.histories --seeds 0-9999`` tries many more seeds, ``python -m lab.planted_bugs``
looks for the first seed that finds each bug.
"""

from __future__ import annotations

from collections import Counter

import pytest

from lab.histories import outcome_of
from lab.planted_bugs import BUGS, found_by

FOUND_BY = {
    "lost wake-up": 0,
    "new node unnoticed": 15,
    "node change ignored": 1,
    "lost answer believed": 25,
    "relist without deletions": 13,
    "forgotten unreserve": 4,
    "dropped after an error": 4,
    "deleted stays queued": 0,
    "blind successor": 8,
    "assumed pods take no room": 0,
    "lease ignored by binds": 2,
    "lease ignored by conditions": 5,
}
"""The first seed that finds each, by ``python -m lab.planted_bugs``."""


def test_nothing_is_violated_and_everything_happens() -> None:
    happened: Counter[str] = Counter()
    for seed in range(6):
        events, problem = outcome_of(seed)
        assert not problem
        happened += events
    assert happened["leader_is_killed"]
    assert happened["leader elected"] > 4
    assert happened["lease lost: not renewed for 10 seconds"]
    assert happened["storm"]


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert f"AssertionError: seed {FOUND_BY[bug]}, " in found_by(bug, FOUND_BY[bug])

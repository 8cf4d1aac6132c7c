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
    "lost answer believed": 28,
    "relist without deletions": 10,
    "forgotten unreserve": 4,
    "dropped after an error": 4,
    "deleted stays queued": 0,
    "blind successor": 2,
    "assumed pods take no room": 0,
    "lease ignored by binds": 8,
}
"""The first seed that finds each, by ``python -m lab.planted_bugs``."""


def test_nothing_is_violated_and_everything_happens() -> None:
    happened: Counter[str] = Counter()
    for seed in range(6):
        events, problem = outcome_of(seed)
        assert not problem
        happened += events
    assert happened.keys() & {"leader_is_killed", "leader_is_frozen", "leader_is_cut_off"}
    assert happened.keys() & {"storm", "hiccup"}
    assert happened["leader elected"] > 2


def test_a_bind_that_is_performed_after_its_leader_gave_it_up_is_no_violation() -> None:
    for seed in (2027, 6296):
        assert outcome_of(seed)[1] == ""


def test_room_that_others_took_meanwhile_is_no_violation() -> None:
    assert outcome_of(7815)[1] == ""


def test_a_successor_waits_for_a_list_that_takes_long() -> None:
    assert outcome_of(7775)[1] == ""


@pytest.mark.parametrize("seed", [632, 857, 1190, 1394])
def test_a_successor_sees_what_was_bound_while_its_watch_was_dead(seed: int) -> None:
    assert outcome_of(seed)[1] == ""


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert f"AssertionError: seed {FOUND_BY[bug]}, " in found_by(bug, FOUND_BY[bug])

"""DynamicResources, with its caches and masks, chooses the devices that a naive search chooses.

Random slices, claims and events; the same pods are asked about after each.
"""

from __future__ import annotations

import pytest

from lab.device_twins import DeviceTwins
from lab.seeds import asked_seeds

SEEDS, EVENTS = 24, 12


@pytest.mark.parametrize("seed", asked_seeds(SEEDS))
async def test_random_devices_that_come_and_go(seed: int) -> None:
    twins = DeviceTwins(seed)
    for event in range(EVENTS):
        found = await twins.compare()
        assert not found, "\n".join([f"seed {seed}, after {event} events:", *found])
        twins.change()


async def test_all_kinds_of_answers_are_compared() -> None:
    answers: set[str] = set()
    for seed in range(12):
        twins = DeviceTwins(seed)
        for _ in range(4):
            await twins.compare()
            twins.change()
        answers |= twins.answers.keys()
    assert answers == {"list", "NoneType", "Fatal", "Invalid"}

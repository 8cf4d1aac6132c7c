"""Whole lives of clusters from seeds, watched by checkers that do not trust the scheduler.

``make simulate-hours SEEDS=100`` tries a hundred more. A seed that fails is named in the failure
and belongs into ``SEEDS``.
"""

from __future__ import annotations

import os

import pytest

from ksched.testing import cluster, virtual_time
from ksched.testing.harness import Cluster
from lab.simulation import Simulation

SEEDS = [1, 2]
FIRST = int(os.environ.get("KSCHED_SIMULATION_FIRST", "1000"))
MORE = range(FIRST, FIRST + int(os.environ.get("KSCHED_SIMULATION_SEEDS", "0")))


async def live(
    seed: int, hours: float, *, bad_weather: bool, seconds_between_events: float
) -> Cluster:
    async with cluster(kubelet=True, seed=seed) as c:
        simulation = Simulation(
            c, seed, bad_weather=bad_weather, seconds_between_events=seconds_between_events
        )
        await simulation.run(hours)
        assert simulation.checkers.ledger.binds > 5 * hours
        assert len(simulation.happened) > 10
    return c


@pytest.mark.parametrize("seed", [1], ids="seed {}".format)
async def test_a_day_of_cluster_life_in_seconds(seed: int) -> None:
    c = await live(seed, 24, bad_weather=True, seconds_between_events=600)
    assert c.clock.now() > 24 * 3600
    assert len(c.faults.fired) > 100


@pytest.mark.parametrize("seed", [*SEEDS, *MORE], ids="seed {}".format)
async def test_hours_full_of_events_and_bad_weather(seed: int) -> None:
    await live(seed, 1, bad_weather=True, seconds_between_events=40)


@pytest.mark.parametrize("seed", [4], ids="seed {}".format)
async def test_in_good_weather_no_pod_is_kept_waiting(seed: int) -> None:
    await live(seed, 1, bad_weather=False, seconds_between_events=60)


def test_a_seed_tells_the_whole_story() -> None:
    lives = [
        virtual_time.run(live(7, 0.5, bad_weather=True, seconds_between_events=30))
        for _ in range(2)
    ]
    one, two = [list(c.requests) for c in lives]
    assert len(one) > 500
    assert one == two

"""python -m lab.histories: short lives of clusters from many seeds.

    python -m lab.histories --seeds 0-9999

A seed determines the weather, whether leaders are killed, and everything that happens. In good
weather a pod that a node would take must be bound within seconds, not when the queue is flushed.
Prints every violation; the exit code is 1 if there is one.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from ksched.testing import cluster
from lab.replicas import Replicas
from lab.seed_runs import Outcome, outcome, run_seeds
from lab.simulation import Simulation

HOURS = 0.15
NODES = 4
SECONDS_BETWEEN_EVENTS = 15.0
GOOD_WEATHER_PATIENCE_SECONDS = 15.0
"""The backoff is at most 10 s and its flush a second."""


@dataclass(frozen=True)
class History:
    """What a seed is about."""

    seed: int
    bad_weather: bool
    take_overs: bool

    @classmethod
    def of(cls, seed: int) -> History:
        return cls(seed, bad_weather=seed % 3 != 0, take_overs=seed % 3 == 2)

    async def live(self) -> Counter[str]:
        """Live through it; raises ``AssertionError`` with the seed."""
        async with cluster(
            kubelet=True, seed=self.seed, start=False, check_declarations=False
        ) as c:
            simulation = Simulation(
                c,
                self.seed,
                nodes=NODES,
                seconds_between_events=SECONDS_BETWEEN_EVENTS,
                bad_weather=self.bad_weather,
                good_weather_patience_seconds=GOOD_WEATHER_PATIENCE_SECONDS,
            )
            if self.take_overs:
                async with Replicas.running(c) as replicas:
                    simulation.add_take_overs(replicas)
                    await simulation.run(HOURS)
            else:
                async with c.scheduler:
                    await simulation.run(HOURS)
            return simulation.happened


def outcome_of(seed: int) -> Outcome:
    """What happened in a seed's history, and what was violated in it."""
    return outcome(History.of(seed))


def main() -> int:
    return run_seeds("python -m lab.histories", __doc__, outcome_of)


if __name__ == "__main__":
    sys.exit(main())

"""python -m lab.histories: short lives of clusters from many seeds.

    python -m lab.histories --seeds 0-9999

A seed determines the weather, whether there are replicas whose leader is killed, frozen or cut off,
and everything that happens. In good weather a pod that a node would take must be bound within
seconds, not when the queue is flushed. Prints every violation, how often each kind of event and
each move in the queue took place, and which move never did; the exit code is 1 if there is a
violation.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from ksched.queue.places import ALLOWED
from ksched.testing import cluster
from lab.elected_replicas import ElectedReplicas, move, moves
from lab.seed_runs import Outcome, outcome, run_seeds
from lab.simulation import Simulation

HOURS = 0.15
NODES = 4
SECONDS_BETWEEN_EVENTS = 15.0
LAG_SECONDS = 0.05
GOOD_WEATHER_PATIENCE_SECONDS = 15.0
"""The backoff is at most 10 s and its flush a second."""


@dataclass(frozen=True)
class History:
    """What a seed is about."""

    seed: int
    bad_weather: bool
    take_overs: bool
    lag_seconds: float

    @classmethod
    def of(cls, seed: int) -> History:
        # Without a lag many pods come, and are bound, at once.
        lag_seconds = 0.0 if seed % 6 == 5 else LAG_SECONDS
        return cls(seed, seed % 3 != 0, seed % 3 == 2, lag_seconds)

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
                lag_seconds=self.lag_seconds,
                good_weather_patience_seconds=GOOD_WEATHER_PATIENCE_SECONDS,
            )
            if not self.take_overs:
                async with c.scheduler:
                    await simulation.run(HOURS)
                return simulation.happened + moves(c.scheduler)
            ledger = simulation.checkers.ledger
            async with ElectedReplicas.running(
                c, self.seed, ledger.problems.append, ledger.excuse
            ) as replicas:
                simulation.add_take_overs(replicas)
                await simulation.run(HOURS)
            return simulation.happened + replicas.happened


def outcome_of(seed: int) -> Outcome:
    """What happened in a seed's history, and what was violated in it."""
    return outcome(History.of(seed))


def main() -> int:
    expected = {move(source, target) for source, target in ALLOWED}
    return run_seeds("python -m lab.histories", __doc__, outcome_of, expected=expected)


if __name__ == "__main__":
    sys.exit(main())

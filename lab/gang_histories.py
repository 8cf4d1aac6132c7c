"""python -m lab.gang_histories: random histories of gangs from many seeds.

    python -m lab.gang_histories --seeds 0-1999

A seed determines the dialect, what the history is about, whether leaders are killed, and everything
that happens. Prints every violation; the exit code is 1 if there is one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ksched.testing import cluster
from lab.gang_simulation import GangSimulation, racked_node
from lab.gangs import DIALECTS, PLUGIN, configured, install
from lab.replicas import Replicas
from lab.seed_runs import Outcome, outcome, run_seeds

PLAIN, RACKS, PREEMPTION, PROTECTION = "plain", "racks", "preemption", "protection"
KINDS = (PLAIN, RACKS, PREEMPTION, PROTECTION)
STEPS = 40
PRIORITIES = (1, 5, 50)


@dataclass(frozen=True)
class History:
    """What a seed is about."""

    seed: int
    dialect: str
    kind: str = PLAIN
    take_overs: bool = False

    @classmethod
    def of(cls, seed: int) -> History:
        kind = KINDS[seed // 3 % len(KINDS)]
        # The objects of scheduler-plugins have no topology.
        dialects = DIALECTS[:2] if kind == RACKS else DIALECTS
        return cls(seed, dialects[seed % len(dialects)], kind, seed // 12 % 3 < 2)

    async def live(self) -> Counter[str]:
        """Live through it; raises ``AssertionError`` with the seed."""
        racks = 2 if self.kind == RACKS else 0
        preempts = self.kind in (PREEMPTION, PROTECTION)
        async with cluster(
            [racked_node(number, racks) for number in range(1, 5 if racks else 4)],
            config=self._configuration(),
            seed=self.seed,
            start=False,
            check_declarations=False,
            kubelet=preempts,
        ) as c:
            await install(c, self.dialect)
            simulation = GangSimulation(
                c,
                self.dialect,
                self.seed,
                priorities=PRIORITIES if preempts else (),
                racks=racks,
            )
            if self.take_overs:
                async with Replicas.running(c) as replicas:
                    simulation.add_take_overs(replicas)
                    await simulation.run(STEPS)
            else:
                async with c.scheduler:
                    await simulation.run(STEPS)
            return simulation.happened

    def _configuration(self) -> dict[str, Any]:
        config = configured(self.dialect)
        if self.kind == PROTECTION:
            args: Mapping[str, int] = {"protectAfterSeconds": 20, "maxProtectedPercentage": 60}
            config["profiles"][0]["pluginConfig"] = [{"name": PLUGIN[self.dialect], "args": args}]
        return config


def outcome_of(seed: int) -> Outcome:
    """What happened in a seed's history, and what was violated in it."""
    return outcome(History.of(seed))


def main() -> int:
    return run_seeds("python -m lab.gang_histories", __doc__, outcome_of)


if __name__ == "__main__":
    sys.exit(main())

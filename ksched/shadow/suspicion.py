"""Which other configuration the live scheduler seems to have, from what each would have decided.

Every variant is tried on decisions that differ, and on some that do not. A configuration that has
several best nodes takes one at random, so it is the likelier the fewer it has, if the live node is
one of them. A variant is named when it makes all decisions together much likelier than the compared
configuration does. One that hardly distinguishes nodes explains every decision, and none well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

LEAST_EXPLAINED: Final = 5
LEAST_GAIN: Final = 10.0
"""Logarithm of how much likelier a variant must be: 22,000 times."""
MAX_TRIED: Final = 1000
_FEWEST_CONTROLS: Final = 20
_EQUALLY_GOOD: Final = 0.5
# What is left for a decision that a configuration does not make: by lag, and by anything else.
_LAG: Final = 0.1
_UNKNOWN: Final = 0.001


class Suspicion:
    """The record of one profile's variants, by number."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._explained = [0] * len(labels)
        self._on_differing = [0.0] * len(labels)
        self._on_controls = [0.0] * len(labels)
        self._differing = self._controls = self._agreements = 0
        self.named: frozenset[int] = frozenset()
        """The variants that explain what differs, several if they cannot be told apart."""

    @property
    def labels(self) -> list[str]:
        """Those of the named variants."""
        return [self._labels[number] for number in sorted(self.named)]

    @property
    def wants_control(self) -> bool:
        """Whether the next decision that does not differ should be tried too."""
        wanted = min(self._differing + _FEWEST_CONTROLS, MAX_TRIED)
        return self._differing > 0 and self._controls < wanted

    @property
    def wants_more(self) -> bool:
        """Whether the next decision that differs should be tried, with all variants."""
        return self._differing < MAX_TRIED

    def agree(self, count: int = 1) -> None:
        """Count decisions that do not differ."""
        self._agreements += count

    def control(self, best: Mapping[int, int], own: int, nodes: int) -> None:
        """Add a decision that does not differ.

        ``best`` has, per variant that may make it, the number of its best nodes; ``own`` is that of
        the compared configuration.
        """
        self._controls += 1
        for number in range(len(self._labels)):
            self._on_controls[number] += _likelihood(best.get(number), nodes) + log(own)
        self._update()

    def differ(self, best: Mapping[int, int], nodes: int, *, is_lag: bool) -> None:
        """Add a decision that differs, even if a lag explains it."""
        self._differing += 1
        own = log((_LAG if is_lag else _UNKNOWN) / nodes)
        for number in range(len(self._labels)):
            self._explained[number] += number in best
            self._on_differing[number] += _likelihood(best.get(number), nodes) - own
        self._update()

    def _update(self) -> None:
        # Controls stand for all decisions that do not differ.
        weight = self._agreements / self._controls if self._controls else 0.0
        gains = {
            number: self._on_differing[number] + weight * self._on_controls[number]
            for number, explained in enumerate(self._explained)
            if explained >= LEAST_EXPLAINED
        }
        most = max(gains.values(), default=0.0)
        if most < LEAST_GAIN:
            self.named = frozenset()
            return
        near = most - _EQUALLY_GOOD
        self.named = frozenset(number for number, gain in gains.items() if gain >= near)


def _likelihood(best: int | None, nodes: int) -> float:
    """The logarithm of the chance that a variant takes the live node, one of its ``best``."""
    return log(_LAG / nodes) if best is None else -log(best)

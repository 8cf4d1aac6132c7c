"""Does a measured series rise? A line through it, and how much of its slope may be noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple

BLOCKS = 12
"""Into how many means a series is divided: what goes up and down within one is not a slope."""

ERRORS = 3.0
"""How many standard errors a slope must be away from zero to be one."""

LEAST_SHARE = 0.02
"""A rise over the whole time of less than this share of the mean is nobody's concern."""


class Slope(NamedTuple):
    """A straight line through a series."""

    per_hour: float
    error_per_hour: float
    """Standard error of the slope."""
    mean: float
    hours: float

    @property
    def rises(self) -> bool:
        """Whether it rises by more than noise, and by more than next to nothing."""
        rise = self.per_hour * self.hours
        is_visible = rise > LEAST_SHARE * abs(self.mean)
        return is_visible and self.per_hour > ERRORS * self.error_per_hour

    def __str__(self) -> str:
        verdict = "rises" if self.rises else "flat within noise"
        return (
            f"{self.per_hour:+.3g} ± {self.error_per_hour:.2g} an hour, mean {self.mean:.4g}: "
            f"{verdict}"
        )


def slope(seconds: Sequence[float], values: Sequence[float], blocks: int = BLOCKS) -> Slope:
    """Fit a line by least squares to the means of blocks of the series.

    Neighbouring samples resemble each other, so the scatter around the line of single samples would
    promise more certainty than there is; the means of blocks are as good as independent.
    """
    xs, ys = _means(seconds, blocks), _means(values, blocks)
    hours = (seconds[-1] - seconds[0]) / 3600 if seconds else 0.0
    mean = sum(ys) / len(ys) if ys else 0.0
    if len(xs) < 3 or not hours:
        return Slope(0.0, inf, mean, hours)
    middle = sum(xs) / len(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    per_second = sum((x - middle) * (y - mean) for x, y in zip(xs, ys, strict=True)) / spread
    residues = [y - mean - per_second * (x - middle) for x, y in zip(xs, ys, strict=True)]
    error = sqrt(sum(residue**2 for residue in residues) / (len(xs) - 2) / spread)
    return Slope(per_second * 3600, error * 3600, mean, hours)


def _means(values: Sequence[float], blocks: int) -> list[float]:
    blocks = min(blocks, len(values))
    bounds = [len(values) * number // blocks for number in range(blocks + 1)] if blocks else []
    parts = [values[first:last] for first, last in pairwise(bounds)]
    return [sum(part) / len(part) for part in parts]

"""How requested a node would be: the three scoring strategies of NodeResourcesFit.

Exact with Go's truncating int64 division, because nothing here is negative. As upstream, amounts
times one hundred must stay within an int64: that holds up to 92 PB of memory on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.configuration.plugin_args import ScoringStrategy, UtilizationShapePoint
from ksched.errors import ConfigError
from ksched.framework import MAX_NODE_SCORE

MAX_UTILIZATION = 100
MAX_CUSTOM_PRIORITY_SCORE = 10
"""Scores of a configured shape go up to this; scores of nodes to MAX_NODE_SCORE."""

Ints = NDArray[np.int64]


class ResourceUse(NamedTuple):
    """One resource on each node as it would be with the pod; a capacity of 0 does not count."""

    total: Ints
    capacity: Ints
    weight: int


Scorer = Callable[[Sequence[ResourceUse], int], Ints]
"""From the uses of some resources and the number of nodes to a score from 0 to 100 per node."""


def scorer_of(strategy: ScoringStrategy) -> Scorer:
    """Return the scorer of a configured strategy; raises ``ConfigError`` for an unknown one."""
    if strategy.type == "LeastAllocated":
        return least_allocated
    if strategy.type == "MostAllocated":
        return most_allocated
    if strategy.type == "RequestedToCapacityRatio":
        return requested_to_capacity_ratio(_shape_of(strategy))
    raise ConfigError(
        [
            f'scoringStrategy.type: Unsupported value: "{strategy.type}": supported values: '
            '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
        ]
    )


def least_allocated(uses: Sequence[ResourceUse], nodes: int) -> Ints:
    """Rate the share that stays free: pods spread over the nodes."""
    return _weighted_average(uses, nodes, _free_share)


def most_allocated(uses: Sequence[ResourceUse], nodes: int) -> Ints:
    """Rate the share that is taken: pods pack onto few nodes."""
    return _weighted_average(uses, nodes, _taken_share)


def requested_to_capacity_ratio(shape: Sequence[UtilizationShapePoint]) -> Scorer:
    """Rate the share that is taken by a function that is linear between the points of a shape."""
    rating = np.array([_rate(shape, percent) for percent in range(MAX_UTILIZATION + 1)], np.int64)

    def score(uses: Sequence[ResourceUse], nodes: int) -> Ints:
        sums = np.zeros(nodes, np.int64)
        weights = np.zeros(nodes, np.int64)
        for total, capacity, weight in uses:
            rated = np.where(capacity == 0, 0, rating[_taken_share(total, _divisor(capacity))])
            sums += weight * rated
            # A resource rated 0 does not drag the average down: it drops out of it.
            weights += weight * (rated > 0)
        divisors = _divisor(weights)
        return (2 * sums + divisors) // (2 * divisors)  # half rounds up

    return score


def _weighted_average(
    uses: Sequence[ResourceUse], nodes: int, share: Callable[[Ints, Ints], Ints]
) -> Ints:
    sums = np.zeros(nodes, np.int64)
    weights = np.zeros(nodes, np.int64)
    for total, capacity, weight in uses:
        counts = capacity != 0
        sums += np.where(counts, weight * share(total, _divisor(capacity)), 0)
        weights += weight * counts
    return sums // _divisor(weights)


def _free_share(total: Ints, capacity: Ints) -> Ints:
    share: Ints = np.maximum(capacity - total, 0) * MAX_NODE_SCORE // capacity
    return share


def _taken_share(total: Ints, capacity: Ints) -> Ints:
    share: Ints = np.minimum(total, capacity) * MAX_NODE_SCORE // capacity
    return share


def _divisor(amounts: Ints) -> Ints:
    """Replace the zeros, whose quotients nobody uses."""
    return np.maximum(amounts, 1)


def _shape_of(strategy: ScoringStrategy) -> Sequence[UtilizationShapePoint]:
    ratio = strategy.requested_to_capacity_ratio
    if ratio is None or not ratio.shape:
        raise ConfigError(
            ["scoringStrategy.requestedToCapacityRatio.shape: at least one point must be specified"]
        )
    return ratio.shape


def _rate(shape: Sequence[UtilizationShapePoint], percent: int) -> int:
    scale = MAX_NODE_SCORE // MAX_CUSTOM_PRIORITY_SCORE
    left = shape[0]
    for point in shape:
        if percent <= point.utilization:
            run = point.utilization - left.utilization
            if run == 0:
                return point.score * scale
            rise = (point.score - left.score) * scale * (percent - left.utilization)
            # Towards zero, also downhill, as Go divides.
            step = rise // run if rise >= 0 else -(-rise // run)
            return left.score * scale + step
        left = point
    return left.score * scale

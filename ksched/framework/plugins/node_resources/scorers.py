"""The three scoring strategies of NodeResourcesFit.

Exact with Go's truncating int64 division, because nothing here is negative; and exact beyond, where
amounts times one hundred exceed an int64 (92 PB of memory on a node) and kube-scheduler's wrap
around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ksched.api.quantity import MAX_INT64
from ksched.configuration.plugin_args import ScoringStrategy, UtilizationShapePoint
from ksched.errors import ConfigError
from ksched.framework import MAX_NODE_SCORE
from ksched.framework.plugins.node_resources.requests import Ints

MAX_UTILIZATION = 100
MAX_CUSTOM_PRIORITY_SCORE = 10
"""Maximum score of a configured shape; scores of nodes go up to MAX_NODE_SCORE."""

Scorer = Callable[[Ints, Ints, Ints], Ints]
"""``score(totals, capacities, weights)``: a score from 0 to 100 for each node.

The first two have a line per resource and a column per node: the requests including the pod, and
the capacity. A resource that a node does not have does not count there.
"""


def scorer_of(strategy: ScoringStrategy) -> Scorer:
    """Return the scorer of a configured strategy; raises ``ConfigError`` for an unknown one.

    kube-scheduler: getScorer.
    """
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


def least_allocated(totals: Ints, capacities: Ints, weights: Ints) -> Ints:
    """Score the share that stays free: pods spread over the nodes.

    kube-scheduler: leastResourceScorer, leastRequestedScore.
    """
    divisors = _divisors(capacities)
    free = np.maximum(divisors - totals, 0)
    return _average(_percent(free, divisors), capacities, weights)


def most_allocated(totals: Ints, capacities: Ints, weights: Ints) -> Ints:
    """Score the share that is used: pods pack onto few nodes.

    kube-scheduler: mostResourceScorer, mostRequestedScore.
    """
    return _average(_percent_taken(totals, capacities), capacities, weights)


def requested_to_capacity_ratio(shape: Sequence[UtilizationShapePoint]) -> Scorer:
    """Score the used share by a function that is linear between the points of a shape.

    kube-scheduler: requestedToCapacityRatioScorer, BuildBrokenLinearFunction,
    buildRequestedToCapacityRatioScorerFunction.
    """
    rating = np.array([_rate(shape, percent) for percent in range(MAX_UTILIZATION + 1)], np.int64)

    def score(totals: Ints, capacities: Ints, weights: Ints) -> Ints:
        rated = rating[_percent_taken(totals, capacities)] * (capacities != 0)
        # A resource with score 0 is excluded from the average.
        divisors = _divisors(weights @ (rated > 0))
        rounded_half_up: Ints = (2 * (weights @ rated) + divisors) // (2 * divisors)
        return rounded_half_up

    return score


def _percent_taken(totals: Ints, capacities: Ints) -> Ints:
    divisors = _divisors(capacities)
    return _percent(np.minimum(totals, divisors), divisors)


def _percent(parts: Ints, wholes: Ints) -> Ints:
    percent: Ints = parts * 100 // wholes
    if wholes.max(initial=0) > MAX_INT64 // 100:
        is_large = wholes > MAX_INT64 // 100
        percent[is_large] = parts[is_large].astype(object) * 100 // wholes[is_large]
    return percent


def _average(rated: Ints, capacities: Ints, weights: Ints) -> Ints:
    counts = capacities != 0
    average: Ints = (weights @ (rated * counts)) // _divisors(weights @ counts)
    return average


def _divisors(amounts: Ints) -> Ints:
    """Replace zeros, whose quotients are not used."""
    return np.maximum(amounts, 1)


def _shape_of(strategy: ScoringStrategy) -> Sequence[UtilizationShapePoint]:
    """kube-scheduler: FunctionShapePoint."""
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

"""NodeResourcesBalancedAllocation: prefers a balanced use of a node's resources."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.configuration.plugin_args import NodeResourcesBalancedAllocationArgs
from ksched.framework import (
    MAX_NODE_SCORE,
    PASS_TEMPLATE,
    SKIP_TEMPLATE,
    CycleState,
    Listers,
    NodeRows,
    PodInfo,
    Status,
    template_fact,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.node_resources.device_counts import DeviceCounts
from ksched.framework.plugins.node_resources.requests import Ints, Requests, stacked

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DEFAULTS = NodeResourcesBalancedAllocationArgs()


class NodeResourcesBalancedAllocation:
    """Prefers nodes on which the pod makes resource use more balanced.

    The balance of a node is 100 when the same share of each resource is requested, and less the
    more the shares differ (by their standard deviation). The score is 75 if the pod does not change
    the balance, up to 100 if it improves it, down to 50 if it worsens it. A pod that requests none
    of the resources is not scored.

    Argument: ``resources``, the names to compare (cpu and memory by default).
    """

    name: ClassVar[str] = names.NODE_RESOURCES_BALANCED_ALLOCATION

    def __init__(
        self,
        args: NodeResourcesBalancedAllocationArgs | None = None,
        listers: Listers | None = None,
    ) -> None:
        weights = {one.name: one.weight for one in (args or DEFAULTS).resources}
        self._device_counts = DeviceCounts(listers or Listers(), weights)
        self.score_depends_on = self._device_counts.score_depends_on()
        self._requests = template_fact(lambda template: Requests.scored(weights, template.requests))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        return PASS_TEMPLATE if self._requests(pod.template).amounts.any() else SKIP_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints:
        request = self._requests(pod.template)
        before = stacked(nodes.requested, request.resources, len(nodes))
        capacities = stacked(nodes.allocatable, request.resources, len(nodes))
        self._device_counts.count(request.resources, nodes, before, capacities)
        after = request.on_top_of(before)
        balance_before, balance_after = _balance(np.array((before, after)), capacities)
        half = MAX_NODE_SCORE // 2
        # Never negative before the division: two balances differ by 50 at most.
        scores: Ints = half + (half + balance_after - balance_before) // 2
        return scores


def _balance(used: Ints, capacities: Ints) -> Ints:
    """Return from 0 to 100 how equal the used shares are; absent resources do not count.

    ``used`` has two layers, each with a line per resource and a column per node. The floating-point
    operations and their order are those of ``noderesources/balanced_allocation.go:
    balancedResourceScorer`` (v1.36): the last bit can decide a point.

    kube-scheduler: balancedResourceScore.
    """
    counted = capacities != 0
    shares = np.minimum(used / np.maximum(capacities, 1), 1.0)
    deviations = (
        _deviation_of_two(shares, counted) if len(counted) == 2 else _deviation(shares, counted)
    )
    balance: Ints = ((1.0 - deviations) * float(MAX_NODE_SCORE)).astype(np.int64)
    return balance


def _deviation_of_two(shares: Floats, counted: Bools) -> Floats:
    deviations: Floats = np.abs(shares[:, 0] - shares[:, 1]) / 2 * (counted[0] & counted[1])
    return deviations


def _deviation(shares: Floats, counted: Bools) -> Floats:
    """Standard deviation of the counted shares, by layer and node."""
    number = counted.sum(axis=0)
    divisors = np.maximum(number, 1)
    mean = _sum_in_order(np.where(counted, shares, 0.0)) / divisors
    difference = shares - mean[:, np.newaxis]
    squares = np.where(counted, difference * difference, 0.0)
    of_many = np.sqrt(_sum_in_order(squares) / divisors)
    # kube-scheduler has a special formula for two, which rounds differently.
    lowest = np.where(counted, shares, np.inf).min(axis=1)
    highest = np.where(counted, shares, -np.inf).max(axis=1)
    of_two = np.where(number == 2, (highest - lowest) / 2, 0.0)
    return np.where(number > 2, of_many, of_two)


def _sum_in_order(shares: Floats) -> Floats:
    """Sum resource by resource; NumPy's own sum may pair them up, which rounds differently."""
    total = np.zeros_like(shares[:, 0])
    for resource in range(shares.shape[1]):
        total = total + shares[:, resource]
    return total

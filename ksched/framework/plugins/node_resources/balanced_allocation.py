"""NodeResourcesBalancedAllocation: no node out of memory while its cpus idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.pod_resources import is_scalar_resource_name
from ksched.configuration.plugin_args import NodeResourcesBalancedAllocationArgs
from ksched.framework import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    CycleState,
    NodeRows,
    PodInfo,
    Scope,
    Status,
)
from ksched.framework.plugins import names

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DEFAULTS = NodeResourcesBalancedAllocationArgs()


class NodeResourcesBalancedAllocation:
    """Prefers nodes on which the pod makes the use of resources more even.

    The balance of a node is 100 when the same share of each resource is requested, and less the
    more the shares differ (by their standard deviation). The score is 75 if the pod does not change
    the balance, up to 100 if it improves it, down to 50 if it worsens it. A pod that asks for none
    of the resources is not rated.

    Argument: ``resources``, the names to compare (cpu and memory by default).
    """

    name: ClassVar[str] = names.NODE_RESOURCES_BALANCED_ALLOCATION
    score_scope: ClassVar[Scope] = Scope.RESOURCES

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None = None) -> None:
        self._resources = tuple(one.name for one in (args or DEFAULTS).resources)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        requests = pod.template.requests
        return SUCCESS if any(requests.get(one, 0) for one in self._resources) else SKIP

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints:
        requests = pod.template.requests
        before, after, capacities = [], [], []
        for resource in self._resources:
            amount = requests.get(resource, 0)
            if amount == 0 and is_scalar_resource_name(resource):
                continue
            used = nodes.requested(resource)
            before.append(used)
            after.append(used + amount)
            capacities.append(nodes.allocatable(resource))
        gain = _balance(after, capacities) - _balance(before, capacities)
        half = MAX_NODE_SCORE // 2
        # Never negative before the division: two balances differ by 50 at most.
        return half + (half + gain) // 2


def _balance(used: Sequence[Ints], capacities: Sequence[Ints]) -> Ints:
    """Rate from 0 to 100 how equal the used shares are; a resource a node lacks does not count.

    The floating-point operations and their order are those of ``noderesources/
    balanced_allocation.go: balancedResourceScorer`` (v1.36): the last bit can decide a point.
    """
    counts = [capacity != 0 for capacity in capacities]
    shares = [
        np.minimum(amount / np.where(counted, capacity, 1), 1.0)
        for amount, capacity, counted in zip(used, capacities, counts, strict=True)
    ]
    deviation = _deviation(np.array(shares, np.float64), np.array(counts, np.bool_))
    balance: Ints = ((1.0 - deviation) * float(MAX_NODE_SCORE)).astype(np.int64)
    return balance


def _deviation(shares: Floats, counted: NDArray[np.bool_]) -> Floats:
    """Standard deviation, by node, of the shares that count."""
    number = counted.sum(axis=0)
    lowest = np.where(counted, shares, np.inf).min(axis=0)
    highest = np.where(counted, shares, -np.inf).max(axis=0)
    # Upstream has a formula of its own for the usual case of two, which rounds differently.
    of_two = (highest - lowest) / 2
    if not (number > 2).any():
        return np.where(number == 2, of_two, 0.0)
    shares = np.where(counted, shares, 0.0)
    divisor = np.maximum(number, 1)
    mean = _sum_in_order(shares) / divisor
    squares = np.where(counted, (shares - mean) * (shares - mean), 0.0)
    of_many = np.sqrt(_sum_in_order(squares) / divisor)
    return np.where(number > 2, of_many, np.where(number == 2, of_two, 0.0))


def _sum_in_order(rows: Floats) -> Floats:
    """Add up row by row; NumPy's own sum may pair them up, which rounds differently."""
    total = np.zeros(rows.shape[1], np.float64)
    for row in rows:
        total = total + row
    return total

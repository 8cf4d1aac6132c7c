"""Copied node rows whose resource amounts can be changed, for dry runs with other pods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.api.quantity import MAX_INT64
from ksched.cache.node_table import Ints, NodeRows, NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.resource_axis import CPU, MEMORY

POD_COUNT, NON_ZERO_CPU, NON_ZERO_MEMORY, REQUESTED = 0, 1, 2, 3
"""Lines of a matrix of amounts; from ``REQUESTED`` on there is one per resource of the axis."""

LineAmounts = tuple[tuple[int, int], ...]
"""Pairs of a line and an amount."""


def amounts_of(pod: PodInfo) -> LineAmounts:
    """Return what a pod adds to its node's column of the matrix; nothing of it is zero."""
    template, pairs = pod.template, pod.demand.pairs
    known = template.facts.get(amounts_of)
    if known is not None and known[0] is pairs and known[1] is pod.non_zero:
        known_amounts: LineAmounts = known[2]
        return known_amounts
    each = [
        (POD_COUNT, 1),
        (NON_ZERO_CPU, pod.non_zero[CPU]),
        (NON_ZERO_MEMORY, pod.non_zero[MEMORY]),
        *((REQUESTED + position, amount) for position, amount in pairs),
    ]
    amounts = tuple(one for one in each if one[1])
    if pod.demand is template.demand and pod.non_zero is template.non_zero:
        template.facts[amounts_of] = (pairs, pod.non_zero, amounts)
    return amounts


class DryRunTable(NodeTable):
    """A few rows copied from a table; ``amounts`` may be modified.

    Everything else is shared with the original: ``infos`` still show the pods that really run, so
    only verdicts that depend on amounts alone (``Scope.RESOURCES``) are valid on it.
    """

    def __init__(self, table: NodeTable, rows: NDArray[np.intp]) -> None:
        self.original = NodeRows(table, rows)
        """The same nodes, unmodified."""
        super().__init__(table.axis, capacity=len(rows))
        self.infos = [table.infos[row] for row in rows.tolist()]
        self.rows = {info.name: position for position, info in enumerate(self.infos)}
        self.images, self.images_generation = table.images, table.images_generation
        self._taints = table._taints.taken(rows)

    def _allocate(self, capacity: int) -> None:
        table, rows = self.original.table, self.original.rows
        assert rows is not None
        self.allocatable = [column[rows] for column in table.allocatable]
        self.allowed_pods = table.allowed_pods[rows]
        self.unschedulable = table.unschedulable[rows]
        self.uses_host_ports = table.uses_host_ports[rows]
        # A nominated pod may request a resource that no pod on any node has requested yet.
        width = max(len(table.requested), len(table.axis))
        self.amounts: Ints = np.zeros((REQUESTED + width, capacity), np.int64)
        self.pod_count = self.amounts[POD_COUNT]
        self.non_zero = self.amounts[NON_ZERO_CPU:REQUESTED]
        self.requested = list(self.amounts[REQUESTED:])
        self.pod_count[:] = table.pod_count[rows]
        self.non_zero[:] = table.non_zero[:, rows]
        for column, known in zip(self.requested, table.requested, strict=False):
            column[:] = known[rows]

    def add(self, more: Ints) -> Ints:
        """Add to the amounts, saturating at int64; returns the previous values for undo."""
        before = self.amounts.copy()
        np.minimum(self.amounts, MAX_INT64 - more, out=self.amounts)
        self.amounts += more
        return before

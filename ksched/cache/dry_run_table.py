"""Some nodes of the table as they would be with pods added or removed, as far as amounts go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.api.quantity import MAX_INT64
from ksched.cache.change_log import RowLog
from ksched.cache.labels import NodeLabels
from ksched.cache.node_table import Ints, NodeRows, NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.resource_axis import CPU, MEMORY

POD_COUNT, NON_ZERO_CPU, NON_ZERO_MEMORY, REQUESTED = 0, 1, 2, 3
"""Lines of a matrix of amounts; from ``REQUESTED`` on there is one per resource of the axis."""


def amounts_of(pod: PodInfo) -> list[tuple[int, int]]:
    """What a pod adds to its node's column of a matrix of amounts: lines and numbers."""
    return [
        (POD_COUNT, 1),
        (NON_ZERO_CPU, pod.non_zero[CPU]),
        (NON_ZERO_MEMORY, pod.non_zero[MEMORY]),
        *((REQUESTED + position, amount) for position, amount in pod.demand.pairs),
    ]


class DryRunTable(NodeTable):
    """A few rows copied from a table; ``amounts`` is there to be changed.

    Everything else is as in the table it comes from: the infos still tell which pods are really
    there, so only verdicts that hang on amounts alone (``Scope.RESOURCES``) may be asked of it.
    """

    def __init__(self, table: NodeTable, rows: NDArray[np.intp]) -> None:
        self.original = NodeRows(table, rows)
        """The same nodes as they are."""
        self.axis = table.axis
        self.infos = [table.infos[row] for row in rows.tolist()]
        self.rows = {info.name: position for position, info in enumerate(self.infos)}
        self.node_log, self.row_log = RowLog(), RowLog()
        self.images, self.images_generation = table.images, table.images_generation
        self._taints = table._taints.taken(rows)
        self.labels, self._ledger = NodeLabels(self), None
        self.allocatable = [column[rows] for column in table.allocatable]
        self.allowed_pods = table.allowed_pods[rows]
        self.unschedulable = table.unschedulable[rows]
        self.uses_host_ports = table.uses_host_ports[rows]
        # A pod that is only expected may ask for a resource that no node has ever been asked for.
        width = max(len(table.requested), len(table.axis))
        self.amounts: Ints = np.zeros((REQUESTED + width, len(rows)), np.int64)
        self.pod_count = self.amounts[POD_COUNT]
        self.non_zero = self.amounts[NON_ZERO_CPU:REQUESTED]
        self.requested = list(self.amounts[REQUESTED:])
        self.pod_count[:] = table.pod_count[rows]
        self.non_zero[:] = table.non_zero[:, rows]
        for column, known in zip(self.requested, table.requested, strict=False):
            column[:] = known[rows]

    def add(self, more: Ints) -> Ints:
        """Add to the amounts, up to the largest int64; return what they were, to put it back."""
        before = self.amounts.copy()
        np.minimum(self.amounts, MAX_INT64 - more, out=self.amounts)
        self.amounts += more
        return before

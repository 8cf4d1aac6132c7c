"""What the pods below a priority take of each node, as columns."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from ksched.cache.columns import NodeTable
from ksched.cache.excerpt import REQUESTED, amounts_of
from ksched.cache.node_info import NodeInfo
from ksched.framework.time_slices import TimeSlice

PRIORITIES_KEPT = 8


class EvictableAmounts:
    """Amounts that evicting every pod below a priority would free, by row of the node table."""

    def __init__(self, priority: int) -> None:
        self._priority = priority
        self._position = -1
        self.amounts = np.zeros((REQUESTED, 0), np.int64)
        """Lines as in ``Excerpt.amounts``; a line that is missing is zero."""

    async def catch_up(self, table: NodeTable, turn: TimeSlice) -> None:
        """Count again the rows that changed. The table must stay as it is meanwhile."""
        changed = table.row_log.since(self._position)
        position = table.row_log.position
        self._reserve(REQUESTED + len(table.axis), len(table))
        rows = range(len(table)) if changed is None else changed.tolist()
        # Rows counted twice are right; rows that a cancelled attempt left out would stay wrong.
        for row in rows:
            # A row past the end belonged to a node that was removed since.
            if row < len(table):
                self._count(row, table.infos[row])
            if turn.is_over:
                await turn.give_way()
        self._position = position

    def _count(self, row: int, info: NodeInfo) -> None:
        amounts = [0] * self.amounts.shape[0]
        for pod in info.pods.values():
            if pod.priority < self._priority:
                for line, amount in amounts_of(pod):
                    amounts[line] += amount
        self.amounts[:, row] = amounts

    def _reserve(self, lines: int, rows: int) -> None:
        old = self.amounts
        if lines <= old.shape[0] and rows <= old.shape[1]:
            return
        lines = max(lines, old.shape[0])
        columns = old.shape[1] if rows <= old.shape[1] else rows + rows // 4 + 16
        self.amounts = np.zeros((lines, columns), np.int64)
        self.amounts[: old.shape[0], : old.shape[1]] = old


class EvictableByPriority:
    """Columns for the priorities that preempted last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, EvictableAmounts] = OrderedDict()

    def below(self, priority: int) -> EvictableAmounts:
        kept = self._kept.setdefault(priority, EvictableAmounts(priority))
        self._kept.move_to_end(priority)
        if len(self._kept) > PRIORITIES_KEPT:
            self._kept.popitem(last=False)
        return kept

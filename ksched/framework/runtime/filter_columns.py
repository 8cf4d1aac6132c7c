"""Verdicts that are kept between cycles: what depends only on a pod's template and a node.

One ``FilterColumns`` belongs to one template. It remembers how far it has read the change logs of
the node table; catching up asks the same columnar plugins again, for the changed rows only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.cache.columns import NodeRows, NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.guard import Hook
from ksched.framework.verdicts import Scope

Rows = NDArray[np.intp]


class FilterEntry:
    """A filter plugin in its place of the calling order."""

    __slots__ = ("epoch", "hook", "is_columnar", "name", "rank", "scope")

    def __init__(
        self, rank: int, hook: Hook, scope: Scope, is_columnar: bool, epoch: Hook | None
    ) -> None:
        self.rank = rank
        self.name = hook.plugin
        self.hook = hook
        self.scope = scope
        self.is_columnar = is_columnar
        self.epoch = epoch

    @property
    def is_kept(self) -> bool:
        """Whether the answers outlive the cycle."""
        return self.scope in (Scope.NODE, Scope.ROW)


class Work:
    """How much was asked of plugins; the performance that tests can assert."""

    __slots__ = ("cycles", "rows_filtered", "rows_scored")

    def __init__(self) -> None:
        self.cycles = 0
        self.rows_filtered = 0
        self.rows_scored = 0

    @property
    def rows(self) -> int:
        return self.rows_filtered + self.rows_scored


class FilterColumns:
    """The kept verdicts of one template, for all nodes."""

    def __init__(self, entries: list[FilterEntry], table: NodeTable, work: Work) -> None:
        self._entries = entries
        self._table = table
        self._work = work
        self.book = CodeBook()
        self._skipped: frozenset[str] | None = None
        self._node_position = -1
        self._row_position = -1
        self._count = 0
        self._by_node = np.zeros(0, np.int32)
        self._by_row = np.zeros(0, np.int32)
        self._codes = np.zeros(0, np.int32)
        self._feasible: Rows | None = None
        self.version = 0
        """Changes whenever the set of feasible rows does."""
        self.rejection: Diagnosis | None = None
        """The outcome of the last attempt, if the kept verdicts alone rejected every node."""
        self.rejection_epochs: tuple[object, ...] = ()

    @property
    def codes(self) -> Codes:
        """The owning rejection of every row; a view, valid until the next ``catch_up``."""
        return self._codes[: self._count]

    @property
    def feasible(self) -> Rows:
        """Rows that no kept verdict rejects, ascending."""
        if self._feasible is None:
            self._feasible = np.flatnonzero(self.codes == 0)
        return self._feasible

    def catch_up(self, state: CycleState, pod: PodInfo) -> None:
        """Ask again about every row that changed since the last cycle of this template."""
        table = self._table
        skipped = frozenset(entry.name for entry in self._entries) & state.skip_filter
        node_rows = table.node_log.since(self._node_position)
        rows = table.row_log.since(self._row_position)
        count = len(table)
        if skipped != self._skipped or node_rows is None or rows is None or len(rows) > count // 2:
            self._skipped = skipped
            self._reset(count)
            self._recompute(state, pod, None, None)
        else:
            if count != self._count:
                self._resize(count)
            if len(rows):
                # A row past the end belonged to a node that was removed since.
                self._recompute(state, pod, node_rows[node_rows < count], rows[rows < count])
        # Only now: a plugin that raised must find the same rows to do at the next attempt.
        self._node_position, self._row_position = table.node_log.position, table.row_log.position

    def _reset(self, count: int) -> None:
        self._count = count
        self._by_node = np.zeros(count, np.int32)
        self._by_row = np.zeros(count, np.int32)
        self._codes = np.full(count, -1, np.int32)

    def _resize(self, count: int) -> None:
        if count > len(self._codes):
            grown = count + count // 4 + 16 - len(self._codes)
            self._by_node = np.concatenate([self._by_node, np.zeros(grown, np.int32)])
            self._by_row = np.concatenate([self._by_row, np.zeros(grown, np.int32)])
            self._codes = np.concatenate([self._codes, np.full(grown, -1, np.int32)])
        self._count = count
        self._changed()

    def _recompute(
        self, state: CycleState, pod: PodInfo, node_rows: Rows | None, rows: Rows | None
    ) -> None:
        """Renew NODE verdicts of ``node_rows`` and ROW verdicts of ``rows`` (None: of all)."""
        if node_rows is None or len(node_rows):
            self._ask(Scope.NODE, self._by_node, state, pod, node_rows)
        self._ask(Scope.ROW, self._by_row, state, pod, rows)
        where: Rows | slice = slice(0, self._count) if rows is None else rows
        before = self._codes[where]
        after = self.book.first(self._by_node[where], self._by_row[where])
        if (before == after).all():
            return
        self._codes[where] = after
        self.rejection = None
        if ((before == 0) != (after == 0)).any():
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._feasible = None
        self.rejection = None

    def _ask(
        self, scope: Scope, target: Codes, state: CycleState, pod: PodInfo, rows: Rows | None
    ) -> None:
        nodes = NodeRows(self._table, rows)
        where: Rows | slice = slice(0, self._count) if rows is None else rows
        result: Codes | None = None
        for entry in self._entries:
            if entry.scope is not scope or entry.name in state.skip_filter:
                continue
            self._work.rows_filtered += len(nodes)
            verdicts = entry.hook.call(state, pod, nodes)
            codes = self.book.translate(entry.hook, entry.rank, verdicts, len(nodes))
            if codes is None:
                continue
            result = codes if result is None else self.book.first(result, codes)
        target[where] = 0 if result is None else result

"""Verdicts that are kept between cycles: what depends only on a pod's template and a node.

One ``FilterColumns`` belongs to one template. It remembers how far it has read the change logs of
the node table; catching up asks the same columnar plugins again, for the changed rows only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ksched.cache.columns import NodeRows, NodeTable
from ksched.cache.node_info import Amounts
from ksched.cache.pod_info import PodInfo
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.guard import Hook
from ksched.framework.verdicts import Scope

Rows = NDArray[np.intp]

KEPT_SCOPES = (Scope.NODE, Scope.RESOURCES, Scope.ROW)

FEW = 16
"""Up to this many changed rows are handled one by one: an array operation costs as much."""

MEMO_LIMIT = 4096


class FilterEntry:
    """A filter plugin in its place of the calling order."""

    __slots__ = ("epoch", "hook", "is_columnar", "is_kept", "name", "rank", "scope")

    def __init__(
        self, rank: int, hook: Hook, scope: Scope, is_columnar: bool, epoch: Hook | None
    ) -> None:
        self.rank = rank
        self.name = hook.plugin
        self.hook = hook
        self.scope = scope
        self.is_columnar = is_columnar
        self.epoch = epoch
        self.is_kept = scope in KEPT_SCOPES
        """Whether the answers outlive the cycle."""


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

    def __init__(self, entries: Sequence[FilterEntry], table: NodeTable, work: Work) -> None:
        self._entries = entries
        self._names = frozenset(entry.name for entry in entries)
        self._table = table
        self._work = work
        self.book = CodeBook()
        self._skipped: frozenset[str] | None = None
        self._node_position = -1
        self._row_position = -1
        self._count = 0
        self._by_scope: dict[Scope, tuple[list[FilterEntry], Codes]] = {}
        self._by_amounts: dict[Amounts, int] = {}
        self._codes = np.zeros(0, np.int32)
        self._feasible: Rows | None = None
        self.version = 0
        """Changes whenever the set of feasible rows does."""
        self.rejection: Diagnosis | None = None
        """Why the last attempt found no node, while that is still true."""
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
        skipped = self._names & state.skip_filter
        node_rows = table.node_log.since(self._node_position)
        rows = table.row_log.since(self._row_position)
        count = len(table)
        if skipped != self._skipped or node_rows is None or rows is None or len(rows) > count // 2:
            self._reset(skipped, count)
            for scope in self._by_scope:
                self._ask(scope, state, pod, None)
            self._combine_all()
        else:
            if count != self._count:
                self._resize(count)
            if len(rows):
                # A row past the end belonged to a node that was removed since.
                self._renew(state, pod, node_rows[node_rows < count], rows[rows < count])
        # Only now: a plugin that raised must find the same rows to do at the next attempt.
        self._node_position, self._row_position = table.node_log.position, table.row_log.position

    def _reset(self, skipped: frozenset[str], count: int) -> None:
        self._skipped = skipped
        self._count = count
        self._codes = np.zeros(count, np.int32)
        self._changed()
        self._by_amounts.clear()
        self._by_scope = {}
        for scope in KEPT_SCOPES:
            entries = [one for one in self._entries if one.scope is scope]
            active = [one for one in entries if one.name not in skipped]
            if active:
                self._by_scope[scope] = (active, np.zeros(count, np.int32))

    def _resize(self, count: int) -> None:
        if count > len(self._codes):
            more = np.zeros(count + count // 4 + 16 - len(self._codes), np.int32)
            self._codes = np.concatenate([self._codes, more])
            self._by_scope = {
                scope: (entries, np.concatenate([codes, more]))
                for scope, (entries, codes) in self._by_scope.items()
            }
        self._count = count
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._feasible = None
        self.rejection = None

    # -- asking ---------------------------------------------------------------------------------

    def _renew(self, state: CycleState, pod: PodInfo, node_rows: Rows, rows: Rows) -> None:
        for scope in self._by_scope:
            if scope is Scope.RESOURCES:
                self._ask_about_amounts(state, pod, rows)
            else:
                self._ask(scope, state, pod, node_rows if scope is Scope.NODE else rows)
        if len(rows) > FEW:
            self._combine_all()
        else:
            for row in rows.tolist():
                self._combine(row)

    def _ask(self, scope: Scope, state: CycleState, pod: PodInfo, rows: Rows | None) -> None:
        """Renew the verdicts of one scope, for some rows or (None) for all."""
        if rows is not None and not len(rows):
            return
        entries, target = self._by_scope[scope]
        nodes = NodeRows(self._table, rows)
        result: Codes | None = None
        for entry in entries:
            self._work.rows_filtered += len(nodes)
            verdicts = entry.hook.call(state, pod, nodes)
            codes = self.book.translate(entry.hook, entry.rank, verdicts, len(nodes))
            if codes is not None:
                result = codes if result is None else self.book.first(result, codes)
        where: Rows | slice = slice(0, self._count) if rows is None else rows
        target[where] = 0 if result is None else result

    def _ask_about_amounts(self, state: CycleState, pod: PodInfo, rows: Rows) -> None:
        known, infos = self._by_amounts, self._table.infos
        target = self._by_scope[Scope.RESOURCES][1]
        new = []
        for row in rows.tolist():
            code = known.get(infos[row].amounts)
            if code is None:
                new.append(row)
            else:
                target[row] = code
        if not new:
            return
        self._ask(Scope.RESOURCES, state, pod, np.array(new, np.intp))
        if len(known) > MEMO_LIMIT:
            known.clear()
        for row in new:
            known[infos[row].amounts] = int(target[row])

    # -- combining ------------------------------------------------------------------------------

    def _combine(self, row: int) -> None:
        before = self._codes[row]
        after = 0
        for _, codes in self._by_scope.values():
            code = int(codes[row])
            if code and (not after or self.book.rank(code) < self.book.rank(after)):
                after = code
        if before != after:
            self._codes[row] = after
            self.rejection = None
            if not before or not after:
                self._changed()

    def _combine_all(self) -> None:
        after = np.zeros(self._count, np.int32)
        for _, codes in self._by_scope.values():
            after = self.book.first(after, codes[: self._count])
        if not np.array_equal(self.codes, after):
            self._codes[: self._count] = after
            self._changed()

"""Verdicts cached between cycles, for plugins that declare what their verdicts depend on.

One ``FilterColumns`` is shared by pods that the plugins cannot distinguish. It has cursors on the
change logs of the node table; an update calls the same columnar plugins again, for the changed rows
only. Plugins of scope CLUSTER may have a change log of their own (``FilterDependsOn.changes``).

When a verdict is recomputed, by the scope of its plugin:

    NODE                  rows in ``node_log``
    RESOURCES             rows in ``row_log``, if the amounts are new
    ROW                   rows in ``row_log``
    CLUSTER with changes  rows that the plugin reports, and rows in ``node_log``
    CLUSTER, POD          every cycle, in the pipeline

All cached verdicts are recomputed when other plugins are skipped than before, when a log no longer
has what changed, and when more than half of the rows changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import NEVER, ChangeLog
from ksched.cache.node_info import Amounts
from ksched.cache.node_table import NodeRows, NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.recently_used import RecentlyUsed
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import CACHED_SCOPES, FilterDependsOn, Scope
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.guard import Hook
from ksched.framework.status import Status
from ksched.framework.verdicts import ChangedVerdicts
from ksched.tuning import AMOUNTS_CACHED, FEW_ROWS, FLIPS_LOGGED

Rows = NDArray[np.intp]

# Members of an enumeration are looked up slowly, and these are read in every cycle.
_NODE, _RESOURCES, _CLUSTER = Scope.NODE, Scope.RESOURCES, Scope.CLUSTER

NO_ROWS: Rows = np.zeros(0, np.intp)

NOTHING_READ = (NEVER, NEVER)
"""Generations of the node log and the row log before the first reading."""

_PIECES = (list, tuple)


class FilterEntry:
    """A filter plugin at its position in the calling order."""

    __slots__ = (
        "changes",
        "depends_on",
        "epoch",
        "group",
        "hook",
        "is_cached",
        "is_columnar",
        "name",
        "position",
        "scope",
    )

    def __init__(
        self,
        position: int,
        hook: Hook,
        depends_on: FilterDependsOn,
        is_columnar: bool,
        *,
        epoch: Hook | None = None,
        changes: Hook | None = None,
        group: Hook | None = None,
    ) -> None:
        self.position = position
        self.name = hook.plugin
        self.hook = hook
        self.depends_on = depends_on
        self.scope = depends_on.scope
        self.is_columnar = is_columnar
        self.epoch = epoch
        self.changes = changes
        self.group = group
        self.is_cached = depends_on.is_cached
        """Whether verdicts are cached between cycles."""


class Work:
    """Counts calls and rows passed to plugins: performance that tests can assert."""

    __slots__ = ("cycles", "rows_filtered", "rows_scored")

    def __init__(self) -> None:
        self.cycles = 0
        self.rows_filtered = 0
        self.rows_scored = 0

    @property
    def rows(self) -> int:
        return self.rows_filtered + self.rows_scored


class _Column:
    """The first rejection of every row by a group of filters that are evaluated together."""

    __slots__ = ("codes", "entries", "has_rejected", "mark", "numbers", "scope")

    def __init__(self, scope: Scope, entries: list[FilterEntry], count: int) -> None:
        self.scope = scope
        self.entries = entries
        self.codes = np.zeros(count, np.int32)
        self.has_rejected = False
        """Whether any row was ever rejected; usually none, and the column need not be read."""
        self.mark: object = None
        """The position in the plugin's own change log."""
        self.numbers: dict[Status, int] = {}
        """Codes of the statuses that the plugin reported through its change log."""


class FilterColumns:
    """The cached verdicts of some pods for all nodes.

    ``seed`` has the verdicts of pods that differ only for plugins of scope CLUSTER: those of all
    other plugins are copied from it.
    """

    def __init__(
        self,
        entries: Sequence[FilterEntry],
        table: NodeTable,
        work: Work,
        seed: FilterColumns | None = None,
    ) -> None:
        self._seed = seed
        self._entries = entries
        self._names = frozenset(entry.name for entry in entries)
        self._table = table
        self._work = work
        self.book = CodeBook()
        self._skipped: frozenset[str] | None = None
        self._read = NOTHING_READ
        self._count = 0
        self._columns: list[_Column] = []
        self._by_amounts: RecentlyUsed[Amounts, int] = RecentlyUsed()
        self._codes = np.zeros(0, np.int32)
        self._feasible: Rows | None = None
        self.flips: ChangeLog[Rows | list[int]] = ChangeLog(FLIPS_LOGGED)
        """Rows that became feasible or infeasible; cleared when any row may have."""
        self.rejection: Diagnosis | None = None
        """Why the last attempt found no node, while that is still valid."""
        self.rejection_epochs: tuple[object, ...] = ()

    @property
    def codes(self) -> Codes:
        """The deciding rejection of every row; a view, valid until the next ``catch_up``."""
        return self._codes[: self._count]

    @property
    def feasible(self) -> Rows:
        """Rows that no cached verdict rejects, ascending."""
        if self._feasible is None:
            self._feasible = (self.codes == 0).nonzero()[0]
        return self._feasible

    @property
    def rejects_by_amounts_alone(self) -> bool:
        """Whether no filter of another scope than RESOURCES has ever rejected a row."""
        return not any(one.has_rejected for one in self._columns if one.scope is not _RESOURCES)

    def is_current(self, state: CycleState) -> bool:
        """Whether ``catch_up`` of such a pod would find nothing new on any node."""
        table = self._table
        read = (table.node_log.generation, table.row_log.generation)
        return self._read == read and self._skipped == self._names & state.skip_filter

    def catch_up(self, state: CycleState, pod: PodInfo) -> None:
        """Re-evaluate every row that changed since the last cycle of such a pod."""
        table = self._table
        skipped = self._names & state.skip_filter
        if self._seed is not None:
            self._copy_from(self._seed, skipped)
            self._seed = None
        node_log, row_log = table.node_log, table.row_log
        nodes_read, rows_read = self._read
        read = (node_log.generation, row_log.generation)
        node_rows = [] if nodes_read == read[0] else node_log.since(nodes_read)
        rows = row_log.since(rows_read)
        count = len(table.infos)
        if (
            skipped != self._skipped
            or node_rows is None
            or rows is None
            or (len(rows) > FEW_ROWS and len(rows) > count // 2)
        ):
            self._reset(skipped, count)
            # Marks before filling: what changes meanwhile is reported again.
            marks = [
                (column, self._plugin_changes(column, state, pod)[0]) for column in self._columns
            ]
            for column in self._columns:
                self._fill(column, state, pod, None)
            self._combine_all()
        else:
            if count != self._count:
                self._resize(count)
            if rows and rows[-1] >= count:
                # A row past the end belonged to a node that was removed since.
                node_rows = [row for row in node_rows if row < count]
                rows = [row for row in rows if row < count]
            marks = self._renew(state, pod, node_rows, rows)
        # Only now: after an exception of a plugin the next attempt must read the same rows.
        self._read = read
        for column, mark in marks:
            column.mark = mark

    def _reset(self, skipped: frozenset[str], count: int) -> None:
        self._skipped = skipped
        self._count = count
        # Nothing is valid until everything was evaluated, also if a plugin raises on the way.
        self._read = NOTHING_READ
        self._codes = np.zeros(count, np.int32)
        self._record_flips(None)
        self._by_amounts.clear()
        active = [entry for entry in self._entries if entry.name not in skipped]
        self._columns = []
        for scope in CACHED_SCOPES:
            entries = [entry for entry in active if entry.scope is scope]
            if entries:
                self._columns.append(_Column(scope, entries, count))
        for entry in active:
            if entry.scope is Scope.CLUSTER:
                self._columns.append(_Column(Scope.CLUSTER, [entry], count))

    def _copy_from(self, seed: FilterColumns, skipped: frozenset[str]) -> None:
        """Start with the verdicts of other pods that are equal for node-side plugins."""
        self._reset(skipped, seed._count)
        self._read = seed._read
        self.book = seed.book.fork()
        self._by_amounts = seed._by_amounts.copy()
        by_scope = {column.scope: column for column in seed._columns if column.scope != _CLUSTER}
        for column in self._columns:
            if column.scope is not _CLUSTER:
                other = by_scope.get(column.scope)
                if other is None or other.entries != column.entries:
                    self._read = NOTHING_READ
                    return
                column.codes = other.codes[: self._count].copy()
                column.has_rejected = other.has_rejected
        self._combine_all()

    def _resize(self, count: int) -> None:
        if count > len(self._codes):
            more = np.zeros(count + count // 4 + 16 - len(self._codes), np.int32)
            self._codes = np.concatenate([self._codes, more])
            for column in self._columns:
                column.codes = np.concatenate([column.codes, more])
        self._count = count
        self._record_flips(None)

    def _record_flips(self, flipped: Rows | list[int] | None) -> None:
        """Record a change of the feasible set, by its rows or (``None``) as unknown."""
        self._feasible = (
            self._feasible_but_for(int(flipped[0]))
            if flipped is not None and len(flipped) == 1
            else None
        )
        self.rejection = None
        if flipped is None:
            self.flips.forget()
        else:
            self.flips.append(flipped)

    def _feasible_but_for(self, row: int) -> Rows | None:
        """Return the feasible rows after one of them was removed or added."""
        rows = self._feasible
        if rows is None:
            return None
        at = int(rows.searchsorted(row))
        if self._codes.item(row):
            return np.concatenate((rows[:at], rows[at + 1 :]))
        return np.concatenate((rows[:at], (row,), rows[at:]))

    # -- evaluation -----------------------------------------------------------------------------

    def _renew(
        self, state: CycleState, pod: PodInfo, node_rows: list[int], rows: list[int]
    ) -> list[tuple[_Column, object]]:
        """Re-evaluate changed rows and return the columns of plugins with their new marks."""
        marks: list[tuple[_Column, object]] = []
        # A placed pod changes its row in several columns; the row is combined once.
        touched = rows
        for column in self._columns:
            scope = column.scope
            if scope is _CLUSTER:
                mark, more = self._renew_by_plugin(column, state, pod, node_rows)
                marks.append((column, mark))
                if more and more != touched:
                    touched = list(dict.fromkeys(touched + more))
            elif scope is _RESOURCES:
                self._renew_by_amounts(column, state, pod, rows)
            elif changed := node_rows if scope is _NODE else rows:
                self._fill(column, state, pod, np.array(changed, np.intp))
        if touched:
            self._combine_some(touched)
        return marks

    def _renew_by_plugin(
        self, column: _Column, state: CycleState, pod: PodInfo, node_rows: list[int]
    ) -> tuple[object, list[int]]:
        """Apply the changes that the plugin reports, and re-evaluate changed nodes.

        Returns the new mark, and a few rows that remain to be combined.
        """
        mark, changed = self._plugin_changes(column, state, pod)
        few: list[int] = []
        if changed is None:
            self._fill(column, state, pod, None)
            self._combine_all()
            return mark, few
        if isinstance(changed, ChangedVerdicts):
            for rows, status in changed.pieces:
                few += self._put(column, rows, status)
            changed = NO_ROWS
        if node_rows:
            changed = np.union1d(changed, node_rows)
        if len(changed):
            self._fill(column, state, pod, changed)
            if len(changed) <= FEW_ROWS:
                few += changed.tolist()
            else:
                self._combine_some(changed)
        return mark, few

    def _plugin_changes(
        self, column: _Column, state: CycleState, pod: PodInfo
    ) -> tuple[object, ChangedVerdicts | Rows | None]:
        hook = column.entries[0].changes
        if hook is None:
            return None, None
        answer = hook.call(state, pod, column.mark)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise hook.contract_violation(answer, "a mark and rows")
        changed = answer[1]
        if isinstance(changed, ChangedVerdicts):
            pieces: object = changed.pieces
            if not isinstance(pieces, _PIECES):
                raise hook.contract_violation(pieces, "pieces")
            for piece in pieces:
                if not (isinstance(piece, tuple) and len(piece) == 2 and self._are_rows(piece[0])):
                    raise hook.contract_violation(
                        piece, f"rows of {self._count} nodes and a status"
                    )
        elif changed is not None and not self._are_rows(changed):
            raise hook.contract_violation(changed, f"rows of {self._count} nodes")
        return answer

    def _are_rows(self, rows: object) -> bool:
        # Signed: numpy promotes unsigned with signed rows to floats.
        if type(rows) is not np.ndarray or rows.ndim != 1 or rows.dtype.kind != "i":
            return False
        if len(rows) <= FEW_ROWS:
            few = rows.tolist()
            return not few or (min(few) >= 0 and max(few) < self._count)
        return bool(rows.min() >= 0 and rows.max() < self._count)

    def _decides_alone(self, column: _Column) -> bool:
        """Whether no other column has ever rejected a row."""
        return not any(one.has_rejected for one in self._columns if one is not column)

    def _put(self, column: _Column, rows: Rows, status: Status) -> list[int]:
        """Store a verdict and return the rows that remain to be combined, a few or none."""
        try:
            number = column.numbers.get(status)
        except TypeError:
            # Not hashable, so not a status; reported below.
            number = None
        if number is None:
            entry = column.entries[0]
            number = self.book.number_of(entry.hook, entry.position, status)
            column.numbers[status] = number
        if number:
            column.has_rejected = True
        if len(rows) <= FEW_ROWS:
            few: list[int] = rows.tolist()
            for row in few:
                column.codes[row] = number
            return few
        column.codes[rows] = number
        if not self._decides_alone(column):
            self._combine_some(rows)
            return []
        before = self._codes[rows]
        self._codes[rows] = number
        self.rejection = None
        flipped = rows[before == 0] if number else rows[before != 0]
        if len(flipped):
            self._record_flips(flipped)
        return []

    def _fill(self, column: _Column, state: CycleState, pod: PodInfo, rows: Rows | None) -> None:
        """Recompute one column, for some rows or (``None``) for all (RunFilterPlugins)."""
        nodes = NodeRows(self._table, rows)
        result: Codes | None = None
        for entry in column.entries:
            self._work.rows_filtered += len(nodes)
            verdicts = entry.hook.call(state, pod, nodes)
            codes = self.book.translate(entry.hook, entry.position, verdicts, len(nodes))
            if codes is not None:
                result = codes if result is None else self.book.first(result, codes)
        where: Rows | slice = slice(0, self._count) if rows is None else rows
        if result is not None:
            column.has_rejected = True
            column.codes[where] = result
        elif column.has_rejected:
            column.codes[where] = 0

    def _renew_by_amounts(
        self, column: _Column, state: CycleState, pod: PodInfo, rows: list[int]
    ) -> None:
        known, infos = self._by_amounts, self._table.infos
        target = column.codes
        new = []
        for row in rows:
            code = known.get(infos[row].amounts)
            if code is None:
                new.append(row)
            elif column.has_rejected:
                target[row] = code
        if not new:
            return
        self._fill(column, state, pod, np.array(new, np.intp))
        for row in new:
            known.put(infos[row].amounts, int(target[row]), AMOUNTS_CACHED)

    # -- combining ------------------------------------------------------------------------------

    def _combine_some(self, rows: Rows | list[int]) -> None:
        rejecting = [column.codes for column in self._columns if column.has_rejected]
        if not rejecting:
            return
        if len(rows) > FEW_ROWS:
            many = np.asarray(rows, np.intp)
            self._write_combined(many, self._first_of([codes[many] for codes in rejecting]))
            return
        flipped = []
        for row in rows:
            before, after = self._codes.item(row), 0
            for codes in rejecting:
                code = codes.item(row)
                if code and (not after or self.book.position(code) < self.book.position(after)):
                    after = code
            if before != after:
                self._codes[row] = after
                self.rejection = None
                if not before or not after:
                    flipped.append(row)
        if flipped:
            self._record_flips(flipped)

    def _combine_all(self) -> None:
        rejecting = [column for column in self._columns if column.has_rejected]
        if rejecting:
            codes = [column.codes[: self._count] for column in rejecting]
            self._write_combined(slice(0, self._count), self._first_of(codes))

    def _first_of(self, columns: list[Codes]) -> Codes:
        """Return, per row, the code at the lowest position."""
        first = columns[0]
        for codes in columns[1:]:
            first = self.book.first(first, codes)
        return first

    def _write_combined(self, where: Rows | slice, after: Codes) -> None:
        before = self._codes[where]
        differs = before != after
        if not differs.any():
            return
        self.rejection = None
        flips = (before == 0) != (after == 0)
        self._codes[where] = after
        if isinstance(where, slice):
            if flips.any():
                self._record_flips(None)
        else:
            flipped = where[flips]
            if len(flipped):
                self._record_flips(flipped)

"""Verdicts on nodes that other pods are nominated to: with these pods on them, and without.

With them, because they will use the node's resources; without, because they may not come. Where
amounts alone decide, the verdicts are cached and caught up from two logs: what changed on nodes,
and to which nodes pods were nominated. An attempt then costs what changed since the last one, not
one dry run for every nominated pod.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import Cursor
from ksched.cache.dry_run_table import DryRunTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.recently_used import RecentlyUsed
from ksched.cache.snapshot import Snapshot
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.answer_cache import CachedColumns
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.dry_run_filters import DryRunFilters
from ksched.framework.runtime.filter_columns import FilterColumns, Rows
from ksched.framework.runtime.framework import Framework
from ksched.framework.status import Status
from ksched.framework.time_slices import TimeSlice
from ksched.queue.nominator import ExpectedPods, Nominations
from ksched.tuning import AMOUNTS_CACHED, NOMINATED_PRIORITIES_CACHED

Expected = Mapping[str, ExpectedPods]


class NominatedRows:
    """Filters rows of one profile with nominated pods (kube-scheduler: addGENominatedPods)."""

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        dry_run: DryRunFilters,
        now: Callable[[], float],
    ) -> None:
        self._positions = {entry.name: entry.position for entry in framework.filters}
        self._snapshot = snapshot
        self._dry_run = dry_run
        self._now = now
        self._cached: WeakKeyDictionary[CachedColumns, RecentlyUsed[int, NominatedVerdicts]]
        self._cached = WeakKeyDictionary()
        """By the columns that pods share, and by priority."""

    def cached_codes(
        self, columns: CachedColumns, state: CycleState, pod: PodInfo, nominated: Nominations
    ) -> Codes | None:
        """The codes of all rows, in the numbers of ``columns``; ``None`` if other filters than
        those of amounts have to run. Call after the columns were caught up."""
        if not self._dry_run.decides_by_amounts(state):
            return None
        by_priority = self._cached.setdefault(columns, RecentlyUsed())
        known = by_priority.get(nominated.priority)
        if known is None:
            known = NominatedVerdicts(self, self._snapshot, columns.filters, nominated)
            by_priority.put(nominated.priority, known, NOMINATED_PRIORITIES_CACHED)
        known.catch_up(state, pod, nominated)
        return known.over(columns.filters.codes, state, pod, nominated)

    async def check(
        self,
        state: CycleState,
        pod: PodInfo,
        nominated: Expected,
        codes: Codes,
        book: CodeBook,
    ) -> None:
        """Write the verdicts on the nodes named in ``nominated`` into ``codes``."""
        positions, infos = self._snapshot.table.rows, self._snapshot.table.infos
        rows = np.array([positions[name] for name in nominated if name in positions], np.intp)
        if not len(rows):
            return
        codes[rows], is_complete = self.judge(state, pod, rows, nominated, book)
        if is_complete:
            return
        turn = TimeSlice(self._now)
        for row in rows[codes[rows] == 0].tolist():
            expected = nominated.get(infos[row].name)
            pods = () if expected is None else expected.pods
            status = self._dry_run.filter_with_nominated(state, pod, infos[row], pods)
            codes[row] = 0 if status.is_success else self._number(book, status)
            if turn.is_over:
                await turn.give_way()

    def judge(
        self, state: CycleState, pod: PodInfo, rows: Rows, nominated: Expected, book: CodeBook
    ) -> tuple[Codes, bool]:
        """The verdicts as far as amounts decide, and whether they decide alone."""
        excerpt = DryRunTable(self._snapshot.table, rows)
        filters = self._dry_run.resource_filters(state, pod, excerpt, nominated)
        verdicts = filters.judge()
        numbers = np.zeros(int(verdicts.max()) + 1, np.int32)
        for verdict in set(verdicts.tolist()) - {0}:
            numbers[verdict] = self._number(book, filters.status(verdict))
        return numbers[verdicts], filters.is_complete

    def _number(self, book: CodeBook, status: Status) -> int:
        return book.number(self._positions.get(status.plugin, 0), status)


class NominatedVerdicts:
    """Cached verdicts for pods of one priority that share columns, where amounts decide alone."""

    def __init__(
        self,
        filters: NominatedRows,
        snapshot: Snapshot,
        columns: FilterColumns,
        nominated: Nominations,
    ) -> None:
        self._filters = filters
        self._table = snapshot.table
        self._columns = columns
        self._book = columns.book
        self._by_amounts: RecentlyUsed[Hashable, int] = RecentlyUsed()
        """Codes by the amounts on a node and those of the nominated pods."""
        self._rows: Cursor[int] = self._table.row_log.cursor()
        self._names: Cursor[str] = nominated.log.cursor()
        self._skipped: frozenset[str] | None = None
        self._codes: Codes = np.zeros(0, np.int32)
        self._is_nominated: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def catch_up(self, state: CycleState, pod: PodInfo, nominated: Nominations) -> None:
        """Judge the rows again that changed since the last attempt of such a pod."""
        table, count = self._table, len(self._table)
        skipped = frozenset(state.skip_filter)
        if skipped != self._skipped:
            self._rows.start_over()
            self._by_amounts.clear()
        rows, names = self._rows.changes(), self._names.changes()
        if rows is None or names is None:
            self._codes = np.zeros(count, np.int32)
            self._is_nominated = np.zeros(count, np.bool_)
            changed = {table.rows[name] for name in nominated.others if name in table.rows}
        else:
            self._resize(count)
            changed = {row for row in rows if row < count}
            changed.update(table.rows[name] for name in names if name in table.rows)
        occupied = [row for row in changed if table.infos[row].name in nominated.others]
        self._is_nominated[[*changed.difference(occupied)]] = False
        if unknown := self._recall(occupied, nominated):
            where = np.array(unknown, np.intp)
            self._codes[where], _ = self._filters.judge(
                state, pod, where, nominated.others, self._book
            )
            self._remember(unknown, nominated)
        self._is_nominated[occupied] = True
        # Only now: after an exception of a plugin the next attempt must read the same rows.
        self._skipped = skipped
        self._rows.advance()
        self._names.advance()

    def _recall(self, rows: list[int], nominated: Nominations) -> list[int]:
        """Take over codes from nodes with equal amounts; returns the rows that are left."""
        if not self._columns.rejects_by_amounts_alone:
            return rows
        unknown = []
        for row in rows:
            code = self._by_amounts.get(self._amounts(row, nominated))
            if code is None:
                unknown.append(row)
            else:
                self._codes[row] = code
        return unknown

    def _remember(self, rows: list[int], nominated: Nominations) -> None:
        if self._columns.rejects_by_amounts_alone:
            for row in rows:
                code = int(self._codes[row])
                self._by_amounts.put(self._amounts(row, nominated), code, AMOUNTS_CACHED)

    def _amounts(self, row: int, nominated: Nominations) -> Hashable:
        info = self._table.infos[row]
        return info.amounts, nominated.others[info.name].key

    def over(self, codes: Codes, state: CycleState, pod: PodInfo, nominated: Nominations) -> Codes:
        """The codes of all rows: those given, and the own ones of rows with nominated pods."""
        result: Codes = np.where(self._is_nominated, self._codes, codes)
        own = self._table.rows.get(nominated.own_node)
        if own is not None:
            # There the cached verdict expects the pod itself.
            result[own] = codes[own]
            if nominated.get(nominated.own_node) is not None:
                where = np.array([own], np.intp)
                result[own] = self._filters.judge(state, pod, where, nominated, self._book)[0][0]
        return result

    def _resize(self, count: int) -> None:
        if count == len(self._codes):
            return
        kept = min(count, len(self._codes))
        codes, is_nominated = self._codes, self._is_nominated
        self._codes, self._is_nominated = np.zeros(count, np.int32), np.zeros(count, np.bool_)
        self._codes[:kept], self._is_nominated[:kept] = codes[:kept], is_nominated[:kept]

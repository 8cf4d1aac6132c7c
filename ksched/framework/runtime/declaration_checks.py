"""Compares cached results with recomputed ones: detects plugins with false declarations.

A debug mode selected when a scheduler is built: its profiles have a ``CheckedPipeline``, whose
columns call every plugin again, in every attempt, for rows that are already cached. A scheduler
without it runs none of this code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn

import numpy as np

from ksched.cache.node_info import Amounts
from ksched.cache.node_table import NodeRows, NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import FilterDependsOn, ScoreDependsOn
from ksched.framework.diagnosis import NodeStatuses
from ksched.framework.runtime.answer_cache import AnswerCache
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.filter_columns import (
    FilterColumns,
    FilterEntry,
    Rows,
    Work,
)
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.node_search import EVERYWHERE, Feasibility, Search
from ksched.framework.runtime.pipeline import Pipeline
from ksched.framework.runtime.profile_metrics import ProfileMetrics
from ksched.framework.runtime.score_columns import ScoreColumns, ScoreEntry, Scores
from ksched.framework.status import SUCCESS, Code, Status

ROWS_PER_CHECK: Final = 256
"""Larger clusters are checked in rotation: each attempt checks every k-th row, the next attempt the
rows after these."""

MAX_REMEMBERED: Final = 4096
"""How many scores by plugin and amounts are remembered, to name the plugin of a wrong sum."""


class FalseDeclaration(PluginFailure):
    """A plugin's declared dependencies are incomplete: a cached result is wrong."""

    def __init__(
        self,
        plugin: str,
        declared: FilterDependsOn | ScoreDependsOn,
        *,
        untrue: str,
        method: str,
        node: str,
        pod: str,
        cached: Status | int,
        recomputed: Status | int,
    ) -> None:
        self.plugin, self.method, self.node, self.pod = plugin, method, node, pod
        self.cached, self.recomputed, self.untrue = cached, recomputed, untrue
        self.declared = declared
        text = (
            f'plugin "{plugin}": {untrue} is not true in {described(declared)}: '
            f'{method} about node "{node}" and pod "{pod}": '
            f"cached {_shown(cached)}, recomputed {_shown(recomputed)}"
        )
        super().__init__(Status(Code.ERROR, (text,), plugin))


class DeclarationChecks:
    """The findings of one scheduler; an attempt with a finding fails as well."""

    def __init__(self) -> None:
        self.found: list[FalseDeclaration] = []

    def make_pipeline(
        self,
        framework: Framework,
        snapshot: Snapshot,
        now: Callable[[], float],
        metrics: ProfileMetrics,
    ) -> Pipeline:
        """The factory to pass to a scheduler instead of ``Pipeline``."""
        return CheckedPipeline(framework, snapshot, now, metrics, checks=self)

    def fail(self, problem: FalseDeclaration) -> NoReturn:
        self.found.append(problem)
        raise problem


def rows_to_check(count: int, turn: int) -> Rows:
    """Return the rows that one of several successive attempts checks."""
    stride = -(-count // ROWS_PER_CHECK) or 1
    return np.arange(turn % stride, count, stride)


class CheckedFilterColumns(FilterColumns):
    """Cached verdicts that are compared with recomputed ones after every update."""

    def __init__(
        self,
        checks: DeclarationChecks,
        entries: Sequence[FilterEntry],
        table: NodeTable,
        work: Work,
        seed: FilterColumns | None = None,
    ) -> None:
        super().__init__(entries, table, work, seed)
        self._checks = checks
        self._turn = 0
        self._true_for: tuple[CycleState, PodInfo] | None = None
        """The last attempt for which all verdicts were right."""
        if isinstance(seed, CheckedFilterColumns):
            self._true_for = seed._true_for

    def catch_up(self, state: CycleState, pod: PodInfo) -> None:
        super().catch_up(state, pod)
        self._turn += 1
        rows = rows_to_check(self._count, self._turn)
        nodes = NodeRows(self._table, rows)
        book = self.book.fork()
        for column in self._columns:
            by_entry = {entry: _codes(entry, state, pod, nodes, book) for entry in column.entries}
            fresh: Codes = np.zeros(len(rows), np.int32)
            for codes in by_entry.values():
                fresh = book.first(fresh, codes)
            cached = column.codes[rows]
            for at in np.flatnonzero(cached != fresh)[:1].tolist():
                statuses = {
                    entry: _status(book, int(codes[at])) for entry, codes in by_entry.items()
                }
                before = _status(book, int(cached[at]))
                entry = _owner(statuses, before, _status(book, int(fresh[at])))
                if before.plugin != entry.name:
                    # Another plugin's rejection was only cached because this one passed.
                    before = SUCCESS
                self._fail(entry, rows[at : at + 1], pod, before, statuses[entry])
        self._true_for = (state, pod)

    def _fail(
        self, entry: FilterEntry, row: Rows, pod: PodInfo, before: Status, after: Status
    ) -> NoReturn:
        nodes = NodeRows(self._table, row)

        def holds(state: CycleState, pod: PodInfo) -> bool:
            book = CodeBook()
            return _status(book, int(_codes(entry, state, pod, nodes, book)[0])) == before

        untrue = _untrue(entry.depends_on, self._true_for, pod, holds)
        (name,) = nodes.names
        self._checks.fail(
            FalseDeclaration(
                entry.name,
                entry.depends_on,
                untrue=untrue,
                method="filter_nodes",
                node=name,
                pod=pod.key,
                cached=before,
                recomputed=after,
            )
        )


class CheckedScoreColumns(ScoreColumns):
    """Cached scores that are compared with recomputed ones after every update."""

    def __init__(
        self,
        checks: DeclarationChecks,
        entries: list[ScoreEntry],
        snapshot: Snapshot,
        filters: FilterColumns,
        work: Work,
        seed: ScoreColumns | None = None,
    ) -> None:
        super().__init__(entries, snapshot, filters, work, seed)
        self._checks = checks
        self._turn = 0
        self._true_for: tuple[CycleState, PodInfo] | None = None
        self._by_entry: dict[tuple[str, Amounts], int] = {}
        """Scores of a node with these amounts, by plugin of those cached as one sum."""
        if isinstance(seed, CheckedScoreColumns):
            self._true_for, self._by_entry = seed._true_for, dict(seed._by_entry)

    def catch_up(self, state: CycleState, pod: PodInfo) -> None:
        super().catch_up(state, pod)
        self._turn += 1
        rows = rows_to_check(self._count, self._turn)
        nodes = NodeRows(self._snapshot.table, rows)
        for entry in self._active:
            if not entry.is_sum_of_amounts:
                cached, fresh = self._raw[entry.name][rows], entry.raw_scores(state, pod, nodes)
                for at in np.flatnonzero(cached != fresh)[:1].tolist():
                    self._fail(entry, nodes, at, state, pod, int(cached[at]), int(fresh[at]))
        self._check_sums(nodes, rows, state, pod)
        self._true_for = (state, pod)

    def _check_sums(self, nodes: NodeRows, rows: Rows, state: CycleState, pod: PodInfo) -> None:
        scores = {entry: entry.raw_scores(state, pod, nodes) for entry in self._by_resources}
        total: Scores = np.zeros(len(rows), np.int64)
        for entry, fresh in scores.items():
            total += fresh * entry.weight
        wrong = np.flatnonzero(np.array(self._resource_sums, np.int64)[rows] != total)
        infos = nodes.infos
        for at in wrong[:1].tolist():
            amounts = infos[at].amounts
            for entry, fresh in scores.items():
                before = self._by_entry.get((entry.name, amounts))
                if before is not None and before != fresh[at]:
                    self._fail(entry, nodes, at, state, pod, before, int(fresh[at]))
            # No longer known which of them it was.
            entry = self._by_resources[0]
            self._fail(entry, nodes, at, state, pod, self._resource_sums[rows[at]], int(total[at]))
        for entry, fresh in scores.items():
            for info, score in zip(infos, fresh.tolist(), strict=True):
                self._by_entry[entry.name, info.amounts] = score
        while len(self._by_entry) > MAX_REMEMBERED:
            del self._by_entry[next(iter(self._by_entry))]

    def totals_of_all(self, state: CycleState, pod: PodInfo) -> Scores:
        total = super().totals_of_all(state, pod)
        feasible = self._filters.feasible
        nodes = NodeRows(self._snapshot.table, feasible)
        normalizing = [entry for entry in self._active if entry.normalize is not None]
        fresh: Scores = np.zeros(len(feasible), np.int64)
        for entry in normalizing if len(feasible) else ():
            fresh += entry.finish(state, pod, nodes, self._raw[entry.name][feasible])
        cached = self._normalized[feasible]
        for at in np.flatnonzero(cached != fresh)[:1].tolist():
            self._checks.fail(
                FalseDeclaration(
                    normalizing[-1].name,
                    normalizing[-1].depends_on,
                    untrue="that normalize reads nothing but the scores",
                    method="normalize",
                    node=nodes.names[at],
                    pod=pod.key,
                    cached=int(cached[at]),
                    recomputed=int(fresh[at]),
                )
            )
        return total

    def _fail(
        self,
        entry: ScoreEntry,
        nodes: NodeRows,
        at: int,
        state: CycleState,
        pod: PodInfo,
        before: int,
        after: int,
    ) -> NoReturn:
        name = nodes.names[at]
        one = nodes.table.some(np.array([nodes.table.rows[name]], np.intp))

        def holds(state: CycleState, pod: PodInfo) -> bool:
            return int(entry.raw_scores(state, pod, one)[0]) == before

        untrue = _untrue(entry.depends_on, self._true_for, pod, holds)
        self._checks.fail(
            FalseDeclaration(
                entry.name,
                entry.depends_on,
                untrue=untrue,
                method="score_nodes",
                node=name,
                pod=pod.key,
                cached=before,
                recomputed=after,
            )
        )


class CheckedPipeline(Pipeline):
    """A pipeline that verifies every declaration."""

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        now: Callable[[], float],
        metrics: ProfileMetrics,
        *,
        checks: DeclarationChecks,
    ) -> None:
        super().__init__(framework, snapshot, now, metrics)
        self._checks = checks
        self._answer_cache = AnswerCache(
            framework,
            snapshot,
            self.work,
            partial(CheckedFilterColumns, checks),
            partial(CheckedScoreColumns, checks),
        )

    async def find_nodes_that_fit(
        self, state: CycleState, pod: PodInfo, search: Search = EVERYWHERE
    ) -> Feasibility:
        fit = await super().find_nodes_that_fit(state, pod, search)
        if fit.diagnosis is None or search.only is not None or search.nominated:
            return fit
        statuses, uncached = fit.diagnosis.node_statuses, self._uncached_filters(state)
        if statuses is not None and uncached and all(entry.epoch is not None for entry in uncached):
            self._check_epochs(uncached, statuses, state, pod)
        return fit

    def _check_epochs(
        self, uncached: list[FilterEntry], cached: NodeStatuses, state: CycleState, pod: PodInfo
    ) -> None:
        """Compare a rejection, possibly cached from an earlier attempt, with fresh verdicts."""
        table = self.snapshot.table
        filters = self._answer_cache.columns(state, pod).filters
        codes, book = filters.codes.copy(), filters.book.fork()
        for entry in uncached:
            rows = np.flatnonzero(book.positions(codes) > entry.position)
            fresh = _codes(entry, state, pod, NodeRows(table, rows), book)
            codes[rows[fresh != 0]] = fresh[fresh != 0]
        by_name = {entry.name: entry for entry in uncached}
        for row, name in enumerate(table.all().names):
            before, after = cached.get(name), _status(book, int(codes[row]))
            blamed = by_name.get(before.plugin) or by_name.get(after.plugin)
            if before != after and blamed is not None:
                self._checks.fail(
                    FalseDeclaration(
                        blamed.name,
                        blamed.depends_on,
                        untrue="epoch",
                        method="filter_nodes",
                        node=name,
                        pod=pod.key,
                        cached=before,
                        recomputed=after,
                    )
                )


# -- attribution to plugin and declaration ------------------------------------------------------


def _codes(
    entry: FilterEntry, state: CycleState, pod: PodInfo, nodes: NodeRows, book: CodeBook
) -> Codes:
    """Recompute the verdicts of one plugin."""
    verdicts = entry.hook.call(state, pod, nodes)
    codes = book.translate(entry.hook, entry.position, verdicts, len(nodes))
    return np.zeros(len(nodes), np.int32) if codes is None else codes


def _status(book: CodeBook, code: int) -> Status:
    return book.status(code) if code else SUCCESS


def _owner(fresh: dict[FilterEntry, Status], before: Status, after: Status) -> FilterEntry:
    """Find whose verdict changed, of plugins of which only the first rejection is cached."""
    for entry, status in fresh.items():
        if entry.name == before.plugin and status != before:
            return entry
    # The owner of the cached rejection still rejects: an earlier plugin rejects now.
    return next(entry for entry in fresh if entry.name == after.plugin)


def _untrue(
    declared: FilterDependsOn | ScoreDependsOn,
    true_for: tuple[CycleState, PodInfo] | None,
    pod: PodInfo,
    holds: Callable[[CycleState, PodInfo], bool],
) -> str:
    """Name the part of a declaration that a wrong result contradicts.

    ``true_for`` is the last attempt for which the cached result was right; ``holds`` is whether it
    still is for that pod.
    """
    group = declared.group if isinstance(declared, FilterDependsOn) else None
    changes = declared.changes if isinstance(declared, FilterDependsOn) else None
    if true_for is not None and true_for[1].template is not pod.template and holds(*true_for):
        if not declared.reads_claim_names and _other_claims_alone(true_for[1], pod):
            return "reads_claim_names=False"
        return "reads_inter_pod_fields=False" if group is None else "group"
    if changes is not None:
        return "changes"
    scope = f"scope={declared.scope}"
    return scope if declared.epoch is None else f"{scope} with this epoch"


def _other_claims_alone(one: PodInfo, other: PodInfo) -> bool:
    return one.labels == other.labels and one.template.signature is not other.template.signature


def described(declared: FilterDependsOn | ScoreDependsOn) -> str:
    """Format a declaration as source code, without defaults."""
    default = type(declared)()
    parts = [
        f"{field}={getattr(value, '__qualname__', value)}"
        for field in declared.__struct_fields__
        if (value := getattr(declared, field)) != getattr(default, field)
    ]
    return f"{type(declared).__name__}({', '.join(parts)})"


def _shown(answer: Status | int) -> str:
    if not isinstance(answer, Status):
        return str(answer)
    return f'"{answer.code.value}: {answer.message}"' if answer.message else answer.code.value

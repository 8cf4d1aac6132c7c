"""PreFilter, Filter, PreScore and Score of one profile: from a pod and a snapshot to scored nodes.

Columnar plugins evaluate all nodes at once and most results are cached between cycles (see
``answer_cache``, ``filter_columns``, ``score_columns``). Only async PreFilters, calls that return a
coroutine because their work exceeds a time slice, and per-node plugins over many nodes yield to the
event loop in between; the snapshot does not change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from types import CoroutineType

import numpy as np

from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.configuration.extension_points import PRE_SCORE, SCORE
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis, NodeStatuses, diagnose
from ksched.framework.interface import PreFilterResult
from ksched.framework.runtime.answer_cache import AnswerCache, CachedColumns
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.dry_run_filters import DryRunFilters, disallowed
from ksched.framework.runtime.filter_columns import NO_ROWS, FilterEntry, Rows, Work
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.runtime.node_search import EVERYWHERE, Feasibility, Search, nowhere
from ksched.framework.runtime.nominated_rows import NominatedRows
from ksched.framework.runtime.profile_metrics import ProfileMetrics
from ksched.framework.runtime.score_columns import MAX_RAW_SCORE, ScoreEntry, Scores
from ksched.framework.status import (
    PASS_TEMPLATE,
    SKIP,
    SKIP_TEMPLATE,
    SUCCESS,
    Code,
    Status,
    unresolvable,
)
from ksched.framework.time_slices import TimeSlice
from ksched.framework.verdicts import Verdicts
from ksched.queue.nominator import ExpectedPods, Nominations


class Pipeline:
    """Runs one profile's plugins over the snapshot."""

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        now: Callable[[], float],
        metrics: ProfileMetrics,
    ) -> None:
        self.framework = framework
        self.metrics = metrics
        self.snapshot = snapshot
        self.work = Work()
        self.dry_run = DryRunFilters(framework, snapshot, self.work)
        self._nominated = NominatedRows(framework, snapshot, self.dry_run, now)
        self._now = now
        self._answer_cache = AnswerCache(framework, snapshot, self.work)
        uncached = [entry for entry in framework.filters if not entry.is_cached]
        self._uncached = sorted(uncached, key=lambda entry: not entry.is_columnar)
        self._uncached_names = frozenset(entry.name for entry in uncached)
        self._uncached_score_entries = [entry for entry in framework.scores if not entry.is_cached]
        self._uncached_score_names = frozenset(entry.name for entry in self._uncached_score_entries)

    def fact_keys(self) -> list[object]:
        """Under which keys templates keep facts for this pipeline (``PodTemplate.facts``)."""
        return [self._answer_cache]

    def sweep(self) -> None:
        """Drop cached state that is no longer used; never during a cycle."""
        self._answer_cache.sweep()
        for sweep in self.framework.sweeps:
            try:
                sweep.call()
            except PluginFailure:
                # Logged by the hook. No pod is affected.
                continue

    # -- pre_filter -----------------------------------------------------------------------------

    async def run_pre_filter(
        self, state: CycleState, pod: PodInfo
    ) -> tuple[Status, frozenset[str] | None, list[str]]:
        """Return the status, the candidate nodes (``None``: all) and the plugins that named them.

        kube-scheduler: RunPreFilterPlugins.
        """
        rejected: Status | None = None
        nodes: frozenset[str] | None = None
        narrowing: list[str] = []
        active_plugins = self._answer_cache.active_plugins(pod)
        state.skip_filter |= active_plugins.skip_filter
        is_large = pod.template.is_large
        for hook in list(active_plugins.pre_filter):
            if is_large:
                await asyncio.sleep(0)
            result = hook.call(state, pod, self.snapshot)
            if result is SUCCESS:
                continue
            if result is SKIP:
                state.skip_filter.add(hook.plugin)
                continue
            if hook.is_async or isinstance(result, CoroutineType):
                # Usually synchronous, the work of an in-tree plugin may exceed a time slice.
                result = await hook.finish(result)
            if result is PASS_TEMPLATE or result is SKIP_TEMPLATE:
                active_plugins.pre_filter.remove(hook)
                if result is SKIP_TEMPLATE:
                    active_plugins.skip_filter.add(hook.plugin)
                    state.skip_filter.add(hook.plugin)
                continue
            if isinstance(result, PreFilterResult):
                if result.node_names is not None:
                    narrowing.append(hook.plugin)
                    names = _names(hook, result.node_names)
                    nodes = names if nodes is None else nodes & names
                result = result.status
            status = hook.status(result)
            if status.is_skip:
                state.skip_filter.add(hook.plugin)
            elif status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return self.framework.stopped_by(hook, state, status), None, []
            elif status.is_rejected:
                rejected = status
            elif not status.is_success:
                raise disallowed(hook, status)
            if nodes is not None and not nodes:
                return self.framework.stopped_by(hook, state, _conflict(narrowing)), None, narrowing
        return SUCCESS if rejected is None else rejected, nodes, narrowing

    # -- filter ---------------------------------------------------------------------------------

    async def find_nodes_that_fit(
        self, state: CycleState, pod: PodInfo, search: Search = EVERYWHERE
    ) -> Feasibility:
        """Run the filters over the snapshot.

        kube-scheduler: findNodesThatPassFilters, RunFilterPlugins.
        """
        self.work.cycles += 1
        if search.only is not None:
            return await self._fit_directly(state, pod, search, search.only)
        columns = self._answer_cache.columns(state, pod)
        filters = columns.filters
        if pod.template.is_large:
            await asyncio.sleep(0)
        filters.catch_up(state, pod)
        if pod.template.is_large:
            await asyncio.sleep(0)
        uncached = self._uncached_filters(state)
        epochs = self._epochs(uncached, state, pod, search)
        known = None if epochs is None else filters.rejection
        if epochs is not None and known and _are_same(uncached, filters.rejection_epochs, epochs):
            return nowhere(filters.codes, filters.book, known)
        if search.limit is not None:
            fit = await self._fit_some(columns, uncached, state, pod, search, search.limit)
        elif uncached or search.nominated:
            fit = await self._fit_now(columns, uncached, state, pod, search)
        else:
            codes = filters.codes
            fit = Feasibility(filters.feasible, len(codes), codes, filters.book, columns, True)
        if len(fit.rows):
            return fit
        if pod.template.is_large:
            await asyncio.sleep(0)
        diagnosis = diagnose(NodeStatuses(self.snapshot.table, fit.codes, fit.book.statuses))
        if epochs is not None:
            filters.rejection, filters.rejection_epochs = diagnosis, epochs
        return nowhere(fit.codes, fit.book, diagnosis)

    def fit_by_cache(
        self, state: CycleState, pod: PodInfo, row: int, nominated: Nominations | None
    ) -> Feasibility | None:
        """Whether a pod fits one node; ``None`` if cached verdicts do not decide that alone."""
        is_crowded = nominated is not None and nominated.on(self.snapshot.table.infos[row].name)
        if is_crowded or pod.template.is_large or self._uncached_filters(state):
            return None
        columns = self._answer_cache.known_columns(state, pod)
        if columns is None:
            return None
        self.work.cycles += 1
        filters = columns.filters
        filters.catch_up(state, pod)
        rows = NO_ROWS if filters.codes.item(row) else np.array([row], np.intp)
        return Feasibility(rows, 1, filters.codes, filters.book)

    def rejects_by_amounts_alone(self, state: CycleState, pod: PodInfo) -> bool:
        """Whether amounts alone decide about a pod, and no other filter rejects any node for it.

        Known only if all nodes were judged in this attempt.
        """
        if not self.dry_run.decides_by_amounts(state):
            return False
        columns = self._answer_cache.known_columns(state, pod)
        if columns is None or not columns.filters.is_current(state):
            return False
        return columns.filters.rejects_by_amounts_alone

    def holds_for_template(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis) -> bool:
        """Whether a pod's rejection is that of every pod of its template without a nomination."""
        return (
            not diagnosis.pre_filter_message
            and not diagnosis.pending_plugins
            and self._answer_cache.are_per_template(state, pod, diagnosis.unschedulable_plugins)
        )

    def _uncached_filters(self, state: CycleState) -> list[FilterEntry]:
        """Filters without cached verdicts; per-node ones last, when fewest nodes are left."""
        skipped = state.skip_filter
        if self._uncached_names <= skipped:
            return []
        return [entry for entry in self._uncached if entry.name not in skipped]

    def _epochs(
        self, uncached: list[FilterEntry], state: CycleState, pod: PodInfo, search: Search
    ) -> tuple[object, ...] | None:
        """What a cached rejection depends on besides cached verdicts; ``None`` if uncacheable."""
        if not uncached:
            return None if search.nominated else ()
        if search.nominated or any(entry.epoch is None for entry in uncached):
            return None
        # Cached columns are shared by templates which these plugins may well distinguish.
        epochs = [entry.epoch.call(state, pod) for entry in uncached if entry.epoch]
        return (pod.template, *epochs)

    async def _fit_now(
        self,
        columns: CachedColumns,
        uncached: list[FilterEntry],
        state: CycleState,
        pod: PodInfo,
        search: Search,
    ) -> Feasibility:
        """Complete the cached verdicts with the filters that run in every cycle."""
        nominated = search.nominated
        if nominated and not uncached:
            merged = self._nominated.cached_codes(columns, state, pod, nominated)
            if merged is not None:
                book = columns.filters.book
                return Feasibility(np.flatnonzero(merged == 0), len(merged), merged, book, columns)
        filters, is_changed = columns.filters, bool(nominated)
        codes, book = filters.codes.copy(), filters.book.fork()
        for entry in uncached:
            rows = np.flatnonzero(book.positions(codes) > entry.position)
            if await self._reject(entry, state, pod, rows, codes, book):
                is_changed = True
        if not is_changed:
            return Feasibility(filters.feasible, len(codes), codes, book, columns, True)
        if nominated:
            await self._nominated.check(state, pod, nominated, codes, book)
        return Feasibility(np.flatnonzero(codes == 0), len(codes), codes, book, columns)

    async def _fit_some(
        self,
        columns: CachedColumns,
        uncached: list[FilterEntry],
        state: CycleState,
        pod: PodInfo,
        search: Search,
        limit: int,
    ) -> Feasibility:
        """Stop at ``limit`` feasible nodes, visiting rows from ``search.start`` in zone order.

        Per-node filters see no node beyond the last one found. A chunk is never longer than the
        number still missing, so the search ends exactly at the node that completes it.
        """
        codes, book = columns.filters.codes.copy(), columns.filters.book.fork()
        for entry in uncached:
            if entry.is_columnar:
                rows = np.flatnonzero(book.positions(codes) > entry.position)
                await self._reject(entry, state, pod, rows, codes, book)
        order = np.roll(self.snapshot.order, -search.start)
        pieces: list[Rows] = []
        found = visited = 0
        while found < limit and visited < len(order):
            piece = order[visited : visited + limit - found]
            visited += len(piece)
            for entry in uncached:
                if not entry.is_columnar:
                    rows = piece[book.positions(codes[piece]) > entry.position]
                    await self._reject(entry, state, pod, rows, codes, book)
            nominated = self._nominated_among(piece, search)
            await self._nominated.check(state, pod, nominated, codes, book)
            pieces.append(piece[codes[piece] == 0])
            found += len(pieces[-1])
        return Feasibility(np.concatenate(pieces), visited, codes, book, columns)

    async def _fit_directly(
        self, state: CycleState, pod: PodInfo, search: Search, only: Rows
    ) -> Feasibility:
        """Run every filter on a few rows; not cached, since no equal pod may follow."""
        book = CodeBook()
        codes = np.full(len(self.snapshot.table), book.number(0, search.status_of_others), np.int32)
        codes[only] = 0
        for entry in self.framework.filters:
            if entry.name not in state.skip_filter:
                await self._reject(entry, state, pod, only[codes[only] == 0], codes, book)
        nominated = self._nominated_among(only, search)
        await self._nominated.check(state, pod, nominated, codes, book)
        rows = only[codes[only] == 0]
        if not len(rows):
            statuses = NodeStatuses(self.snapshot.table, codes, book.statuses)
            return nowhere(codes, book, diagnose(statuses))
        return Feasibility(rows, len(only), codes, book)

    async def _reject(
        self,
        entry: FilterEntry,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        codes: Codes,
        book: CodeBook,
    ) -> bool:
        """Run one filter on some rows and write its rejections into ``codes``; True if any."""
        if not len(rows):
            return False
        # Columnar filters are given ascending rows.
        is_whole = entry.is_columnar and len(rows) == len(self.snapshot.table)
        nodes = NodeRows(self.snapshot.table, None if is_whole else rows)
        self.work.rows_filtered += len(nodes)
        if entry.is_columnar:
            verdicts = entry.hook.call(state, pod, nodes)
        else:
            verdicts = await self._filter_one_by_one(entry, state, pod, nodes)
        rejected = book.translate(entry.hook, entry.position, verdicts, len(nodes))
        if rejected is None:
            return False
        hit = rejected != 0
        codes[rows[hit]] = rejected[hit]
        return True

    async def _filter_one_by_one(
        self, entry: FilterEntry, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> Verdicts:
        statuses = []
        turn = TimeSlice(self._now)
        for info in nodes.infos:
            statuses.append(entry.hook.status(entry.hook.call(state, pod, info)))
            if turn.is_over:
                await turn.give_way()
        return Verdicts.of(statuses)

    def _nominated_among(self, rows: Rows, search: Search) -> dict[str, ExpectedPods]:
        if not search.nominated:
            return {}
        names = [self.snapshot.table.infos[row].name for row in rows.tolist()]
        found = ((name, search.nominated.on(name)) for name in names)
        return {name: expected for name, expected in found if expected is not None}

    # -- score ----------------------------------------------------------------------------------

    async def prioritize_nodes(
        self, state: CycleState, pod: PodInfo, fit: Feasibility
    ) -> tuple[Rows | None, Scores]:
        """Score the feasible nodes: rows and totals; ``None`` for all rows, -1 if infeasible.

        kube-scheduler: prioritizeNodes.
        """
        nodes = NodeRows(self.snapshot.table, fit.rows)
        self.metrics.begin(PRE_SCORE)
        await self._run_pre_score(state, pod, nodes)
        self.metrics.end()
        self.metrics.begin(SCORE)
        scored = await self._total_scores(state, pod, fit, nodes)
        self.metrics.end()
        return scored

    async def _total_scores(
        self, state: CycleState, pod: PodInfo, fit: Feasibility, nodes: NodeRows
    ) -> tuple[Rows | None, Scores]:
        """kube-scheduler: RunScorePlugins."""
        cached = None if fit.columns is None else fit.columns.scores
        if cached is not None:
            cached.catch_up(state, pod)
        rated: Scores | int = 0
        for entry in self._uncached_scores(state, fit):
            if entry.is_columnar:
                self.work.rows_scored += len(nodes)
                more = entry.rate(state, pod, nodes)
            else:
                more = await self._score_one_by_one(entry, state, pod, nodes)
            # A sum with 0 would be one more pass over all nodes.
            rated = more if isinstance(rated, int) and not rated else rated + more
        if cached is None:
            return fit.rows, np.zeros(len(nodes), np.int64) + rated
        if not fit.is_cached:
            return fit.rows, cached.totals_among(state, pod, fit.rows) + rated
        totals = cached.totals_of_all(state, pod)
        if isinstance(rated, int) and not rated:
            return None, totals
        if len(fit.rows) < len(totals):
            totals = totals.take(fit.rows)
        return fit.rows, totals + rated

    async def scores_by_plugin(
        self, state: CycleState, pod: PodInfo, fit: Feasibility
    ) -> dict[str, Scores]:
        """Return weighted scores by plugin, in the order of ``fit.rows``; for explanations.

        Call after ``prioritize_nodes`` of the same attempt.
        """
        nodes = NodeRows(self.snapshot.table, fit.rows)
        scores = {} if fit.columns is None else fit.columns.scores.by_plugin(state, pod, fit.rows)
        for entry in self._uncached_scores(state, fit):
            if entry.is_columnar:
                rated = entry.rate(state, pod, nodes)
                scores[entry.name] = np.full(len(nodes), rated) if isinstance(rated, int) else rated
            else:
                scores[entry.name] = await self._score_one_by_one(entry, state, pod, nodes)
        return scores

    def _uncached_scores(self, state: CycleState, fit: Feasibility) -> list[ScoreEntry]:
        """Scores without cached results; all of them if only a few rows were evaluated."""
        skipped = state.skip_score
        if fit.columns is not None and self._uncached_score_names <= skipped:
            return []
        entries = self.framework.scores if fit.columns is None else self._uncached_score_entries
        return [entry for entry in entries if entry.name not in skipped]

    async def _run_pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> None:
        """kube-scheduler: RunPreScorePlugins."""
        active_plugins = self._answer_cache.active_plugins(pod)
        state.skip_score |= active_plugins.skip_score
        is_large = pod.template.is_large
        for hook in list(active_plugins.pre_score):
            if is_large:
                await asyncio.sleep(0)
            result = hook.call(state, pod, nodes)
            if result is SUCCESS:
                continue
            if result is SKIP:
                state.skip_score.add(hook.plugin)
                continue
            if isinstance(result, CoroutineType):
                result = await hook.finish(result)
            if result is PASS_TEMPLATE or result is SKIP_TEMPLATE:
                active_plugins.pre_score.remove(hook)
                if result is SKIP_TEMPLATE:
                    active_plugins.skip_score.add(hook.plugin)
                    state.skip_score.add(hook.plugin)
                continue
            status = hook.status(result)
            if status.is_skip:
                state.skip_score.add(hook.plugin)
            elif not status.is_success:
                raise disallowed(hook, status)

    async def _score_one_by_one(
        self, entry: ScoreEntry, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> Scores:
        self.work.rows_scored += len(nodes)
        scores = []
        turn = TimeSlice(self._now)
        for info in nodes.infos:
            score = entry.hook.call(state, pod, info)
            if not isinstance(score, int):
                raise entry.hook.contract_violation(score, "a whole number")
            if abs(score) > MAX_RAW_SCORE:
                raise entry.hook.contract_violation(score, f"at most {MAX_RAW_SCORE}")
            scores.append(score)
            if turn.is_over:
                await turn.give_way()
        return entry.finish(state, pod, nodes, np.array(scores, np.int64))


def _names(hook: Hook, names: object) -> frozenset[str]:
    if not isinstance(names, Set):
        raise hook.contract_violation(names, "a set of node names")
    try:
        return frozenset(names)
    except Exception as problem:
        raise hook.unusable(names, "a set of node names", problem) from problem


def _are_same(
    uncached: list[FilterEntry], before: tuple[object, ...], after: tuple[object, ...]
) -> bool:
    """Whether two pairs of template and epochs are equal."""
    if len(before) != len(after) or (after and before[0] is not after[0]):
        return False
    pairs = zip(uncached, before[1:], after[1:], strict=True)
    return not any(entry.epoch and entry.epoch.differ(one, other) for entry, one, other in pairs)


def _conflict(narrowing: list[str]) -> Status:
    """kube-scheduler's status when the candidates of PreFilter plugins have no node in common."""
    names = sorted(narrowing)
    if len(names) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names[0]}").by(names[0])
    text = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    return unresolvable(text).by(names[0])

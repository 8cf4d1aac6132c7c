"""Scores cached between cycles, and the totals of the nodes.

Raw scores of a template are cached per plugin and recomputed for changed rows. Normalization reads
all feasible nodes, so its result is cached only while neither the feasible set nor a raw score it
read has changed; in a steady cluster that is nearly always.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ksched.cache.node_info import Amounts
from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodInfo
from ksched.cache.recently_used import RecentlyUsed
from ksched.cache.snapshot import Snapshot
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import Scope, ScoreDependsOn
from ksched.framework.interface import MAX_NODE_SCORE, MIN_NODE_SCORE
from ksched.framework.runtime.filter_columns import (
    NOTHING_READ,
    FilterColumns,
    Rows,
    Work,
)
from ksched.framework.runtime.guard import Hook, failure
from ksched.framework.verdicts import ClassScores
from ksched.tuning import AMOUNTS_CACHED, FEW_ROWS

Scores = NDArray[np.int64]

MAX_RAW_SCORE = 2**53
"""Limit of a score before normalization; weighted sums must stay within an int64."""

_WHOLE = frozenset((int, np.int64))


def _are_whole(numbers: object, count: int) -> TypeGuard[NDArray[np.integer[Any]]]:
    # Not ``isinstance``: the hidden elements of a masked array may be anything.
    return type(numbers) is np.ndarray and numbers.shape == (count,) and numbers.dtype.kind in "iu"


def _checked(hook: Hook, scores: object, count: int) -> Scores:
    """Check that a plugin returned one score for each node."""
    if type(scores) is not np.ndarray or scores.shape != (count,):
        raise hook.contract_violation(scores, f"an array of {count} scores")
    if scores.dtype != np.int64:
        if scores.dtype.kind not in "iub":
            raise hook.contract_violation(scores.dtype, "whole numbers")
        if scores.dtype.kind == "u" and count and scores.max() > MAX_RAW_SCORE:
            raise hook.contract_violation(scores.max(), f"at most {MAX_RAW_SCORE}")
        return scores.astype(np.int64)
    return scores


class ScoreEntry:
    """A score plugin with its weight."""

    __slots__ = (
        "depends_on",
        "epoch",
        "hook",
        "is_cached",
        "is_columnar",
        "is_sum_of_amounts",
        "name",
        "normalize",
        "scope",
        "weight",
    )

    def __init__(
        self,
        hook: Hook,
        weight: int,
        depends_on: ScoreDependsOn,
        is_columnar: bool,
        *,
        normalize: Hook | None = None,
        epoch: Hook | None = None,
    ) -> None:
        self.name = hook.plugin
        self.hook = hook
        self.weight = weight
        self.depends_on = depends_on
        self.scope = depends_on.scope
        self.is_columnar = is_columnar
        self.normalize = normalize
        self.epoch = epoch
        self.is_cached = depends_on.is_cached
        self.is_sum_of_amounts = self.scope is Scope.RESOURCES and normalize is epoch is None
        """Whether equal amounts on a node always add the same to its total."""

    def raw_scores(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Scores:
        """Return raw scores of some nodes from a columnar plugin."""
        return _checked(self.hook, self.hook.call(state, pod, nodes), len(nodes))

    def finish(self, state: CycleState, pod: PodInfo, nodes: NodeRows, raw: Scores) -> Scores:
        """Normalize, check the range, apply the weight (NormalizeScore)."""
        scores: Scores = raw
        normalize = self.normalize
        if normalize is not None:
            scores = _checked(normalize, normalize.call(state, pod, nodes, raw), len(raw))
        self.check(scores)
        return scores * self.weight

    def rate(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Scores | int:
        """Return final weighted scores of some nodes; a single number if all are equal."""
        scores = self.hook.call(state, pod, nodes)
        if isinstance(scores, ClassScores):
            return self._rate_classes(scores.values, scores.ids, len(nodes))
        return self.finish(state, pod, nodes, _checked(self.hook, scores, len(nodes)))

    def _rate_classes(self, values: object, ids: object, count: int) -> Scores | int:
        if not (isinstance(values, list) and values and set(map(type, values)) <= _WHOLE):
            raise self.hook.contract_violation(
                values, "a list of whole numbers, one for each class"
            )
        lowest, highest = min(values), max(values)
        self._check_range(lowest, highest)
        if not _are_whole(ids, count):
            raise self.hook.contract_violation(ids, f"an array of {count} classes")
        if lowest == highest:
            return int(lowest) * self.weight
        try:
            return (np.array(values, np.int64) * self.weight).take(ids)
        except IndexError as problem:
            raise self.hook.unusable(ids, f"classes of {len(values)}", problem) from problem

    def check(self, scores: Scores) -> None:
        if len(scores):
            self._check_range(int(scores.min()), int(scores.max()))

    def _check_range(self, low: int, high: int) -> None:
        if low < MIN_NODE_SCORE or high > MAX_NODE_SCORE:
            wrong = low if low < MIN_NODE_SCORE else high
            raise failure(
                self.name,
                "running Score plugins",
                f'plugin "{self.name}" returns an invalid score {wrong}, '
                f"it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing",
            )


class ScoreColumns:
    """The cached scores of some pods for all nodes; ``seed`` has those of similar pods."""

    def __init__(
        self,
        entries: list[ScoreEntry],
        snapshot: Snapshot,
        filters: FilterColumns,
        work: Work,
        seed: ScoreColumns | None = None,
    ) -> None:
        self._seed = seed
        self._entries = entries
        self._names = frozenset(entry.name for entry in entries)
        self._snapshot = snapshot
        self._filters = filters
        self._work = work
        self._skipped: frozenset[str] | None = None
        self._read = NOTHING_READ
        self._epochs: dict[str, object] = {}
        self._count = 0
        self._active: list[ScoreEntry] = []
        self._normalizing: list[ScoreEntry] = []
        self._by_node: list[ScoreEntry] = []
        self._by_resources: list[ScoreEntry] = []
        self._by_row: list[ScoreEntry] = []
        self._by_epoch: list[tuple[ScoreEntry, Hook]] = []
        self._by_amounts: RecentlyUsed[Amounts, int] = RecentlyUsed()
        """The weighted sum of the ``_by_resources`` scores for a node with these amounts."""
        self._resource_sums: list[int] = []
        """The same for every row."""
        self._raw: dict[str, Scores] = {}
        """Raw scores of all other plugins, by name."""
        self._uniform: dict[str, bool] = {}
        self._fixed = np.zeros(0, np.int64)
        """Weighted sum of the scores that need no normalization."""
        self._total: Scores | None = None
        """Fixed and normalized, -1 where infeasible; ``None`` when it must be rebuilt."""
        self._flips = filters.flips.cursor()
        self._normalized = np.zeros(0, np.int64)

    def catch_up(self, state: CycleState, pod: PodInfo) -> None:
        """Recompute raw scores of changed rows; call after the update of the filters."""
        table = self._snapshot.table
        skipped = self._names & state.skip_score
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
            or count != self._count
            or node_rows is None
            or rows is None
            or (len(rows) > FEW_ROWS and len(rows) > count // 2)
        ):
            self._reset(skipped, count)
            self._renew_outdated(state, pod)
            for entry in self._active:
                if entry.epoch is None and entry.name in self._raw:
                    self._renew(entry, state, pod, None)
            rated = self._rate_resources(state, pod, None)
            self._fixed += rated
            self._resource_sums = rated.tolist()
        else:
            if rows and rows[-1] >= count:
                # A row past the end belonged to a node that was removed since.
                node_rows = [row for row in node_rows if row < count]
                rows = [row for row in rows if row < count]
            self._renew_outdated(state, pod)
            if node_rows:
                for entry in self._by_node:
                    self._renew(entry, state, pod, np.array(node_rows, np.intp))
            if rows:
                for entry in self._by_row:
                    self._renew(entry, state, pod, np.array(rows, np.intp))
                if self._by_resources:
                    self._renew_by_amounts(state, pod, rows)
                if self._total is not None:
                    self._add_up(self._total, rows)
        self._read = read

    def totals_of_all(self, state: CycleState, pod: PodInfo) -> Scores:
        """Return totals of all rows, -1 where a cached verdict rejects."""
        total = self._total
        if total is not None and self._flips.is_current:
            return total
        flips = self._flips.changes()
        # Where normalizing adds the same to all nodes, a changed feasible set changes nothing else.
        if total is None or flips is None or not self._normalizing_is_constant():
            total = self._total = self._total_anew(state, pod)
        else:
            for rows in flips:
                self._add_up(total, rows)
        self._flips.advance()
        return total

    def _total_anew(self, state: CycleState, pod: PodInfo) -> Scores:
        feasible = self._filters.feasible
        if self._normalizing_is_constant():
            constant = self._normalize(state, pod, feasible[:1])
            self._normalized = np.full(self._count, constant[0] if len(constant) else 0, np.int64)
        else:
            self._normalized = np.zeros(self._count, np.int64)
            self._normalized[feasible] = self._normalize(state, pod, feasible)
        return np.where(self._filters.codes == 0, self._fixed + self._normalized, -1)

    def totals_among(self, state: CycleState, pod: PodInfo, rows: Rows) -> Scores:
        """Return totals of some rows, normalized among themselves."""
        return self._fixed[rows] + self._normalize(state, pod, rows)

    def by_plugin(self, state: CycleState, pod: PodInfo, rows: Rows) -> dict[str, Scores]:
        """Return weighted scores of some rows, by plugin; for explanations."""
        nodes = NodeRows(self._snapshot.table, rows)
        scores = {}
        for entry in self._active:
            raw = self._raw.get(entry.name)
            scores[entry.name] = entry.finish(
                state, pod, nodes, entry.raw_scores(state, pod, nodes) if raw is None else raw[rows]
            )
        return scores

    def _reset(self, skipped: frozenset[str], count: int) -> None:
        self._skipped = skipped
        self._count = count
        # Nothing is valid until everything was evaluated, also if a plugin raises on the way.
        self._read = NOTHING_READ
        self._active = [entry for entry in self._entries if entry.name not in skipped]
        self._normalizing = [entry for entry in self._active if entry.normalize is not None]
        self._by_resources = [entry for entry in self._active if entry.is_sum_of_amounts]
        rest = [entry for entry in self._active if not entry.is_sum_of_amounts]
        self._by_node = [entry for entry in rest if entry.scope is Scope.NODE]
        self._by_row = [entry for entry in rest if entry.scope is not Scope.NODE]
        self._by_epoch = [(entry, entry.epoch) for entry in self._active if entry.epoch is not None]
        self._raw = {entry.name: np.zeros(count, np.int64) for entry in rest}
        self._resource_sums = [0] * count
        self._epochs.clear()
        self._uniform.clear()
        self._by_amounts.clear()
        self._fixed = np.zeros(count, np.int64)
        self._total = None

    def _copy_from(self, seed: ScoreColumns, skipped: frozenset[str]) -> None:
        """Start with the scores of other pods that are equal for node-side plugins."""
        if skipped != seed._skipped:
            return
        self._reset(skipped, seed._count)
        self._read = seed._read
        self._epochs, self._by_amounts = dict(seed._epochs), seed._by_amounts.copy()
        self._resource_sums = list(seed._resource_sums)
        self._raw = {name: scores.copy() for name, scores in seed._raw.items()}
        self._uniform = dict(seed._uniform)
        self._fixed = seed._fixed.copy()

    # -- raw scores -----------------------------------------------------------------------------

    def _renew(self, entry: ScoreEntry, state: CycleState, pod: PodInfo, rows: Rows | None) -> None:
        """Recompute raw scores, of some rows or (``None``) of all."""
        nodes = NodeRows(self._snapshot.table, rows)
        self._work.rows_scored += len(nodes)
        scores = entry.raw_scores(state, pod, nodes)
        where: Rows | slice = slice(None) if rows is None else rows
        raw = self._raw[entry.name]
        if entry.normalize is None:
            entry.check(scores[self._filters.codes[where] == 0])
            self._fixed[where] += (scores - raw[where]) * entry.weight
            if rows is None:
                self._total = None
        elif not np.array_equal(raw[where], scores):
            self._total = None
            self._uniform.pop(entry.name, None)
        raw[where] = scores

    def _renew_outdated(self, state: CycleState, pod: PodInfo) -> None:
        """Recompute all scores where more than the rows in the log may have changed."""
        for entry, hook in self._by_epoch:
            epoch = hook.call(self._snapshot)
            if entry.name not in self._epochs or hook.differ(epoch, self._epochs[entry.name]):
                self._renew(entry, state, pod, None)
                self._epochs[entry.name] = epoch

    def _renew_by_amounts(self, state: CycleState, pod: PodInfo, rows: list[int]) -> None:
        """Look up sums by a node's amounts; evaluate only amounts not seen before."""
        known, infos, sums = self._by_amounts, self._snapshot.table.infos, self._resource_sums
        new = []
        for row in rows:
            total = known.get(infos[row].amounts)
            if total is None:
                new.append(row)
            elif total != sums[row]:
                self._fixed[row] = self._fixed.item(row) + total - sums[row]
                sums[row] = total
        if not new:
            return
        rated = self._rate_resources(state, pod, np.array(new, np.intp)).tolist()
        for row, total in zip(new, rated, strict=True):
            self._fixed[row] += total - sums[row]
            sums[row] = total
            known.put(infos[row].amounts, total, AMOUNTS_CACHED)

    def _rate_resources(self, state: CycleState, pod: PodInfo, rows: Rows | None) -> Scores:
        """Evaluate scores that depend on amounts alone, of some rows or all; weighted sums."""
        nodes = NodeRows(self._snapshot.table, rows)
        total: Scores = np.zeros(len(nodes), np.int64)
        feasible = self._filters.codes[slice(None) if rows is None else rows] == 0
        for entry in self._by_resources:
            self._work.rows_scored += len(nodes)
            scores = entry.raw_scores(state, pod, nodes)
            entry.check(scores[feasible])
            total += scores * entry.weight
        return total

    # -- totals ---------------------------------------------------------------------------------

    def _add_up(self, total: Scores, rows: Rows | list[int]) -> None:
        """Update the totals of changed rows."""
        codes = self._filters.codes
        if len(rows) > FEW_ROWS:
            many = np.asarray(rows, np.intp)
            scores = self._fixed[many] + self._normalized[many]
            total[many] = np.where(codes[many] == 0, scores, -1)
            return
        fixed, normalized = self._fixed.item, self._normalized.item
        for row in rows:
            total[row] = -1 if codes.item(row) else fixed(row) + normalized(row)

    def _normalize(self, state: CycleState, pod: PodInfo, rows: Rows) -> Scores:
        total = np.zeros(len(rows), np.int64)
        for entry in self._normalizing if len(rows) else ():
            # Usually no node is tainted, or all alike: then one represents all.
            some = rows[:1] if self._is_uniform(entry) else rows
            nodes = NodeRows(self._snapshot.table, some)
            total += entry.finish(state, pod, nodes, self._raw[entry.name][some])
        return total

    def _normalizing_is_constant(self) -> bool:
        """Whether normalizing adds the same to all nodes, whichever of them are feasible."""
        return all(map(self._is_uniform, self._normalizing))

    def _is_uniform(self, entry: ScoreEntry) -> bool:
        """Whether all nodes have the same raw score."""
        known = self._uniform.get(entry.name)
        if known is None:
            raw = self._raw[entry.name]
            known = self._uniform[entry.name] = bool((raw == raw[0]).all())
        return known

"""Resource use of each node without pods below a priority, and their reprieve order."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np

from ksched.api.quantity import clamp_to_int64
from ksched.framework import NodeInfo, PodInfo, PodTemplate
from ksched.framework.freshness import RecentlyUsed
from ksched.framework.node_columns import REQUESTED, Ints, NodeTable, amounts_of
from ksched.framework.plugins.default_preemption.budgets import DisruptionBudgets
from ksched.framework.plugins.default_preemption.candidates import by_importance
from ksched.framework.plugins.default_preemption.outcomes import KnownOutcomes
from ksched.framework.time_slices import TimeSlice
from ksched.groups.wholeness import Wholeness
from ksched.tuning import EVICTABLE_PRIORITIES_CACHED, ORDERS_CACHED, OUTCOMES_CACHED


class ReprieveOrder(NamedTuple):
    """The pods below a priority on one node in the order of their reprieve."""

    pods: tuple[PodInfo, ...]
    num_violating: int
    """The first so many violate a budget if evicted."""
    amounts: Ints
    """Their requests, a line per pod and a column per line of ``DryRunTable.amounts``."""
    pods_of_node: Mapping[str, PodInfo]
    """All pods of the node, to detect a change by identity: a changed node is a new object."""
    generation: int
    """Of the budgets."""
    groups: int
    """The generation of the pod groups; -1 if no pod has one."""


class Evictable:
    """The pods below a priority, by row of the node table."""

    def __init__(self, priority: int, table: NodeTable, wholeness: Wholeness) -> None:
        self._priority = priority
        self._wholeness = wholeness
        self._table = table
        self._changes = table.row_log.cursor()
        self._reprieve_orders: RecentlyUsed[int, ReprieveOrder] = RecentlyUsed()
        self._outcomes: RecentlyUsed[tuple[PodTemplate, frozenset[str]], KnownOutcomes]
        self._outcomes = RecentlyUsed()
        self.staying = np.zeros((REQUESTED, 0), np.int64)
        """Use by all other pods. Lines as in ``DryRunTable.amounts``, up to the last one that pods
        request; a missing one is zero."""

    async def catch_up(self, turn: TimeSlice) -> None:
        """Recount the rows that changed. The table must not change meanwhile."""
        table, changed = self._table, self._changes.changes()
        self._reserve(REQUESTED, len(table))
        rows = range(len(table)) if changed is None else changed
        # Counting a row twice is harmless; one that a cancelled attempt skipped would stay wrong.
        for row in rows:
            # A row past the end belonged to a node that was removed since.
            if row < len(table):
                self._count(row, table.infos[row])
            if turn.is_over:
                await turn.give_way()
        self._changes.advance()

    def reprieve_order(self, row: int, info: NodeInfo, budgets: DisruptionBudgets) -> ReprieveOrder:
        """Return the reprieve order of a node's pods; call after ``catch_up``."""
        cached = self._reprieve_orders.get(row)
        if (
            cached is None
            or cached.pods_of_node is not info.pods
            or cached.generation != budgets.generation
            or cached.groups not in (-1, self._wholeness.generation)
            or cached.amounts.shape[1] != self.staying.shape[0]
        ):
            cached = self._order(info, budgets)
            self._reprieve_orders.put(row, cached, ORDERS_CACHED)
        return cached

    def outcomes(
        self, pod: PodInfo, skipped: Set[str], budgets: DisruptionBudgets
    ) -> KnownOutcomes:
        """Return what is known of dry runs for pods equal to this one."""
        key = (pod.template, frozenset(skipped))
        known = self._outcomes.get(key)
        if known is None:
            known = KnownOutcomes(self._table)
            self._outcomes.put(key, known, OUTCOMES_CACHED)
        known.begin(budgets.generation, self._wholeness.generation)
        return known

    def _order(self, info: NodeInfo, budgets: DisruptionBudgets) -> ReprieveOrder:
        lower = [pod for pod in info.pods.values() if pod.priority < self._priority]
        ordered, groups = by_importance(lower), -1
        if self._wholeness.has_groups(lower):
            groups = self._wholeness.generation
            ordered = by_importance(lower, self._wholeness.breaking(ordered))
        violating, others = budgets.split(ordered)
        pods = (*violating, *others)
        amounts = np.zeros((len(pods), self.staying.shape[0]), np.int64)
        for turn, pod in enumerate(pods):
            for line, amount in amounts_of(pod):
                amounts[turn, line] = amount
        return ReprieveOrder(pods, len(violating), amounts, info.pods, budgets.generation, groups)

    def _count(self, row: int, info: NodeInfo) -> None:
        # Nodes may offer a thousand resources that no pod requests.
        width = len(info.requested)
        while width and not info.requested[width - 1]:
            width -= 1
        # The sums of a node are exact; in the table they may be saturated at int64.
        staying = [info.num_pods, info.non_zero_cpu, info.non_zero_memory, *info.requested[:width]]
        self._reserve(len(staying), len(self._table))
        for pod in info.pods.values():
            if pod.priority < self._priority:
                for line, amount in amounts_of(pod):
                    staying[line] -= amount
        self.staying[:, row] = 0
        self.staying[: len(staying), row] = [*map(clamp_to_int64, staying)]

    def _reserve(self, lines: int, rows: int) -> None:
        old = self.staying
        if lines <= old.shape[0] and rows <= old.shape[1]:
            return
        lines = max(lines, old.shape[0])
        columns = old.shape[1] if rows <= old.shape[1] else rows + rows // 4 + 16
        self.staying = np.zeros((lines, columns), np.int64)
        self.staying[: old.shape[0], : old.shape[1]] = old


class EvictableByPriority:
    """Columns for the most recent preemptor priorities."""

    def __init__(self, wholeness: Wholeness) -> None:
        self._wholeness = wholeness
        self._cached: RecentlyUsed[int, Evictable] = RecentlyUsed()

    def below(self, priority: int, table: NodeTable) -> Evictable:
        """kube-scheduler: isPreemptionAllowed."""
        cached = self._cached.get(priority)
        if cached is None:
            cached = Evictable(priority, table, self._wholeness)
            self._cached.put(priority, cached, EVICTABLE_PRIORITIES_CACHED)
        return cached

    def sweep(self) -> None:
        self._cached.sweep()

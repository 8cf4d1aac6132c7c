"""Dry runs: on which nodes evicting pods would make room for a pod.

Columns first: a node that would not fit the pod without any pod of lower priority needs no further
trial. If amounts alone decide on the others (no host ports, no affinity, no hard spreading), the
reprieve runs over many nodes at once too: in step k every node gets back the k-th of its pods, and
the filters determine where that was one too many. Otherwise each node is copied and tried by
itself. Both ways give the same victims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ksched.framework import (
    Code,
    CycleState,
    Handle,
    PodInfo,
    Status,
    error,
    unresolvable,
)
from ksched.framework.node_columns import POD_COUNT, DryRunTable
from ksched.framework.plugins.default_preemption.budgets import DisruptionBudgets
from ksched.framework.plugins.default_preemption.candidates import Candidate, by_importance
from ksched.framework.plugins.default_preemption.evictable import Evictable, ReprieveOrder
from ksched.framework.time_slices import TimeSlice
from ksched.tuning import CELLS_PER_DRY_RUN, NODES_PER_DRY_RUN

Rows = NDArray[np.intp]

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


class Findings(Struct):
    """The candidates of preemption, and the statuses of the other nodes."""

    num_candidates: int
    """When to stop the search."""
    non_violating: list[Candidate]
    violating: list[Candidate]
    statuses: Counter[Status]
    """Statuses of nodes that are no candidates, with the numbers of these nodes."""

    @property
    def candidates(self) -> list[Candidate]:
        return self.non_violating + self.violating

    @property
    def is_enough(self) -> bool:
        found = len(self.non_violating) + len(self.violating)
        return bool(self.non_violating) and found >= self.num_candidates

    def add(self, candidate: Candidate) -> None:
        found = self.violating if candidate.num_pdb_violations else self.non_violating
        if len(found) < self.num_candidates:
            found.append(candidate)

    def reject(self, status: Status, nodes: int = 1) -> None:
        self.statuses[status] += nodes

    @property
    def errors(self) -> list[str]:
        return [status.message for status in self.statuses if status.code is Code.ERROR]


class DryRun:
    """One pod's search for nodes to preempt on."""

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        budgets: DisruptionBudgets,
        evictable: Evictable,
    ) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self._budgets = budgets
        self._evictable = evictable
        self._table = handle.snapshot.table
        self._turn = TimeSlice(handle.clock.now)

    async def run(self, rows: Rows, num_candidates: int) -> Findings:
        """Try rows in order until there are enough candidates.

        kube-scheduler: findCandidates, DryRunPreemption.
        """
        findings = Findings(num_candidates, [], [], Counter())
        if not len(rows):
            return findings
        await self._evictable.catch_up(self._turn)
        has_victims = self._evictable.staying[POD_COUNT, rows] < self._table.pod_count[rows]
        if without := len(rows) - int(np.count_nonzero(has_victims)):
            findings.reject(NO_VICTIMS, without)
        rows, is_complete = await self._preselect(rows[has_victims], findings)
        if is_complete:
            await self._try_together(rows, findings)
        else:
            await self._try_one_by_one(rows, findings)
        return findings

    async def _preselect(self, rows: Rows, findings: Findings) -> tuple[Rows, bool]:
        """Return rows that would fit the pod by amounts, and whether amounts decide alone."""
        fitting, is_complete = [rows[:0]], True
        size = max(CELLS_PER_DRY_RUN // len(self._evictable.staying), 1)
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            filters = self._handle.resource_filters(self._state, self._pod, self._emptied(batch))
            codes = filters.judge()
            for code, count in enumerate(np.bincount(codes)):
                if code and count:
                    findings.reject(filters.status(code), int(count))
            fitting.append(batch[codes == 0])
            is_complete = filters.is_complete
            if self._turn.is_over:
                await self._turn.give_way()
        return np.concatenate(fitting), is_complete

    def _emptied(self, rows: Rows) -> DryRunTable:
        """Return the nodes without any pod that could be evicted."""
        nodes = DryRunTable(self._table, rows)
        staying = self._evictable.staying[:, rows]
        nodes.amounts[: len(staying)] = staying
        return nodes

    def _reprieve_order(self, row: int) -> ReprieveOrder:
        return self._evictable.reprieve_order(row, self._table.infos[row], self._budgets)

    # -- together -------------------------------------------------------------------------------

    async def _try_together(self, rows: Rows, findings: Findings) -> None:
        position = 0
        while position < len(rows) and not findings.is_enough:
            found = len(findings.candidates)
            # No more than needed, unless all candidates so far violate a budget.
            size = min(max(findings.num_candidates - found, 1), NODES_PER_DRY_RUN)
            batch = rows[position : position + size]
            position += len(batch)
            for outcome in await self._reprieve_together(batch):
                if isinstance(outcome, Status):
                    findings.reject(outcome)
                elif not findings.is_enough:
                    findings.add(outcome)

    async def _reprieve_together(self, rows: Rows) -> list[Candidate | Status]:
        orders = [self._reprieve_order(row) for row in rows.tolist()]
        nodes = self._emptied(rows)
        filters = self._handle.resource_filters(self._state, self._pod, nodes)
        victims: list[list[tuple[int, PodInfo]]] = [[] for _ in orders]
        steps = max(len(one.pods) for one in orders)
        by_step = np.zeros((steps, nodes.amounts.shape[0], len(orders)), np.int64)
        for column, one in enumerate(orders):
            by_step[: len(one.pods), : one.amounts.shape[1], column] = one.amounts
        for step, added in enumerate(by_step):
            before = nodes.add(added)
            is_too_much = filters.judge() != 0
            nodes.amounts[:, is_too_much] = before[:, is_too_much]
            for column in np.flatnonzero(is_too_much).tolist():
                victims[column].append((step, orders[column].pods[step]))
            if self._turn.is_over:
                await self._turn.give_way()
        return [
            self._outcome(name, found, one.num_violating)
            for name, found, one in zip(nodes.rows, victims, orders, strict=True)
        ]

    # -- one by one -----------------------------------------------------------------------------

    async def _try_one_by_one(self, rows: Rows, findings: Findings) -> None:
        for row in rows.tolist():
            outcome = await self._select_victims_on_node(row)
            if isinstance(outcome, Status):
                findings.reject(outcome)
            else:
                findings.add(outcome)
            if findings.is_enough:
                break

    async def _select_victims_on_node(self, row: int) -> Candidate | Status:
        """Remove all, reprieve what fits (default_preemption.go: SelectVictimsOnNode, v1.36)."""
        handle, pod = self._handle, self._pod
        node, state = self._table.infos[row].clone(), self._state.clone()
        order = self._reprieve_order(row)
        for victim in order.pods:
            status = handle.remove_pod(state, pod, victim, node)
            if not status.is_success:
                return status
        status = handle.run_filters_with_nominated_pods(state, pod, node)
        if not status.is_success:
            return status
        victims: list[tuple[int, PodInfo]] = []
        for turn, one in enumerate(order.pods):
            status = handle.add_pod(state, pod, one, node)
            if status.is_success:
                status = handle.run_filters_with_nominated_pods(state, pod, node)
            if not status.is_success:
                if status.is_rejected:
                    status = handle.remove_pod(state, pod, one, node)
                    victims.append((turn, one))
                if not status.is_success:
                    return status
            if self._turn.is_over:
                await self._turn.give_way()
        return self._outcome(node.name, victims, order.num_violating)

    def _outcome(
        self, node_name: str, victims: Sequence[tuple[int, PodInfo]], num_violating: int
    ) -> Candidate | Status:
        if not victims:
            return error(f'expected at least one victim pod on node "{node_name}"')
        pods = by_importance(pod for _, pod in victims)
        return Candidate(node_name, tuple(pods), sum(turn < num_violating for turn, _ in victims))

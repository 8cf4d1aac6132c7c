"""Dry runs: on which nodes evicting pods would make room for a pod.

Columns first: a node that would not fit the pod without any pod of lower priority needs no further
trial. If amounts alone decide on the others (no host ports, no affinity, no hard spreading), the
reprieve runs over many nodes at once too: in step k every node gets back the k-th of its pods, and
the filters determine where that was one too many. Otherwise each node is copied and tried by
itself. Both ways give the same victims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

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
from ksched.framework.plugins.default_preemption.outcomes import Outcome
from ksched.framework.time_slices import TimeSlice
from ksched.tuning import CELLS_PER_DRY_RUN, NODES_PER_DRY_RUN, ROWS_RECALLED

Rows = NDArray[np.intp]

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


class Findings(Struct):
    """The candidates of preemption, and the statuses of the other nodes."""

    num_candidates: int
    """When to stop the search."""
    non_violating: list[Candidate]
    violating: list[Candidate]
    rejected: list[tuple[Status, int]]
    """Statuses of nodes that are no candidates, and of how many nodes each is."""

    @property
    def candidates(self) -> list[Candidate]:
        return self.non_violating + self.violating

    @property
    def statuses(self) -> Counter[Status]:
        """The same, added up; few preemptors need it."""
        # By identity first: to hash a status costs ten times as much, and few are different.
        nodes_of = Counter[int]()
        for status, nodes in self.rejected:
            nodes_of[id(status)] += nodes
        counts: Counter[Status] = Counter()
        for status in {id(status): status for status, _ in self.rejected}.values():
            counts[status] += nodes_of[id(status)]
        return counts

    @property
    def is_enough(self) -> bool:
        found = len(self.non_violating) + len(self.violating)
        return bool(self.non_violating) and found >= self.num_candidates

    def extend(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes in order until there are enough candidates."""
        for outcome in outcomes:
            if isinstance(outcome, Status):
                self.rejected.append((outcome, 1))
            else:
                self.add(outcome)
                if self.is_enough:
                    return

    def add(self, candidate: Candidate) -> None:
        found = self.violating if candidate.num_pdb_violations else self.non_violating
        if len(found) < self.num_candidates:
            found.append(candidate)

    def reject(self, status: Status, nodes: int = 1) -> None:
        self.rejected.append((status, nodes))

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
        findings = Findings(num_candidates, [], [], [])
        if not len(rows):
            return findings
        await self._evictable.catch_up(self._turn)
        has_victims = self._evictable.staying[POD_COUNT, rows] < self._table.pod_count[rows]
        if without := len(rows) - int(np.count_nonzero(has_victims)):
            findings.reject(NO_VICTIMS, without)
        left = iter(rows[has_victims].tolist())
        self._known = self._evictable.outcomes(self._pod, self._state.skip_filter, self._budgets)
        size = min(max(num_candidates, 1), NODES_PER_DRY_RUN)
        largest = max(CELLS_PER_DRY_RUN // len(self._evictable.staying), 1)
        while not findings.is_enough:
            before = len(findings.candidates)
            batch, outcomes = self._next(left, size, max(num_candidates - before, 1))
            if not batch:
                break
            await self._try(batch, outcomes, findings)
            # Where few rows are candidates, many at once cost less.
            found = len(findings.candidates)
            wanted = 2 * size if 2 * (found - before) < size else num_candidates - found
            size = min(max(wanted, 1), largest)
        return findings

    def _next(
        self, rows: Iterator[int], size: int, missing: int
    ) -> tuple[list[int], dict[int, Outcome]]:
        """The next rows, and what is known of them from earlier dry runs.

        Up to ``size`` unknown ones, or fewer if the known ones have all the candidates missing.
        """
        recall = self._known.recall(self._handle.expected_pods(self._pod))
        batch: list[int] = []
        outcomes: dict[int, Outcome] = {}
        for row in islice(rows, ROWS_RECALLED):
            batch.append(row)
            outcome = recall(row)
            if outcome is not None:
                outcomes[row] = outcome
                missing -= isinstance(outcome, Candidate)
            if not missing or len(batch) - len(outcomes) == size:
                break
        return batch, outcomes

    async def _try(
        self, rows: Sequence[int], outcomes: dict[int, Outcome], findings: Findings
    ) -> None:
        """Add the outcomes on some rows to the findings, in order."""
        unknown = [row for row in rows if row not in outcomes]
        is_complete = self._preselect(unknown, outcomes) if unknown else True
        if len(outcomes) == len(rows):
            findings.extend(map(outcomes.__getitem__, rows))
            rows = ()
        for number, row in enumerate(rows):
            if findings.is_enough:
                break
            if row not in outcomes and is_complete:
                # No more than needed, unless all candidates so far violate a budget.
                missing = max(findings.num_candidates - len(findings.candidates), 1)
                left = [one for one in rows[number:] if one not in outcomes]
                await self._reprieve_together(left[: min(missing, NODES_PER_DRY_RUN)], outcomes)
            outcome = outcomes.get(row)
            if outcome is None:
                outcome = await self._select_victims_on_node(row)
            if isinstance(outcome, Status):
                findings.reject(outcome)
            else:
                findings.add(outcome)
        if self._turn.is_over:
            await self._turn.give_way()

    def _preselect(self, rows: Sequence[int], outcomes: dict[int, Outcome]) -> bool:
        """Reject rows that would not fit the pod by amounts; returns whether these decide alone."""
        expected_on = self._handle.expected_pods(self._pod)
        nodes = self._emptied(np.array(rows, np.intp))
        filters = self._handle.resource_filters(self._state, self._pod, nodes)
        for row, name, code in zip(rows, nodes.rows, filters.judge().tolist(), strict=True):
            if code:
                outcomes[row] = filters.status(code)
                if filters.is_complete:
                    self._known.put(row, expected_on(name), outcomes[row])
        return filters.is_complete

    def _emptied(self, rows: Rows) -> DryRunTable:
        """Return the nodes without any pod that could be evicted."""
        nodes = DryRunTable(self._table, rows)
        staying = self._evictable.staying[:, rows]
        nodes.amounts[: len(staying)] = staying
        return nodes

    def _reprieve_order(self, row: int) -> ReprieveOrder:
        return self._evictable.reprieve_order(row, self._table.infos[row], self._budgets)

    # -- together -------------------------------------------------------------------------------

    async def _reprieve_together(self, rows: Sequence[int], outcomes: dict[int, Outcome]) -> None:
        """Find the victims on rows that would fit the pod without any pod of lower priority."""
        orders = [self._reprieve_order(row) for row in rows]
        nodes = self._emptied(np.array(rows, np.intp))
        expected = [*map(self._handle.expected_pods(self._pod), nodes.rows)]
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
        for column, name in enumerate(nodes.rows):
            outcome = self._outcome(name, victims[column], orders[column].num_violating)
            outcomes[rows[column]] = outcome
            self._known.put(rows[column], expected[column], outcome)

    # -- one by one -----------------------------------------------------------------------------

    async def _select_victims_on_node(self, row: int) -> Outcome:
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
    ) -> Outcome:
        if not victims:
            return error(f'expected at least one victim pod on node "{node_name}"')
        pods = by_importance(pod for _, pod in victims)
        return Candidate(node_name, tuple(pods), sum(turn < num_violating for turn, _ in victims))

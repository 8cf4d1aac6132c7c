"""Dry runs: on which nodes evicting pods would make room for a pod.

Columns first: a node that would not fit the pod without any pod of lower priority needs no further
trial. If amounts alone decide on the others (no host ports, no affinity, no hard spreading), the
reprieve runs over many nodes at once too: in step k every node gets back the k-th of its pods, and
the filters determine where that was one too many. Otherwise each node is copied and tried by
itself. Both ways give the same victims.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from ksched.framework import (
    SUCCESS,
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
from ksched.framework.plugins.default_preemption.outcomes import (
    NON_VIOLATING,
    REJECTED,
    UNKNOWN,
    VIOLATING,
    KnownOutcomes,
    Outcome,
    Rows,
)
from ksched.framework.time_slices import TimeSlice
from ksched.tuning import (
    AMOUNTS_CACHED,
    CELLS_PER_DRY_RUN,
    FEW_ROWS,
    NODES_PER_DRY_RUN,
    ROWS_RECALLED,
)

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


class Findings:
    """The candidates of preemption, and the statuses of the other nodes."""

    def __init__(self, num_candidates: int, outcomes: KnownOutcomes) -> None:
        self.num_candidates = num_candidates
        """When to stop the search."""
        self.non_violating: list[int] = []
        self.violating: list[int] = []
        """Rows of candidates."""
        self._outcomes = outcomes
        self._rejected: list[list[Outcome]] = []
        self._without_victims = 0

    def __len__(self) -> int:
        """The number of candidates."""
        return len(self.non_violating) + len(self.violating)

    @property
    def candidates(self) -> list[Candidate]:
        found = self._outcomes.of(self.non_violating + self.violating)
        return [one for one in found if isinstance(one, Candidate)]

    @property
    def statuses(self) -> Counter[Status]:
        """How many nodes that are no candidates have which status; few preemptors need it."""
        # By identity first: to hash a status costs ten times as much, and few are different.
        by_id = {id(one): one for rejected in self._rejected for one in rejected}
        nodes_of = Counter(id(one) for rejected in self._rejected for one in rejected)
        counts = Counter({NO_VICTIMS: self._without_victims} if self._without_victims else {})
        for identity, nodes in nodes_of.items():
            status = by_id[identity]
            assert isinstance(status, Status)
            counts[status] += nodes
        return counts

    @property
    def errors(self) -> list[str]:
        return [status.message for status in self.statuses if status.code is Code.ERROR]

    @property
    def is_enough(self) -> bool:
        return bool(self.non_violating) and len(self) >= self.num_candidates

    def extend(self, rows: Rows) -> None:
        """Add the outcomes on rows, in order, until there are enough candidates."""
        most, kinds = self.num_candidates, self._outcomes.kinds[rows]
        others = np.cumsum(kinds == NON_VIOLATING) + len(self.non_violating)
        violating = np.minimum(np.cumsum(kinds == VIOLATING) + len(self.violating), most)
        is_enough = (np.minimum(others, most) > 0) & (others + violating >= most)
        if is_enough.any():
            end = int(is_enough.argmax()) + 1
            rows, kinds = rows[:end], kinds[:end]
        for kind, found in ((NON_VIOLATING, self.non_violating), (VIOLATING, self.violating)):
            found.extend(rows[kinds == kind][: most - len(found)].tolist())
        self._rejected.append(self._outcomes.of(rows[kinds == REJECTED]))

    def reject(self, nodes: int) -> None:
        """Add nodes without any pod that could be evicted."""
        self._without_victims += nodes

    def pick(self, rng: random.Random) -> Candidate:
        """``pick_one_node_for_preemption`` of the candidates, by columns."""
        rows, is_by_chance = self._outcomes.cheapest(
            np.array([*self.non_violating, *self.violating])
        )
        [best] = self._outcomes.of([rng.choice(rows) if is_by_chance else rows[0]])
        assert isinstance(best, Candidate)
        return best


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
        self._decided_by_amounts = handle.rejects_by_amounts_alone(state, pod)
        """Whether nodes with equal amounts are judged alike."""

    async def run(self, rows: Rows, num_candidates: int) -> Findings:
        """Try rows in order until there are enough candidates.

        kube-scheduler: findCandidates, DryRunPreemption.
        """
        await self._evictable.catch_up(self._turn)
        self._known = self._evictable.outcomes(self._pod, self._state.skip_filter, self._budgets)
        findings = Findings(num_candidates, self._known)
        has_victims = self._evictable.staying[POD_COUNT, rows] < self._table.pod_count[rows]
        left = rows[has_victims]
        findings.reject(len(rows) - len(left))
        size = min(max(num_candidates, 1), NODES_PER_DRY_RUN)
        largest = max(CELLS_PER_DRY_RUN // len(self._evictable.staying), 1)
        while len(left) and not findings.is_enough:
            before = len(findings)
            # Up to ``size`` unknown rows, or fewer if the known ones have all candidates missing.
            self._nominated = self._handle.nominations(self._pod)
            self._known.follow(self._nominated.log, self._nominated.own_node)
            batch = left[:ROWS_RECALLED]
            batch = batch[: self._known.reach(batch, size, max(num_candidates - before, 1))]
            left = left[len(batch) :]
            await self._try(batch, findings)
            # Where few rows are candidates, many at once cost less.
            found = len(findings)
            wanted = 2 * size if 2 * (found - before) < size else num_candidates - found
            size = min(max(wanted, 1), largest)
        return findings

    async def _try(self, rows: Rows, findings: Findings) -> None:
        """Add the outcomes on some rows to the findings, in order."""
        known = self._known
        unknown = rows[known.kinds[rows] == UNKNOWN]
        is_complete = self._preselect(unknown) if len(unknown) else True
        while len(rows) and not findings.is_enough:
            is_unknown = known.kinds[rows] == UNKNOWN
            end = int(is_unknown.argmax()) if is_unknown.any() else len(rows)
            findings.extend(rows[:end])
            rows, is_unknown = rows[end:], is_unknown[end:]
            if not len(rows) or findings.is_enough:
                break
            if is_complete:
                # No more than needed, unless all candidates so far violate a budget.
                missing = max(findings.num_candidates - len(findings), 1)
                await self._reprieve_together(rows[is_unknown][: min(missing, NODES_PER_DRY_RUN)])
            else:
                row = int(rows[0])
                known.put(row, await self._select_victims_on_node(row), is_lasting=False)
        if self._turn.is_over:
            await self._turn.give_way()

    def _preselect(self, rows: Rows) -> bool:
        """Reject rows that would not fit the pod by amounts; returns whether these decide alone."""
        recalls = self._decided_by_amounts and len(rows) <= FEW_ROWS
        if recalls:
            rows = self._recall(rows)
            if not len(rows):
                return True
        nodes = self._emptied(rows)
        filters = self._handle.resource_filters(self._state, self._pod, nodes)
        for row, code in zip(rows.tolist(), filters.judge().tolist(), strict=True):
            status = filters.status(code) if code else SUCCESS
            if code:
                self._known.put(row, status, is_lasting=filters.is_complete)
            if recalls:
                self._known.verdicts.put(self._amounts(row), status, AMOUNTS_CACHED)
        return filters.is_complete

    def _recall(self, rows: Rows) -> Rows:
        """Reject rows as nodes with equal amounts were rejected; returns those that are left."""
        left = []
        for row in rows.tolist():
            status = self._known.verdicts.get(self._amounts(row))
            if status is None:
                left.append(row)
            elif status is not SUCCESS:
                self._known.put(row, status)
        return np.array(left, np.intp)

    def _amounts(self, row: int) -> Hashable:
        """What decides, where amounts alone do, whether an emptied node fits the pod."""
        info = self._table.infos[row]
        allocatable, allowed_pods, *_ = info.amounts
        staying = self._evictable.staying[:, row].tobytes()
        return allocatable, allowed_pods, staying, self._nominated.amounts_on(info.name)

    def _emptied(self, rows: Rows) -> DryRunTable:
        """Return the nodes without any pod that could be evicted."""
        nodes = DryRunTable(self._table, rows)
        staying = self._evictable.staying[:, rows]
        nodes.amounts[: len(staying)] = staying
        return nodes

    def _reprieve_order(self, row: int) -> ReprieveOrder:
        return self._evictable.reprieve_order(row, self._table.infos[row], self._budgets)

    # -- together -------------------------------------------------------------------------------

    async def _reprieve_together(self, rows: Rows) -> None:
        """Find the victims on rows that would fit the pod without any pod of lower priority."""
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
        for row, name, order, evicted in zip(
            rows.tolist(), nodes.rows, orders, victims, strict=True
        ):
            self._known.put(row, self._outcome(name, evicted, order.num_violating))

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

"""DefaultPreemption: evicts pods of lower priority for a pod that fits nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from ksched.api.objects import Pod, PodDisruptionBudget
from ksched.configuration.plugin_args import DefaultPreemptionArgs
from ksched.errors import ExtenderError
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Code,
    CycleState,
    Diagnosis,
    Handle,
    PodInfo,
    PostFilterResult,
    QueueingHint,
    Resource,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from ksched.framework.diagnosis import NodeStatuses, count_reasons
from ksched.framework.plugins import names
from ksched.framework.plugins.default_preemption.budgets import DisruptionBudgets
from ksched.framework.plugins.default_preemption.candidates import (
    Candidate,
    by_importance,
    pick_one_node_for_preemption,
)
from ksched.framework.plugins.default_preemption.dry_run import DryRun, Findings
from ksched.framework.plugins.default_preemption.evictable import EvictableByPriority
from ksched.framework.plugins.default_preemption.outcomes import Rows
from ksched.framework.victims import Victims
from ksched.groups.registry import Groups
from ksched.groups.wholeness import Wholeness, importance

WAITING = unresolvable("waiting for the preemption for this pod to be finished")
NEVER = unschedulable("not eligible due to preemptionPolicy=Never.")
TERMINATING_POD = unschedulable("not eligible due to a terminating pod on the nominated node.")
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")


class DefaultPreemption:
    """Finds pods of lower priority whose eviction makes room for a pod that fits nowhere.

    On every node where that may help, all pods of lower priority are removed in a dry run, and as
    many as possible reprieved, the most important first. Of the nodes, the one is chosen whose
    victims matter least: no violated PodDisruptionBudget, low priorities, few of them, started
    recently. The pod is nominated to the node and retried when its victims are gone; until they are
    seen terminating it stays out of the queue. A pod group that would be left with less than its
    minimum loses all its members, wherever they run.

    Nothing is done for pods with ``preemptionPolicy: Never``, and for pods whose last victims are
    still terminating on the node they are nominated to.

    Arguments: ``minCandidateNodesPercentage`` and ``minCandidateNodesAbsolute`` determine after how
    many nodes with possible victims the search may stop.
    """

    name: ClassVar[str] = names.DEFAULT_PREEMPTION
    is_rebuilt_on_reload: ClassVar[bool] = True
    """Outcomes of dry runs depend on the filters of the profile."""

    def __init__(self, args: DefaultPreemptionArgs | None, handle: Handle) -> None:
        self._args = args or DefaultPreemptionArgs()
        self._handle = handle
        self.budgets = DisruptionBudgets(handle.listers.require(PodDisruptionBudget))
        self.wholeness = Wholeness(handle.listers.view(Groups))
        self.evictable = EvictableByPriority(self.wholeness)
        """With ``budgets`` and ``wholeness`` also for the preemption of groups."""
        self.sweep = self.evictable.sweep

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return WAITING if self._handle.awaits_victims(pod.uid) else SUCCESS

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.POD, Action.DELETE),
                self._is_pod_schedulable_after_pod_deletion,
                released=self._released,
            ),
        )

    def _released(self) -> Collection[str]:
        return self._handle.released_preemptors()

    def _is_pod_schedulable_after_pod_deletion(
        self, pod: PodInfo, old: Pod, new: None
    ) -> QueueingHint:
        # Called for gated pods only. Which victim goes last is random, so the plugins that
        # rejected the pod may not react to that one's deletion.
        is_waiting = self._handle.is_preempting(pod.uid)
        return QueueingHint.SKIP if is_waiting else QueueingHint.QUEUE

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult | Coroutine[Any, Any, PostFilterResult]:
        """kube-scheduler: Evaluator.Preempt."""
        self._handle.metrics.preemption_attempts.increment()
        statuses = diagnosis.node_statuses
        assert statuses is not None, "a pod rejected by its chosen node does not come here"
        objection = self._find_objection(pod, statuses)
        if objection is not None:
            return _prefixed(PostFilterResult(objection))
        rows = self._potential_rows(statuses)
        if not len(rows):
            return _nowhere(diagnosis.num_all_nodes)
        return self._preempt(state, pod, diagnosis, rows)

    async def _preempt(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, rows: Rows
    ) -> PostFilterResult:
        return _prefixed(await self._find_victims(state, pod, diagnosis, rows))

    async def _find_victims(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, rows: Rows
    ) -> PostFilterResult:
        evictable = self.evictable.below(pod.priority, self._handle.snapshot.table)
        dry_run = DryRun(self._handle, state, pod, self.budgets, evictable)
        findings = await dry_run.run(rows, self._num_candidates(len(rows)))
        if not len(findings) and findings.errors:
            return PostFilterResult(error(aggregate(findings.errors)))
        if not len(findings):
            return _without_candidates(findings.statuses, diagnosis.num_all_nodes)
        try:
            candidates = await self._call_extenders(pod, findings)
        except ExtenderError as problem:
            return PostFilterResult(error(str(problem)))
        if self.wholeness.is_on:
            found = findings.candidates if candidates is None else candidates
            wholes = (self._whole(pod, one) for one in found)
            candidates = [one for one in wholes if one is not None]
        if candidates is None:
            best = findings.pick(self._handle.rng)
        elif candidates:
            best = pick_one_node_for_preemption(candidates, self._handle.rng)
        else:
            return PostFilterResult(unschedulable("no candidate node for preemption"))
        self._handle.preempt(pod, best.node_name, best.victims)
        return PostFilterResult(SUCCESS, best.node_name)

    async def _call_extenders(self, pod: PodInfo, findings: Findings) -> list[Candidate] | None:
        """Return the candidates that the extenders leave; ``None`` for all of them, unchanged."""
        victims = VictimsByNode(findings)
        chosen = await self._handle.process_preemption(pod, victims)
        if chosen is victims:
            return None
        return [
            Candidate(node_name, tuple(one.pods), one.num_pdb_violations)
            for node_name, one in chosen.items()
        ]

    def _whole(self, pod: PodInfo, candidate: Candidate) -> Candidate | None:
        """Add the members of groups that must not be left with less than their minimum.

        ``None`` if a group would be broken that is no less important than the pod, or its own.
        """
        if not self.wholeness.has_groups(candidate.victims):
            return candidate
        whole = self.wholeness.complete(candidate.victims)
        own = self.wholeness.group_of(pod)
        if any(group is own or importance(group) >= pod.priority for group in whole.broken):
            return None
        victims = by_importance(whole.pods)
        violating, _ = self.budgets.split(victims)
        return Candidate(candidate.node_name, tuple(victims), len(violating), len(whole.broken))

    def _find_objection(self, pod: PodInfo, statuses: NodeStatuses) -> Status | None:
        """Why a pod may not preempt (default_preemption.go: PodEligibleToPreemptOthers, v1.36)."""
        if pod.spec.preemption_policy == "Never":
            return NEVER
        node_name = self._handle.nominated_node_name(pod)
        node = self._handle.snapshot.get(node_name) if node_name else None
        if node is None:
            return None
        if statuses.get(node_name).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            # Even with the space freed there the pod does not fit.
            return None
        for other in node.pods.values():
            if other.priority < pod.priority and is_preempted(other):
                return TERMINATING_POD
        return None

    def _potential_rows(self, statuses: NodeStatuses) -> Rows:
        """Rows where evicting pods may help, round-robin over zones, from a random offset.

        kube-scheduler: nodesWherePreemptionMightHelp, GetOffsetAndNumCandidates.
        """
        might_help = statuses.rows_with(Code.UNSCHEDULABLE)
        if not len(might_help):
            return might_help
        is_potential = np.zeros(len(statuses.table), np.bool_)
        is_potential[might_help] = True
        order = self._handle.snapshot.order
        rows = order[is_potential[order]]
        return np.roll(rows, -self._handle.rng.randrange(len(rows))) if len(rows) else rows

    def _num_candidates(self, nodes: int) -> int:
        """How many candidates are enough (default_preemption.go: calculateNumCandidates)."""
        share = nodes * self._args.min_candidate_nodes_percentage // 100
        return min(max(share, self._args.min_candidate_nodes_absolute), nodes)


class VictimsByNode(Mapping[str, Victims]):
    """The candidates as extenders read them; made when one does."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    @cached_property
    def _by_node(self) -> dict[str, Victims]:
        found = self._findings.candidates
        return {one.node_name: Victims(one.victims, one.num_pdb_violations) for one in found}

    def __getitem__(self, node_name: str) -> Victims:
        return self._by_node[node_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._findings)


def is_preempted(pod: PodInfo) -> bool:
    """Whether a pod is terminating because a scheduler preempted it.

    kube-scheduler: podTerminatingByPreemption.
    """
    return pod.is_terminating and any(
        condition.type == "DisruptionTarget"
        and condition.status == "True"
        and condition.reason == "PreemptionByScheduler"
        for condition in pod.pod.status.conditions
    )


def aggregate(problems: Sequence[str]) -> str:
    """Join several errors as Go's aggregated errors do."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _prefixed(result: PostFilterResult) -> PostFilterResult:
    status = result.status
    if not status.reasons:
        return result
    prefixed = Status(status.code, (f"preemption: {status.message}",))
    return PostFilterResult(prefixed, result.nominated_node_name)


@lru_cache(maxsize=16)
def _nowhere(num_all_nodes: int) -> PostFilterResult:
    """The result where evicting pods helps on no node."""
    return _prefixed(_without_candidates(Counter(), num_all_nodes))


def _without_candidates(found: Counter[Status], num_all_nodes: int) -> PostFilterResult:
    statuses = [*found.items(), (NOT_HELPFUL, num_all_nodes - found.total())]
    reasons = count_reasons((status, nodes) for status, nodes in statuses if nodes)
    message = Diagnosis(num_all_nodes=num_all_nodes, reasons=reasons).message
    return PostFilterResult(unschedulable(message), nominated_node_name="")

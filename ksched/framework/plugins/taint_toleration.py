"""TaintToleration: taints of nodes and tolerations of pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Node, Pod
from ksched.api.tolerations import count_intolerable_prefer_no_schedule, find_untolerated
from ksched.framework import (
    PASS_TEMPLATE,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    QueueingHint,
    Resource,
    Scope,
    ScoreDependsOn,
    Status,
    Verdicts,
    default_normalize,
    unresolvable,
)
from ksched.framework.plugins import names

UNTOLERATED = unresolvable("node(s) had untolerated taint(s)")


class TaintToleration:
    """Rejects nodes with taints that the pod does not tolerate, and prefers those with few.

    Taints with the effects NoSchedule and NoExecute reject (reason: ``node(s) had untolerated
    taint(s)``). The score counts untolerated PreferNoSchedule taints: the node with most of them
    gets 0, a node with none 100. No arguments.
    """

    name: ClassVar[str] = names.TAINT_TOLERATION
    filter_depends_on: ClassVar = FilterDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )
    score_depends_on: ClassVar = ScoreDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        """kube-scheduler: DoNotScheduleTaintsFilterFunc."""
        tolerations = pod.template.tolerations
        untolerated = nodes.taints.test(
            lambda taints: find_untolerated(taints, tolerations) is not None
        )
        return Verdicts.rejecting(untolerated, UNTOLERATED)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        """Never skips: without any taint every node gets the full score.

        kube-scheduler: getAllTolerationPreferNoSchedule.
        """
        return PASS_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        """kube-scheduler: countIntolerableTaintsPreferNoSchedule."""
        tolerations = pod.template.tolerations
        return nodes.taints.count(
            lambda taints: count_intolerable_prefer_no_schedule(taints, tolerations)
        )

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return default_normalize(scores, reverse=True)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        toleration = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
        return (
            ClusterEventWithHint(node, self._is_schedulable_after_node_change, per_pod=False),
            ClusterEventWithHint(toleration, self._is_schedulable_after_pod_toleration_change),
        )

    def _is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node
    ) -> QueueingHint:
        was_rejected = old is None or _rejects(old, pod)
        if was_rejected and not _rejects(new, pod):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _is_schedulable_after_pod_toleration_change(
        self, pod: PodInfo, old: Pod, new: Pod
    ) -> QueueingHint:
        return QueueingHint.QUEUE if new.metadata.uid == pod.uid else QueueingHint.SKIP


def _rejects(node: Node, pod: PodInfo) -> bool:
    return find_untolerated(node.spec.taints, pod.template.tolerations) is not None

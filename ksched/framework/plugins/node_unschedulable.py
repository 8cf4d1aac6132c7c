"""NodeUnschedulable: cordoned nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ksched.api.objects import Node, Pod
from ksched.api.tolerations import UNSCHEDULABLE_TAINT, Tolerations
from ksched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    Verdicts,
    template_fact,
    unresolvable,
)
from ksched.framework.plugins import names

UNSCHEDULABLE = unresolvable("node(s) were unschedulable")


class NodeUnschedulable:
    """Rejects nodes with ``spec.unschedulable``, as set by ``kubectl cordon``.

    A pod passes nevertheless if it tolerates the taint
    ``node.kubernetes.io/unschedulable:NoSchedule``, whether or not the node has it (DaemonSet pods
    do). Reason: ``node(s) were unschedulable``. No arguments.
    """

    name: ClassVar[str] = names.NODE_UNSCHEDULABLE
    filter_depends_on: ClassVar = FilterDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        if _template_tolerates(pod.template):
            return Verdicts.passing(len(nodes))
        return Verdicts.rejecting(nodes.unschedulable, UNSCHEDULABLE)

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
        was_unavailable = old is None or old.spec.unschedulable
        if was_unavailable and not new.spec.unschedulable:
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _is_schedulable_after_pod_toleration_change(
        self, pod: PodInfo, old: Pod, new: Pod
    ) -> QueueingHint:
        if new.metadata.uid != pod.uid:
            return QueueingHint.SKIP
        tolerates = Tolerations(new.spec.tolerations).cover(UNSCHEDULABLE_TAINT)
        return QueueingHint.QUEUE if tolerates else QueueingHint.SKIP


@template_fact
def _template_tolerates(template: PodTemplate) -> bool:
    return template.tolerations.cover(UNSCHEDULABLE_TAINT)

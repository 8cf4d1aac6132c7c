"""SchedulingGates: pods with ``spec.schedulingGates``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ksched.api.objects import Pod
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Status,
    template_fact,
    unresolvable,
)
from ksched.framework.plugins import names


class SchedulingGates:
    """Keeps a pod out of the queue while it has ``spec.schedulingGates``.

    Reason: ``waiting for scheduling gates: [a b]``. No Event and no condition is written for such a
    pod; the API server itself sets SchedulingGated. No arguments.
    """

    name: ClassVar[str] = names.SCHEDULING_GATES

    def pre_enqueue(self, pod: PodInfo) -> Status:
        gates = pod.template.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return _waiting(pod.template)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        eliminated = ClusterEvent(
            Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        )
        return (ClusterEventWithHint(eliminated, self._after_pod_update),)

    def _after_pod_update(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        """kube-scheduler: isSchedulableAfterUpdatePodSchedulingGatesEliminated."""
        return QueueingHint.QUEUE if new.metadata.uid == pod.uid else QueueingHint.SKIP


@template_fact
def _waiting(template: PodTemplate) -> Status:
    gate_names = " ".join(gate.name for gate in template.spec.scheduling_gates)
    return unresolvable(f"waiting for scheduling gates: [{gate_names}]")

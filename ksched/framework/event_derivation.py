"""Derives events from two versions of an object.

Specific events let hints decide quickly. Any other change is a generic Update for pods and no event
for nodes, whose heartbeats would otherwise wake every waiting pod (framework/events.go, v1.36).
"""

from __future__ import annotations

from typing import Any

from ksched.api.objects import Node, NodeCondition, Pod
from ksched.api.pod_resources import pod_requests_with_status
from ksched.framework.cluster_events import Action, ClusterEvent, Resource


def pod_update_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """Return the events of a pod update; never empty.

    kube-scheduler: PodSchedulingPropertiesChange, extractPodTolerationChange.
    """
    assigned = bool(new.spec.node_name)
    resource = Resource.ASSIGNED_POD if assigned else Resource.UNSCHEDULABLE_POD
    actions = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if _is_scaled_down(old, new):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    # Tolerations of an existing pod can only be added, so comparing the number suffices.
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    if _generated_claims(old) != _generated_claims(new):
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return [ClusterEvent(resource, action) for action in actions or [Action.UPDATE]]


def node_update_events(old: Node, new: Node) -> list[ClusterEvent]:
    """Return the events of a node update; empty if no event describes the change.

    kube-scheduler: NodeSchedulingPropertiesChange.
    """
    actions = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        actions.append(Action.UPDATE_NODE_TAINT)
    if old.status.allocatable != new.status.allocatable:
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints and Action.UPDATE_NODE_TAINT not in actions:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _statuses(old.status.conditions) != _statuses(new.status.conditions):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action) for action in actions]


def _generated_claims(pod: Pod) -> tuple[Any, ...]:
    return pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status


def _is_scaled_down(old: Pod, new: Pod) -> bool:
    """kube-scheduler: extractPodScaleDown."""
    # Most updates change only the status of a running pod and leave these fields equal; summing
    # the requests costs ten times as much as comparing.
    if _requests_follow_from(old) == _requests_follow_from(new):
        return False
    requested = pod_requests_with_status(new)
    return any(
        name not in requested or requested[name] < amount
        for name, amount in pod_requests_with_status(old).items()
    )


def _requests_follow_from(pod: Pod) -> tuple[Any, ...]:
    spec, status = pod.spec, pod.status
    return (
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
        status.container_statuses,
        status.init_container_statuses,
        status.resources,
        status.allocated_resources,
        [one.reason for one in status.conditions if one.type == "PodResizePending"],
    )


def _statuses(conditions: list[NodeCondition]) -> dict[str, str]:
    """kube-scheduler: extractNodeConditionsChange."""
    return {condition.type: condition.status for condition in conditions}

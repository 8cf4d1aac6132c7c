"""NodeDeclaredFeatures: features that a node's kubelet must declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ksched.api.objects import Node, Pod, PodSpec
from ksched.framework import (
    PASS_TEMPLATE,
    SKIP_TEMPLATE,
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
    Snapshot,
    Status,
    Verdicts,
    template_fact,
    unresolvable,
)
from ksched.framework.plugins import names

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
MISSING = unresolvable("node(s) didn't match Pod's required features")


class NodeDeclaredFeatures:
    """Rejects nodes that do not declare the features that the pod's spec uses.

    ``RestartAllContainersOnContainerExits`` is required by a container with a restart rule of the
    action RestartAllContainers, ``UserNamespacesHostNetworkSupport`` by a pod with ``hostNetwork``
    and ``hostUsers: false``. Nodes declare theirs in ``status.declaredFeatures``. Reason:
    ``node(s) didn't match Pod's required features``. No arguments.
    """

    name: ClassVar[str] = names.NODE_DECLARED_FEATURES
    filter_depends_on: ClassVar = FilterDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        return PASS_TEMPLATE if _required(pod.template) else SKIP_TEMPLATE

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        required = _required(pod.template)
        lacking = np.array([not required <= _declared(info.node) for info in nodes.infos], np.bool_)
        return Verdicts.rejecting(lacking, MISSING)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE)
        update = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)
        return (
            ClusterEventWithHint(node, self._is_schedulable_after_node_change, per_pod=False),
            ClusterEventWithHint(update, self._is_schedulable_after_pod_update),
        )

    def _is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node
    ) -> QueueingHint:
        if old is not None and old.status.declared_features == new.status.declared_features:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def _is_schedulable_after_pod_update(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        if new.metadata.uid != pod.uid:
            return QueueingHint.SKIP
        if _required_by(old.spec) == _required_by(new.spec):
            return QueueingHint.SKIP
        return QueueingHint.QUEUE


@template_fact
def _required(template: PodTemplate) -> frozenset[str]:
    return _required_by(template.spec)


def _required_by(spec: PodSpec) -> frozenset[str]:
    required = set()
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.init_containers, *spec.containers)
        for rule in container.restart_policy_rules
    ):
        required.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        required.add(USER_NAMESPACES_HOST_NETWORK)
    return frozenset(required)


def _declared(node: Node | None) -> frozenset[str]:
    return frozenset(node.status.declared_features) if node is not None else frozenset()

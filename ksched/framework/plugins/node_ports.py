"""NodePorts: host ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ksched.api.objects import Pod
from ksched.framework import (
    PASS_TEMPLATE,
    SKIP_TEMPLATE,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    HostPort,
    NodeRows,
    PodInfo,
    QueueingHint,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    host_ports_of,
    ports_conflict,
    unschedulable,
)
from ksched.framework.memoizing import memoize_last
from ksched.framework.plugins import names

NO_FREE_PORTS = unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts:
    """Rejects nodes on which a host port that the pod requests is in use.

    Ports of containers and sidecars count; the address 0.0.0.0 (the default) stands for all
    addresses of a node. Reason: ``node(s) didn't have free ports for the requested pod ports``. No
    arguments.
    """

    name: ClassVar[str] = names.NODE_PORTS
    filter_depends_on: ClassVar = FilterDependsOn(
        Scope.ROW, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        return PASS_TEMPLATE if pod.template.host_ports else SKIP_TEMPLATE

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        """kube-scheduler: fitsPorts."""
        wanted = pod.template.wanted_ports
        taken = nodes.uses_host_ports.copy()
        if wanted and taken.any():
            infos = nodes.infos
            for position in np.flatnonzero(taken):
                taken[position] = ports_conflict(wanted, infos[position].used_ports)
        return Verdicts.rejecting(taken, NO_FREE_PORTS)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        deleted = ClusterEvent(Resource.POD, Action.DELETE)
        node = ClusterEvent(Resource.NODE, Action.ADD)
        return (
            ClusterEventWithHint(deleted, self._is_schedulable_after_pod_deleted, per_pod=False),
            ClusterEventWithHint(node, per_pod=False),
        )

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        if not old.spec.node_name and not old.status.nominated_node_name:
            return QueueingHint.SKIP
        if ports_conflict(pod.template.wanted_ports, _freed_ports(old)):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP


@memoize_last
def _freed_ports(deleted: Pod) -> tuple[HostPort, ...]:
    return host_ports_of(deleted.spec)

"""NodeName: pods with ``spec.nodeName``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    unresolvable,
)
from ksched.framework.plugins import names

OTHER_NODE = unresolvable("node(s) didn't match the requested node name")


class NodeName:
    """Rejects every node but the one in ``spec.nodeName``, if the pod has one.

    Reason: ``node(s) didn't match the requested node name``. No arguments.
    """

    name: ClassVar[str] = names.NODE_NAME
    # A pod's own nodeName is not part of its template.
    filter_depends_on: ClassVar = FilterDependsOn(Scope.POD)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        return SUCCESS if pod.node_name else SKIP

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        if not pod.node_name:
            return Verdicts.passing(len(nodes))
        return Verdicts.rejecting(~nodes.named(pod.node_name), OTHER_NODE)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD), per_pod=False),)

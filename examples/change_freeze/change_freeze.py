"""Nodes labelled ``example.com/change-freeze: "true"`` take only pods that are urgent."""

from __future__ import annotations

from typing import Any

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    Handle,
    NodeInfo,
    PodInfo,
    Resource,
    Status,
    unschedulable,
)

FROZEN = "example.com/change-freeze"
URGENT = "example.com/urgent"
REASON = "node(s) had a change freeze"


class ChangeFreeze:
    name = "ChangeFreeze"

    def __init__(self, args: Any, handle: Handle) -> None:
        """Called once for each profile that enables the plugin."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Called for every pod and every node that the filters before have left."""
        is_frozen = node.labels.get(FROZEN) == "true"
        if is_frozen and pod.labels.get(URGENT) != "true":
            return unschedulable(REASON)
        return SUCCESS

    def events_to_register(self) -> list[ClusterEventWithHint]:
        """What may change our mind about a pod that we rejected; nothing else wakes it for us."""
        node = Action.ADD | Action.UPDATE_NODE_LABEL
        return [
            ClusterEventWithHint(ClusterEvent(Resource.NODE, node)),
            ClusterEventWithHint(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)),
        ]

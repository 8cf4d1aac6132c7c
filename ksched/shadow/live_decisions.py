"""What the live scheduler decided, read from the changes of a pod.

A bind shows the node. For a pod whose binding takes long (volumes, devices, Permit) kube-scheduler
writes the node to ``status.nominatedNodeName`` first; then that is the decision. A rejection shows
as the condition PodScheduled, and what preemption chose as a nomination in the same update.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ksched.api.objects import Pod, PodCondition
from ksched.shadow.changes import Change

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"


class LiveDecision(Struct, frozen=True):
    """A decision about ``pod`` (as it was before): a node, or a message and maybe a nomination."""

    pod: Pod
    node: str = ""
    message: str = ""
    nominated: str = ""


class LiveDecisions:
    """Recognizes decisions; each is returned once."""

    def __init__(self) -> None:
        self._announced: dict[str, str] = {}
        """By UID, the node of a decision that was seen before the bind."""

    def in_change(self, change: Change) -> LiveDecision | None:
        old, new = change.old, change.new
        if change.kind.struct is not Pod or old is None or old.spec.node_name:
            return None
        uid = old.metadata.uid
        if new is None or new.metadata.uid != uid:
            self._announced.pop(uid, None)
            return None
        if new.spec.node_name:
            announced = self._announced.pop(uid, "")
            if announced == new.spec.node_name:
                return None
            return LiveDecision(old, node=new.spec.node_name)
        rejection, nominated = _rejection(new), new.status.nominated_node_name
        if rejection is not None and rejection != _rejection(old):
            self._announced.pop(uid, None)
            if rejection.reason != UNSCHEDULABLE:
                return None
            return LiveDecision(old, message=rejection.message, nominated=nominated)
        if nominated and nominated != old.status.nominated_node_name:
            self._announced[uid] = nominated
            return LiveDecision(old, node=nominated)
        return None


def _rejection(pod: Pod) -> PodCondition | None:
    for condition in pod.status.conditions:
        if condition.type == POD_SCHEDULED and condition.status == "False":
            return condition
    return None

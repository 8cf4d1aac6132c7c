"""Volcano: the groups of Volcano's controllers, placed together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ksched.framework import SUCCESS, ClusterEventWithHint, Handle, PodInfo, Status, unresolvable
from ksched.framework.plugins import names
from ksched.groups.dialects import volcano
from ksched.groups.registry import Groups


class Volcano:
    """Takes the place of Volcano's scheduler for pods whose controllers create its PodGroups.

    Reads the PodGroup of ``scheduling.volcano.sh/v1beta1`` that a pod names by the annotation
    ``scheduling.k8s.io/group-name``: ``minMember``, ``minTaskMember`` and ``minResources``. Writes
    its phase, ``Inqueue`` above all, without which Volcano's controllers create no pods; so do not
    enable it beside Volcano's own scheduler. Queues have no effect. No arguments.
    """

    name: ClassVar[str] = names.VOLCANO
    reports_gated_pods: ClassVar[bool] = True

    def __init__(self, handle: Handle) -> None:
        self._groups = handle.listers.view(Groups)
        self._groups.read(volcano.Volcano(handle.listers))

    def pre_enqueue(self, pod: PodInfo) -> Status:
        reason = self._groups.why_gated(pod.uid)
        return unresolvable(reason) if reason else SUCCESS

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """None: the registry of groups activates the members of a complete group."""
        return ()

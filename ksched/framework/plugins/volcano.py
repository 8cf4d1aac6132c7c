"""Volcano: the groups of Volcano's controllers, placed together or not at all."""

from __future__ import annotations

from typing import ClassVar

from ksched.framework import Handle
from ksched.framework.plugins import names
from ksched.framework.plugins.group_membership import GroupMembership
from ksched.groups.dialects import volcano


class Volcano(GroupMembership):
    """Takes the place of Volcano's scheduler for pods whose controllers create its PodGroups.

    Reads the PodGroup of ``scheduling.volcano.sh/v1beta1`` that a pod names by the annotation
    ``scheduling.k8s.io/group-name``: ``minMember``, ``minTaskMember`` and ``minResources``. Writes
    its phase, ``Inqueue`` above all, without which Volcano's controllers create no pods; so do not
    enable it beside Volcano's own scheduler. Queues have no effect. No arguments.
    """

    name: ClassVar[str] = names.VOLCANO

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._read(volcano.Volcano(handle.listers))

"""GangScheduling: pods of a group are placed together or not at all."""

from __future__ import annotations

from typing import ClassVar

from ksched.configuration.plugin_args import GangSchedulingArgs
from ksched.framework import Handle
from ksched.framework.plugins import names
from ksched.framework.plugins.group_membership import GroupMembership
from ksched.groups.dialects.annotations import Annotations
from ksched.groups.dialects.in_tree import InTree


class GangScheduling(GroupMembership):
    """Places the pods of a group together or not at all, at least the minimum of the group.

    Reads the PodGroup that a pod names in ``spec.schedulingGroup``, and the annotations
    ``ksched.dev/group`` and ``ksched.dev/group-min`` for clusters without such objects. While there
    is no PodGroup a pod waits with the reason ``waiting for pods's pod group "NAME" to appear in
    scheduling queue``, while the group has too few pods with ``waiting for minCount pods from a
    gang to appear in scheduling queue``. Enabled by the feature gates GenericWorkload and
    GangScheduling together, or by name.

    Arguments: ``protectAfterSeconds`` and ``maxProtectedPercentage`` determine when and how much
    room is reserved for a group that does not fit; not in kube-scheduler.
    """

    name: ClassVar[str] = names.GANG_SCHEDULING

    def __init__(self, args: GangSchedulingArgs | None, handle: Handle) -> None:
        args = args or GangSchedulingArgs()
        super().__init__(handle)
        if args.protect_after_seconds:
            self._groups.protection.after_seconds = args.protect_after_seconds
            self._groups.protection.max_percentage = args.max_protected_percentage
        self._read(InTree(handle.listers))
        self._read(Annotations(self.name))

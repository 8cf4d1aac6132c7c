"""Coscheduling: the groups of scheduler-plugins, placed together or not at all."""

from __future__ import annotations

from typing import ClassVar

from ksched.configuration.plugin_args import CoschedulingArgs
from ksched.framework import Handle
from ksched.framework.plugins import names
from ksched.framework.plugins.group_membership import GroupMembership
from ksched.groups.dialects.annotations import Annotations
from ksched.groups.dialects.koordinator import Koordinator
from ksched.groups.dialects.scheduler_plugins import SchedulerPlugins


class Coscheduling(GroupMembership):
    """Places the pods of a group together or not at all, as scheduler-plugins' Coscheduling.

    Reads the PodGroup of ``scheduling.x-k8s.io/v1alpha1`` that a pod names by the label
    ``scheduling.x-k8s.io/pod-group``, and the annotations ``ksched.dev/group`` and
    ``ksched.dev/group-min``; also Koordinator's groups, by the label
    ``pod-group.scheduling.sigs.k8s.io`` or the annotation ``gang.scheduling.koordinator.sh/name``.
    A pod whose PodGroup does not exist waits, and a group that does not fit holds nothing while it
    waits, so it needs no timeout. Arguments as there; ``podGroupBackoffSeconds`` and
    ``podGroupRejectPercentage`` have no effect; ``protectAfterSeconds`` and
    ``maxProtectedPercentage`` reserve room for a group that waits.
    """

    name: ClassVar[str] = names.COSCHEDULING

    def __init__(self, args: CoschedulingArgs | None, handle: Handle) -> None:
        args = args or CoschedulingArgs()
        super().__init__(handle)
        if args.protect_after_seconds:
            self._groups.protection.after_seconds = args.protect_after_seconds
            self._groups.protection.max_percentage = args.max_protected_percentage
        self._read(SchedulerPlugins(handle.listers, args.permit_waiting_time_seconds))
        self._read(Annotations(self.name))
        self._read(Koordinator(handle.listers))

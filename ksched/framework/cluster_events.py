"""Cluster events, and whether one may make a waiting pod schedulable.

A plugin that rejects pods registers the events that could change its verdict, each with an optional
queueing hint: a cheap check of the changed object that decides whether *this* pod is worth another
attempt. Numeric values and labels are kube-scheduler's (framework/types.go, v1.36): matching
compares them, and the labels are metric label values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, IntFlag, StrEnum
from typing import Any

from msgspec import Struct

from ksched.api.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from ksched.api.objects import Node, Pod
from ksched.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from ksched.api.watched_kinds import event_resource
from ksched.cache.pod_info import PodInfo


class Resource(StrEnum):
    """Kinds of objects whose changes can requeue a pod.

    Kinds declared by plugins are not members; their events use ``WatchedKind.event_resource``.
    """

    POD = event_resource(Pod)
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULABLE_POD = "UnschedulablePod"
    NODE = event_resource(Node)
    PERSISTENT_VOLUME = event_resource(PersistentVolume)
    PERSISTENT_VOLUME_CLAIM = event_resource(PersistentVolumeClaim)
    CSI_NODE = event_resource(CSINode)
    CSI_DRIVER = event_resource(CSIDriver)
    VOLUME_ATTACHMENT = event_resource(VolumeAttachment)
    CSI_STORAGE_CAPACITY = event_resource(CSIStorageCapacity)
    STORAGE_CLASS = event_resource(StorageClass)
    RESOURCE_CLAIM = event_resource(ResourceClaim)
    RESOURCE_SLICE = event_resource(ResourceSlice)
    DEVICE_CLASS = event_resource(DeviceClass)
    DEVICE_TAINT_RULE = event_resource(DeviceTaintRule)
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    WILDCARD = "*"


class Action(IntFlag):
    """The kind of change of the object."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_TOLERATION = 1024
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 2048
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096
    UPDATE = 8188
    ALL = 8191


_ACTION_LABELS = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE: "Update",
    Action.ALL: "All",
}


class ClusterEvent(Struct, frozen=True):
    """A kind of change: the resource and the action."""

    resource: Resource | str
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """kube-scheduler: AllClusterEventLabels."""
        return self.custom_label or f"{self.resource}{_ACTION_LABELS.get(self.action, '')}"

    @property
    def is_wildcard(self) -> bool:
        """kube-scheduler: ClusterEventIsWildCard."""
        return self.resource is Resource.WILDCARD and self.action is Action.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether a registration for ``self`` covers ``incoming``.

        kube-scheduler: MatchClusterEvents.
        """
        if self.is_wildcard:
            return True
        same_resource = self.resource in (Resource.WILDCARD, incoming.resource) or (
            self.resource is Resource.POD
            and incoming.resource in (Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)
        )
        # The numeric comparison is kube-scheduler's: a generic Update matches only "all actions".
        return bool(
            same_resource and self.action & incoming.action and incoming.action <= self.action
        )


def _wildcard(label: str) -> ClusterEvent:
    return ClusterEvent(Resource.WILDCARD, Action.ALL, label)


NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(Resource.NODE, Action.DELETE)
ASSIGNED_POD_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
ASSUMED_POD_FORGOTTEN = ClusterEvent(
    Resource.ASSIGNED_POD, Action.DELETE, ASSIGNED_POD_DELETE.label
)
"""An assumed pod was forgotten before it was bound. For other pods its space is as free as that of
a deleted pod, but no object changed: it results from our own attempt and never skips a backoff. Two
pods that each yield to the other would otherwise be retried in a busy loop."""
UNSCHEDULABLE_POD_ADD = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.ADD)
UNSCHEDULABLE_POD_UPDATE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)
WILDCARD = _wildcard("")
UNSCHEDULABLE_TIMEOUT = _wildcard("UnschedulableTimeout")
FORCE_ACTIVATE = _wildcard("ForceActivate")
BACKOFF_COMPLETE = _wildcard("BackoffComplete")
POP_FROM_BACKOFF = _wildcard("PopFromBackoffQ")
SCHEDULE_ATTEMPT_FAILURE = _wildcard("ScheduleAttemptFailure")
CONFIG_RELOAD = _wildcard("ConfigReload")
"""Other plugins decide from now on: what a pod was rejected for may not hold any more."""


class QueueingHint(Enum):
    """Whether an event makes a pod worth another attempt."""

    SKIP = "QueueSkip"
    QUEUE = "Queue"


HintFunction = Callable[[PodInfo, Any, Any], QueueingHint]
"""``hint(pod, old, new)``: the waiting pod, and the changed API object before and after (``None``
before an addition and after a deletion). It must not read any other cluster state: the cache
already contains the change."""


class Subjects(Struct, frozen=True):
    """Keys by which an event finds the pods that it may concern; hints of others are not called.

    ``of_event(old, new)`` returns the keys of what changed, ``None`` if it may concern any pod.
    ``of_pod`` returns those of a pod, and reads nothing else: it is called when the pod begins to
    wait and when it changes.
    """

    of_event: Callable[[Any, Any], Collection[str] | None]
    of_pod: Callable[[PodInfo], Collection[str]]


class ClusterEventWithHint(Struct, frozen=True):
    """A registered event. Without a hint every matching event requeues.

    ``per_pod`` means that the hint reads the pod's identity (name, UID, status), not only what the
    pods of its template share. Other hints are called once per template. ``is_implicit`` marks the
    registrations of a plugin without ``events_to_register``: a pod that it rejected with PENDING
    waits for none of them specifically, and does not skip its backoff for them.

    ``released`` is for a PreEnqueue plugin that keeps count of the pods it holds back: it returns
    the UIDs of those that it would let pass now. Of the pods that the plugin gates, the event then
    concerns these alone, and the others cost nothing. ``subjects`` select the pods that an event
    concerns by keys, if all registrations of the plugin for the event have them.
    """

    event: ClusterEvent
    hint: HintFunction | None = None
    per_pod: bool = True
    is_implicit: bool = False
    released: Callable[[], Collection[str]] | None = None
    subjects: Subjects | None = None

"""The kinds of objects that are watched: one row each.

A row has the objects' path, the struct they are decoded to, the event resource of their changes,
and the verbs that the scheduler uses. Watches, listers, wake-ups and the roles in
``config/rbac.yaml`` are derived from it. A plugin outside the tree declares its own rows
(``WatchedKind.custom``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ksched.api import resources
from ksched.api.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from ksched.api.objects import (
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from ksched.api.resources import ApiResource
from ksched.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


class HasMetadata(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMetadata)

READ = ("get", "list", "watch")


class Unstructured(Struct, frozen=True):
    """An object as plain data, for kinds without a struct."""

    metadata: ObjectMeta
    object: dict[str, Any]
    """The complete object including ``metadata``, with the names that the API uses."""


@dataclass(frozen=True)
class WatchedKind(Generic[T]):
    """A kind of object that is watched."""

    resource: ApiResource
    struct: type[T]
    """The type of the decoded objects: a ``msgspec.Struct`` with a ``metadata: ObjectMeta``, or
    ``Unstructured``."""
    event_resource: str = ""
    """The name of this kind in a ``ClusterEvent``; without one its changes wake no pod."""
    verbs: tuple[str, ...] = READ
    """The verbs that the scheduler uses: its role must allow them."""
    must_be_served: bool = True
    """Whether the scheduler waits at its start until the API server serves the kind. Otherwise
    there are no such objects until it does."""

    def __post_init__(self) -> None:
        struct: Any = self.struct
        name = getattr(struct, "__name__", repr(struct))
        if not (isinstance(struct, type) and issubclass(struct, Struct)):
            raise TypeError(f"{self.resource}: {name} must be a msgspec.Struct or Unstructured")
        fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
        if fields.get("metadata") is not ObjectMeta:
            raise TypeError(f"{self.resource}: {name} needs a field metadata: ObjectMeta")

    @classmethod
    def custom(
        cls,
        struct: type[T],
        *,
        group: str,
        version: str,
        plural: str,
        kind: str,
        namespaced: bool = True,
    ) -> WatchedKind[T]:
        """Declare a kind that a plugin adds, custom resources above all.

        Its event resource is ``plural.version.group``, as in kube-scheduler.
        """
        resource = ApiResource(group, version, plural, kind, namespaced)
        name = ".".join(filter(None, (plural, version, group)))
        return cls(resource, struct, name, must_be_served=False)


WATCHED_KINDS: tuple[WatchedKind[Any], ...] = (
    WatchedKind(resources.PODS, Pod, "Pod", verbs=(*READ, "delete")),
    WatchedKind(resources.NODES, Node, "Node"),
    WatchedKind(resources.NAMESPACES, Namespace),
    WatchedKind(resources.SERVICES, Service),
    WatchedKind(resources.REPLICATION_CONTROLLERS, ReplicationController),
    WatchedKind(resources.REPLICA_SETS, ReplicaSet),
    WatchedKind(resources.STATEFUL_SETS, StatefulSet),
    WatchedKind(resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
    WatchedKind(
        resources.PERSISTENT_VOLUMES, PersistentVolume, "PersistentVolume", (*READ, "update")
    ),
    WatchedKind(
        resources.PERSISTENT_VOLUME_CLAIMS,
        PersistentVolumeClaim,
        "PersistentVolumeClaim",
        (*READ, "update"),
    ),
    WatchedKind(resources.STORAGE_CLASSES, StorageClass, "storage.k8s.io/StorageClass"),
    WatchedKind(resources.CSI_NODES, CSINode, "storage.k8s.io/CSINode"),
    WatchedKind(resources.CSI_DRIVERS, CSIDriver, "storage.k8s.io/CSIDriver"),
    WatchedKind(
        resources.CSI_STORAGE_CAPACITIES, CSIStorageCapacity, "storage.k8s.io/CSIStorageCapacity"
    ),
    WatchedKind(resources.VOLUME_ATTACHMENTS, VolumeAttachment, "storage.k8s.io/VolumeAttachment"),
    WatchedKind(
        resources.RESOURCE_CLAIMS,
        ResourceClaim,
        "resource.k8s.io/ResourceClaim",
        (*READ, "create", "update", "delete"),
        must_be_served=False,
    ),
    WatchedKind(
        resources.RESOURCE_SLICES,
        ResourceSlice,
        "resource.k8s.io/ResourceSlice",
        must_be_served=False,
    ),
    WatchedKind(
        resources.DEVICE_CLASSES,
        DeviceClass,
        "resource.k8s.io/DeviceClass",
        must_be_served=False,
    ),
    WatchedKind(
        resources.DEVICE_TAINT_RULES,
        DeviceTaintRule,
        "resource.k8s.io/DeviceTaintRule",
        must_be_served=False,
    ),
)

_BY_STRUCT: Mapping[type, WatchedKind[Any]] = {row.struct: row for row in WATCHED_KINDS}


def watched_kind(struct: type[T]) -> WatchedKind[T]:
    """Return the row of a struct; raises ``TypeError`` if there is none."""
    row = _BY_STRUCT.get(struct)
    if row is None:
        raise TypeError(f"{struct!r} is no watched kind, declare one with WatchedKind.custom")
    return row


def event_resource(struct: type[HasMetadata]) -> str:
    """Return the event resource of a kind that can wake pods."""
    name = watched_kind(struct).event_resource
    assert name, f"changes of {struct.__name__} wake no pod"
    return name

"""Paths of each kind of object on the API server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

_is_plain = re.compile(r"[A-Za-z0-9.-]+").fullmatch


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One kind of object: its group and version, its name in a path, and its scope."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of the collection if ``name`` is empty.

        An empty namespace means all namespaces. Names are escaped: they are untrusted.
        """
        path = self.root
        if namespace and self.namespaced:
            path = f"{path}/namespaces/{_segment(namespace)}"
        path = f"{path}/{self.plural}/{_segment(name)}" if name else f"{path}/{self.plural}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(name: str) -> str:
    """Escape a name; nearly all consist of letters, digits, dashes and dots, which is soon seen."""
    return name if _is_plain(name) else quote(name, safe="")


def is_path_of_object(path: str) -> bool:
    """Whether a path is that of one object, not of a collection or a subresource."""
    parts = path.partition("?")[0].split("/")
    parts = parts[3:] if parts[1:2] == ["api"] else parts[4:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return len(parts) == 2


PODS = ApiResource("", "v1", "pods", "Pod")
NODES = ApiResource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = ApiResource("", "v1", "services", "Service")
REPLICATION_CONTROLLERS = ApiResource("", "v1", "replicationcontrollers", "ReplicationController")
PERSISTENT_VOLUMES = ApiResource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
)
PERSISTENT_VOLUME_CLAIMS = ApiResource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
ENDPOINTS = ApiResource("", "v1", "endpoints", "Endpoints")

REPLICA_SETS = ApiResource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
POD_DISRUPTION_BUDGETS = ApiResource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")

STORAGE_CLASSES = ApiResource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
CSI_NODES = ApiResource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = ApiResource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITIES = ApiResource(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"
)
VOLUME_ATTACHMENTS = ApiResource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)

RESOURCE_CLAIMS = ApiResource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = ApiResource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES = ApiResource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
DEVICE_TAINT_RULES = ApiResource(
    "resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
POD_GROUPS = ApiResource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")

EVENTS = ApiResource("events.k8s.io", "v1", "events", "Event")
LEASES = ApiResource("coordination.k8s.io", "v1", "leases", "Lease")

"""The kinds that this server serves: one row each, as data.

A row says how a kind is addressed and which of the general rules apply to it. What is special about
a kind (defaults, validation, columns) lives in the module of that concern, keyed by the plural
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from ksched.apiserver.status_errors import GroupResource

JsonObject: TypeAlias = dict[str, Any]

_NOTHING: JsonObject = {}
_OBJECT_FIELDS = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}


@dataclass(frozen=True)
class Resource:
    """How one kind is served."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    """Has a ``status`` subresource, so that neither endpoint writes the other's half."""
    scale: bool = False
    generation: bool = False
    """``metadata.generation`` counts the changes of its spec."""
    create_on_update: bool = False
    unconditional_update: bool = True
    """A PUT without ``resourceVersion`` overwrites; otherwise it is refused."""
    returns_deleted: bool = False
    """A finished DELETE returns the object instead of a ``Status``."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Field selectors: the name in the URL -> the dotted path in the stored object."""
    storage: str = ""
    is_custom: bool = False
    """Defined by a CustomResourceDefinition."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """The ``additionalPrinterColumns`` of its definition."""

    @cached_property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @cached_property
    def group_kind(self) -> GroupResource:
        return GroupResource(self.group, self.kind)

    @cached_property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def storage_key(self) -> str:
        """Name of the collection its objects live in; two versions of a kind may share one."""
        return self.storage or str(self.group_resource)

    @cached_property
    def field_labels(self) -> Mapping[str, str]:
        labels = {**_OBJECT_FIELDS, **self.fields}
        if not self.namespaced:
            del labels["metadata.namespace"]
        return labels

    @cached_property
    def field_paths(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """The stored names by the part of the object they are in; none is deeper than two."""
        grouped: dict[str, list[tuple[str, str]]] = {}
        for stored in self.field_labels.values():
            section, _, name = stored.rpartition(".")
            grouped.setdefault(section, []).append((stored, name))
        return {section: tuple(names) for section, names in grouped.items()}

    @cached_property
    def preamble(self) -> bytes:
        """The bytes every stored object starts with; items of a list go without them."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.group_version}",'.encode()


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


POD_FIELDS = _same(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)

_EVENT_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = {
    **_same(*(f"involvedObject.{part}" for part in _EVENT_OBJECT)),
    **_same("reason", "reportingComponent", "source", "type"),
}
_NEW_EVENT_FIELDS = {
    **{f"regarding.{part}": f"involvedObject.{part}" for part in _EVENT_OBJECT},
    **_same("reason", "type"),
    "reportingController": "reportingComponent",
}

FIELD_DEFAULTS = {"spec.unschedulable": "false", "spec.hostNetwork": "false"}
"""What an absent field is taken for, where that is not the empty string."""

PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    short_names=("po",),
    categories=("all",),
    status=True,
    generation=True,
    returns_deleted=True,
    fields=POD_FIELDS,
)
NODES = Resource(
    "",
    "v1",
    "nodes",
    "Node",
    namespaced=False,
    short_names=("no",),
    status=True,
    fields=_same("spec.unschedulable"),
)
NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    status=True,
    returns_deleted=True,
    fields=_same("status.phase"),
)
EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
    short_names=("ev",),
    create_on_update=True,
    fields=_EVENT_FIELDS,
    storage="events",
)
NEW_EVENTS = Resource(
    "events.k8s.io",
    "v1",
    "events",
    "Event",
    short_names=("ev",),
    create_on_update=True,
    fields=_NEW_EVENT_FIELDS,
    storage="events",
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    namespaced=False,
    short_names=("pc",),
    generation=True,
)
DISRUPTION_BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    short_names=("pdb",),
    status=True,
    generation=True,
    unconditional_update=False,
)
LEASES = Resource(
    "coordination.k8s.io",
    "v1",
    "leases",
    "Lease",
    create_on_update=True,
    unconditional_update=False,
)


CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
    generation=True,
    unconditional_update=False,
    returns_deleted=True,
)


def _workload(plural: str, kind: str, short: tuple[str, ...], scale: bool = True) -> Resource:
    return Resource(
        "apps",
        "v1",
        plural,
        kind,
        short_names=short,
        categories=("all",),
        status=True,
        scale=scale,
        generation=True,
    )


DEPLOYMENTS = _workload("deployments", "Deployment", ("deploy",))
REPLICA_SETS = _workload("replicasets", "ReplicaSet", ("rs",))


def _core(plural: str, kind: str, *short: str, **options: Any) -> Resource:
    return Resource("", "v1", plural, kind, short_names=short, **options)


def _storage(plural: str, kind: str, *short: str, **options: Any) -> Resource:
    options = {"namespaced": False, "returns_deleted": True, **options}
    return Resource("storage.k8s.io", "v1", plural, kind, short_names=short, **options)


def _rbac(plural: str, kind: str, namespaced: bool) -> Resource:
    group = "rbac.authorization.k8s.io"
    return Resource(group, "v1", plural, kind, namespaced=namespaced, create_on_update=True)


def _device(plural: str, kind: str, **options: Any) -> Resource:
    return Resource("resource.k8s.io", "v1", plural, kind, returns_deleted=True, **options)


RESOURCES: tuple[Resource, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    _core("services", "Service", "svc", categories=("all",), status=True, returns_deleted=True),
    _core("endpoints", "Endpoints", "ep", create_on_update=True),
    _core("configmaps", "ConfigMap", "cm"),
    _core("secrets", "Secret", fields=_same("type")),
    _core("serviceaccounts", "ServiceAccount", "sa", returns_deleted=True),
    _core(
        "replicationcontrollers",
        "ReplicationController",
        "rc",
        categories=("all",),
        status=True,
        scale=True,
        generation=True,
        fields=_same("status.replicas"),
    ),
    _core(
        "persistentvolumes",
        "PersistentVolume",
        "pv",
        namespaced=False,
        status=True,
        returns_deleted=True,
    ),
    _core(
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        "pvc",
        status=True,
        returns_deleted=True,
    ),
    DEPLOYMENTS,
    REPLICA_SETS,
    _workload("statefulsets", "StatefulSet", ("sts",)),
    _workload("daemonsets", "DaemonSet", ("ds",), scale=False),
    Resource("batch", "v1", "jobs", "Job", categories=("all",), status=True, generation=True),
    DISRUPTION_BUDGETS,
    NEW_EVENTS,
    PRIORITY_CLASSES,
    LEASES,
    _storage("storageclasses", "StorageClass", "sc"),
    _storage("csinodes", "CSINode", unconditional_update=False),
    _storage("csidrivers", "CSIDriver", unconditional_update=False),
    _storage(
        "csistoragecapacities",
        "CSIStorageCapacity",
        namespaced=True,
        returns_deleted=False,
        unconditional_update=False,
    ),
    _storage("volumeattachments", "VolumeAttachment", status=True, unconditional_update=False),
    _device("resourceclaims", "ResourceClaim", status=True),
    _device("resourceclaimtemplates", "ResourceClaimTemplate"),
    _device("resourceslices", "ResourceSlice", namespaced=False, generation=True),
    _device("deviceclasses", "DeviceClass", namespaced=False, generation=True),
    # As with the feature gate DRADeviceTaintRules.
    Resource(
        "resource.k8s.io",
        "v1beta2",
        "devicetaintrules",
        "DeviceTaintRule",
        namespaced=False,
        status=True,
        generation=True,
        returns_deleted=True,
    ),
    _rbac("clusterroles", "ClusterRole", False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", False),
    _rbac("roles", "Role", True),
    _rbac("rolebindings", "RoleBinding", True),
    CUSTOM_RESOURCE_DEFINITIONS,
    # As with the feature gate GenericWorkload.
    Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload", generation=True),
    Resource(
        "scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", status=True, generation=True
    ),
)


class ServedResources:
    """The kinds that one server serves: those above, and custom ones that come and go."""

    def __init__(self) -> None:
        self._by_path = {(row.group, row.version, row.plural): row for row in RESOURCES}

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def add(self, row: Resource) -> None:
        """Serve a custom kind; one of the kinds above stays as it is."""
        self._by_path.setdefault((row.group, row.version, row.plural), row)

    def remove(self, row: Resource) -> None:
        self._by_path.pop((row.group, row.version, row.plural), None)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())


def selectable_fields(resource: Resource, obj: JsonObject) -> dict[str, str]:
    """Project an object on the fields that selectors may use, under their stored names."""
    values = {}
    for section, names in resource.field_paths.items():
        owner = obj.get(section) or _NOTHING if section else obj
        for stored, name in names:
            value = owner.get(name)
            if value is None:
                value = FIELD_DEFAULTS.get(stored, "")
            elif type(value) is not str:
                value = str(value).lower()
            values[stored] = value
    if resource.storage_key == "events":
        source = obj.get("source") or {}
        values["source"] = source.get("component") or obj.get("reportingComponent") or ""
    return values

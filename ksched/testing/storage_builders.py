"""Volumes, claims and classes for tests, built like pods and nodes (see ``builders``).

make_claim("data", storage_class="fast").bound_to("pv1").obj()
make_volume("pv1", "10Gi").on_node("n1").obj()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from ksched.api.objects import Quantity
from ksched.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from ksched.testing.builders import Builder, PodBuilder

_STORAGE = "storage.k8s.io/v1"


def make_claim(
    name: str = "claim",
    storage_class: str | None = None,
    request: Quantity = "1Gi",
    namespace: str = "default",
    modes: Iterable[str] = ("ReadWriteOnce",),
) -> ClaimBuilder:
    """Start an unbound claim."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid:{namespace}/{name}"}
    spec: dict[str, Any] = {
        "accessModes": list(modes),
        "resources": {"requests": {"storage": request}},
    }
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return ClaimBuilder({**kind, "metadata": metadata, "spec": spec})


def make_volume(
    name: str = "volume",
    capacity: Quantity = "10Gi",
    storage_class: str = "",
    modes: Iterable[str] = ("ReadWriteOnce",),
    driver: str = "csi.example",
) -> VolumeBuilder:
    """Start an available CSI volume that every node can reach."""
    spec = {
        "capacity": {"storage": capacity},
        "accessModes": list(modes),
        "storageClassName": storage_class,
        "csi": {"driver": driver, "volumeHandle": name},
    }
    kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
    metadata = {"name": name, "uid": f"uid:{name}"}
    status = {"phase": "Available"}
    return VolumeBuilder({**kind, "metadata": metadata, "spec": spec, "status": status})


def make_storage_class(
    name: str = "fast", provisioner: str = "csi.example", *, waits: bool = True
) -> StorageClassBuilder:
    """Start a class, by default one that waits for the first consumer."""
    kind = {"apiVersion": _STORAGE, "kind": "StorageClass"}
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    metadata = {"name": name, "uid": f"uid:{name}"}
    fields = {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode}
    return StorageClassBuilder({**kind, **fields})


def make_csi_node(name: str, **limits: int | None) -> CSINodeBuilder:
    """Start a CSINode with drivers and their limits; ``csi_example`` stands for csi.example."""
    kind = {"apiVersion": _STORAGE, "kind": "CSINode"}
    node = CSINodeBuilder({**kind, "metadata": {"name": name}, "spec": {"drivers": []}})
    for driver, limit in limits.items():
        node = node.driver(driver.replace("_", "."), limit)
    return node


def make_csi_driver(
    name: str = "csi.example", *, storage_capacity: bool = True
) -> CSIDriverBuilder:
    kind = {"apiVersion": _STORAGE, "kind": "CSIDriver"}
    spec = {"storageCapacity": storage_capacity}
    return CSIDriverBuilder({**kind, "metadata": {"name": name}, "spec": spec})


def make_capacity(
    name: str,
    storage_class: str,
    capacity: Quantity | None = None,
    labels: Mapping[str, str] | None = None,
) -> CapacityBuilder:
    """Start a CSIStorageCapacity for nodes with these labels; without any, for all nodes."""
    kind = {"apiVersion": _STORAGE, "kind": "CSIStorageCapacity"}
    fields: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": storage_class,
        "nodeTopology": {"matchLabels": dict(labels)} if labels else {},
    }
    if capacity is not None:
        fields["capacity"] = capacity
    return CapacityBuilder({**kind, **fields})


def make_attachment(name: str, node: str, volume: str | None, attacher: str) -> AttachmentBuilder:
    source = {} if volume is None else {"persistentVolumeName": volume}
    kind = {"apiVersion": _STORAGE, "kind": "VolumeAttachment"}
    spec = {"attacher": attacher, "nodeName": node, "source": source}
    return AttachmentBuilder({**kind, "metadata": {"name": name}, "spec": spec})


class ClaimBuilder(Builder[PersistentVolumeClaim]):
    kind = PersistentVolumeClaim

    def bound_to(self, volume: str) -> Self:
        """Bind it completely."""
        annotated = self.annotation({BIND_COMPLETED: "yes"})
        return annotated.named_volume(volume).merge({"status": {"phase": "Bound"}})

    def named_volume(self, volume: str) -> Self:
        """Set the volume's name, which alone does not bind."""
        return self.merge({"spec": {"volumeName": volume}})

    def selected_node(self, node: str) -> Self:
        return self.annotation({SELECTED_NODE: node})

    def phase(self, phase: str) -> Self:
        return self.merge({"status": {"phase": phase}})

    def terminating(self) -> Self:
        return self.merge({"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}})

    def made_for(self, pod: PodBuilder) -> Self:
        """Make the pod its controller, as the ephemeral volume controller does."""
        meta = pod.to_dict()["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        return self.merge({"metadata": {"ownerReferences": [{**owner, "controller": True}]}})


class VolumeBuilder(Builder[PersistentVolume]):
    kind = PersistentVolume

    def reachable_from(self, key: str, *values: str) -> Self:
        """Add a term: nodes whose label has one of these values can reach the volume."""
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
        path = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")
        return self._append(*path, item=term)

    def on_node(self, name: str) -> Self:
        """Make it a local disk of one node."""
        return self.reachable_from("kubernetes.io/hostname", name)

    def reserved_for(self, claim: ClaimBuilder, *, uid: str | None = None) -> Self:
        meta = claim.to_dict()["metadata"]
        reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"] if uid is None else uid,
        }
        return self.merge({"spec": {"claimRef": reference}})

    def phase(self, phase: str) -> Self:
        return self.merge({"status": {"phase": phase}})

    def source(self, **source: Mapping[str, Any]) -> Self:
        """Set another source than CSI, such as ``awsElasticBlockStore={...}``."""
        return self.merge({"spec": {"csi": None, **source}})


class StorageClassBuilder(Builder[StorageClass]):
    kind = StorageClass

    def allowed_in(self, key: str, *values: str) -> Self:
        """Add a topology in which volumes may be provisioned."""
        term = {"matchLabelExpressions": [{"key": key, "values": list(values)}]}
        return self._append("allowedTopologies", item=term)


class CSINodeBuilder(Builder[CSINode]):
    kind = CSINode

    def driver(self, name: str, limit: int | None = None) -> Self:
        driver: dict[str, Any] = {"name": name, "nodeID": "x", "topologyKeys": []}
        if limit is not None:
            driver["allocatable"] = {"count": limit}
        return self._append("spec", "drivers", item=driver)

    def migrated(self, *plugins: str) -> Self:
        annotation = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(plugins)}
        return self.annotation(annotation)


class CSIDriverBuilder(Builder[CSIDriver]):
    kind = CSIDriver


class CapacityBuilder(Builder[CSIStorageCapacity]):
    kind = CSIStorageCapacity


class AttachmentBuilder(Builder[VolumeAttachment]):
    kind = VolumeAttachment

"""Random admissible nodes, volumes, claims, classes, namespaces and budgets."""

from __future__ import annotations

from zlib import crc32

from ksched.apiserver.served_resources import JsonObject
from lab.fuzz.values import (
    COUNTS,
    EFFECTS,
    INT32_MAX,
    INT64_MAX,
    QUANTITIES,
    TEXTS,
    EdgeValues,
)

_SIZES = (0, 1, 20 << 20, 950 << 20, 2**40, INT64_MAX)
CLASSES = ("immediate", "late")
_STORAGE = "storage.k8s.io/v1"


class ClusterFuzzer(EdgeValues):
    """A source of everything but pods, as JSON."""

    def node(self, name: str) -> JsonObject:
        amounts = self.quantities() | {"pods": self.one_of(("0", "1", "110", *COUNTS))}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **self.labels(4)},
                "annotations": {"note": self.one_of(TEXTS)},
            },
            "spec": self._node_spec(),
            "status": {"capacity": amounts, "allocatable": amounts, "images": self._images()},
        }

    def _node_spec(self) -> JsonObject:
        taints = {
            (self.key(), self.one_of(EFFECTS)): self.value()
            for _ in range(self.count(1) if self.sometimes(40) else 0)
        }
        return {
            "unschedulable": self.sometimes(5),
            "taints": [
                {"key": key, "effect": effect, "value": value}
                for (key, effect), value in taints.items()
            ],
        }

    def _images(self) -> list[JsonObject]:
        """Every node reports the same size of an image: whose report comes first is not defined."""
        names = [
            self.one_of(("a:1", "b:latest", f"image{number}:1")) for number in range(self.count(2))
        ]
        return [{"names": [name], "sizeBytes": _SIZES[crc32(name.encode()) % 6]} for name in names]

    def storage_class(self, name: str) -> JsonObject:
        mode = "WaitForFirstConsumer" if name == "late" else "Immediate"
        return {
            "apiVersion": _STORAGE,
            "kind": "StorageClass",
            "metadata": {"name": name, "labels": self.labels(1)},
            "provisioner": self.one_of(("kubernetes.io/no-provisioner", "csi.example.com")),
            "volumeBindingMode": mode,
        }

    def volume(self, name: str, node_names: list[str]) -> JsonObject:
        spec: JsonObject = {
            "capacity": {"storage": self.one_of(QUANTITIES)},
            "accessModes": [self.one_of(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"))],
            "storageClassName": self.one_of(("", *CLASSES)),
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
        }
        if self.sometimes():
            values = [self.one_of([*node_names, "nowhere"]) for _ in range(1 + self.count(1))]
            rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": values}
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
            }
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": self.labels(2)},
            "spec": spec,
        }

    def claim(self, name: str, volume_names: list[str]) -> JsonObject:
        spec: JsonObject = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self.one_of(QUANTITIES[1:])}},
            "storageClassName": self.one_of(("", *CLASSES)),
        }
        if volume_names and self.sometimes(30):
            spec["volumeName"] = self.one_of(volume_names)
        if self.sometimes(20):
            spec["selector"] = self.label_selector()
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.one_of(("default", "tenant"))},
            "spec": spec,
        }

    def csi_node(self, name: str) -> JsonObject:
        driver = {
            "name": "csi.example.com",
            "nodeID": name,
            "allocatable": {"count": self.one_of((0, 1, INT32_MAX))},
        }
        return {
            "apiVersion": _STORAGE,
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": [driver] if self.sometimes(80) else []},
        }

    def namespace(self, name: str) -> JsonObject:
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": self.labels()},
        }

    def priority_class(self, name: str) -> JsonObject:
        return {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": {"low": -(2**31), "high": 10**9}[name],
        }

    def disruption_budget(self, name: str) -> JsonObject:
        amount = self.one_of((0, INT32_MAX, "0%", "100%"))
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": self.one_of(("default", "tenant"))},
            "spec": {"selector": self.label_selector(), "minAvailable": amount},
        }

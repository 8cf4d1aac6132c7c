"""Random storage: classes, volumes, claims, limits and the pods that use them.

As in ``random_clusters``, values come from small sets, so that claims find volumes, pods share
claims and nodes reach their limits.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from ksched.api.objects import Node, Pod
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
from lab.random_clusters import RandomCluster

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
EBS_ZONE: Final = "topology.ebs.csi.aws.com/zone"
NAMESPACES: Final = ("alpha", "beta")
CLASSES: Final = ("static", "dynamic", "zonal", "immediate", "old")
CLAIMS: Final = tuple(f"c{number}" for number in range(7))
VOLUMES: Final = tuple(f"v{number}" for number in range(9))
DRIVERS: Final = ("csi.a", "csi.b", "ebs.csi.aws.com")
_SIZES = ("1Gi", "2Gi", "2048Mi", "5Gi", "10Gi")
_ZONES = ("za", "zb")
_PROVISIONERS = {
    "static": "kubernetes.io/no-provisioner",
    "dynamic": "csi.a",
    "zonal": "csi.b",
    "immediate": "csi.a",
    "old": "kubernetes.io/aws-ebs",
}


class RandomVolumes(RandomCluster):
    """A source of storage objects for one test; equal randomness gives equal objects."""

    def __init__(self, random: Random, node_names: tuple[str, ...]) -> None:
        super().__init__(random)
        self._node_names = node_names

    def node(self, name: str) -> Node:
        labels = {HOSTNAME: name}
        for key in (ZONE, BETA_ZONE, EBS_ZONE):
            if self.sometimes(40):
                labels[key] = self.one_of(_ZONES)
        meta = {"name": name, "uid": f"uid:{name}", "labels": labels}
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        return msgspec.convert({"metadata": meta, "status": {"allocatable": amounts}}, Node)

    # -- classes and drivers ---------------------------------------------------------------------

    def storage_class(self) -> StorageClass:
        name = self.one_of(CLASSES)
        mode = "Immediate" if name == "immediate" else "WaitForFirstConsumer"
        fields: dict[str, Any] = {
            "metadata": {"name": name},
            "provisioner": _PROVISIONERS[name],
            "volumeBindingMode": mode,
        }
        if name == "zonal" and self.sometimes(80):
            fields["allowedTopologies"] = self.several(self._topology, 2)
        return msgspec.convert(fields, StorageClass)

    def _topology(self) -> dict[str, Any]:
        wanted = {"key": self.one_of((ZONE, HOSTNAME)), "values": [*_ZONES[:1], "n1", "n2"]}
        return {"matchLabelExpressions": [wanted] if self.sometimes(90) else []}

    def csi_node(self) -> CSINode:
        meta: dict[str, Any] = {"name": self.one_of(self._node_names)}
        if self.sometimes():
            moved = self.one_of(("aws-ebs", "gce-pd", "azure-disk"))
            plugins = f"kubernetes.io/{moved},kubernetes.io/cinder"
            meta["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": plugins}
        drivers: list[dict[str, Any]] = []
        for name in DRIVERS:
            if self.sometimes(80):
                limit = {"count": self.one_of((0, 1, 2, 3))} if self.sometimes(85) else {}
                drivers.append({"name": name, "allocatable": limit})
        return msgspec.convert({"metadata": meta, "spec": {"drivers": drivers}}, CSINode)

    def csi_driver(self) -> CSIDriver:
        spec = {"storageCapacity": self.sometimes(70)}
        return msgspec.convert(
            {"metadata": {"name": self.one_of(DRIVERS)}, "spec": spec}, CSIDriver
        )

    def capacity(self) -> CSIStorageCapacity:
        name = f"s{self.random.randrange(4)}"
        fields: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "kube-system"},
            "storageClassName": self.one_of(("dynamic", "zonal")),
        }
        for field in ("capacity", "maximumVolumeSize"):
            if self.sometimes(60):
                fields[field] = self.one_of(_SIZES)
        if self.sometimes(90):
            key, value = self.one_of(((ZONE, "za"), (HOSTNAME, "n1"), (HOSTNAME, "n2")))
            fields["nodeTopology"] = {"matchLabels": {key: value}} if self.sometimes(90) else {}
            if self.sometimes(20):
                exists = [{"key": BETA_ZONE, "operator": "Exists"}]
                fields["nodeTopology"]["matchExpressions"] = exists
        return msgspec.convert(fields, CSIStorageCapacity)

    def attachment(self) -> VolumeAttachment:
        source = {"persistentVolumeName": self.one_of(VOLUMES)} if self.sometimes(90) else {}
        attacher = self.one_of((*DRIVERS, ""))
        node = self.one_of(self._node_names)
        spec = {"attacher": attacher, "nodeName": node, "source": source}
        meta = {"name": f"a{self.random.randrange(5)}"}
        return msgspec.convert({"metadata": meta, "spec": spec}, VolumeAttachment)

    # -- volumes and claims ----------------------------------------------------------------------

    def volume(self) -> PersistentVolume:
        name = self.one_of(VOLUMES)
        meta: dict[str, Any] = {"name": name, "resourceVersion": str(self.random.randrange(10**9))}
        labels = {"tier": self.one_of(("gold", "tin"))}
        if self.sometimes(25):
            labels[self.one_of((ZONE, BETA_ZONE))] = self.one_of(("za", "zb", "za__zb", "za__"))
        meta["labels"] = labels
        if self.sometimes(8):
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec: dict[str, Any] = {
            # A size of its own for every volume: which of two equal ones is chosen is free.
            "capacity": {"storage": f"{self.one_of((1, 2, 5, 10))}{VOLUMES.index(name)}00Mi"},
            "accessModes": self.one_of((["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"])),
            "storageClassName": self.one_of(CLASSES[:3]),
        }
        spec |= self._source(name)
        if self.sometimes(10):
            spec["volumeMode"] = "Block"
        if self.sometimes(60):
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": self._terms()}}
        if self.sometimes(20):
            spec["claimRef"] = self._claim_ref()
        phase = "Available" if self.sometimes(85) else "Released"
        fields = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
        return msgspec.convert(fields, PersistentVolume)

    def _source(self, name: str) -> dict[str, Any]:
        if self.sometimes(70):
            return {"csi": {"driver": self.one_of(DRIVERS), "volumeHandle": name}}
        return self.one_of(
            (
                {"awsElasticBlockStore": {"volumeID": f"aws://za/vol-{name}"}},
                {"cinder": {"volumeID": name}},
                {"azureFile": {"secretName": "s", "shareName": name}},
                {"local": {"path": "/mnt"}},
            )
        )

    def _terms(self) -> list[dict[str, Any]]:
        def term() -> dict[str, Any]:
            return {"matchExpressions": self.several(self._reachability, 2, 1)}

        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        terms = self.several(term, 2, 1)
        return [*terms, named] if self.sometimes(10) else terms

    def _reachability(self) -> dict[str, Any]:
        if self.sometimes(70):
            names = self.several(lambda: self.one_of(self._node_names), 2, 1)
            return {"key": HOSTNAME, "operator": "In", "values": names}
        if self.sometimes():
            return {"key": ZONE, "operator": "In", "values": [self.one_of(_ZONES)]}
        return {"key": BETA_ZONE, "operator": "DoesNotExist"}

    def _claim_ref(self) -> dict[str, Any]:
        name, namespace = self.one_of(CLAIMS), self.one_of(NAMESPACES)
        reference = {"kind": "PersistentVolumeClaim", "name": name, "namespace": namespace}
        if self.sometimes(70):
            reference["uid"] = f"uid:{namespace}/{name}" if self.sometimes(80) else "other"
        return reference

    def claim(self, name: str = "", namespace: str = "") -> PersistentVolumeClaim:
        name, namespace = name or self.one_of(CLAIMS), namespace or self.one_of(NAMESPACES)
        meta: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid:{namespace}/{name}",
            "resourceVersion": str(self.random.randrange(10**9)),
        }
        annotations = {}
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOncePod"] if self.sometimes(15) else ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self.one_of(_SIZES)}},
        }
        if self.sometimes(97):
            usual = ("static", "dynamic", "zonal", "old")
            odd = self.sometimes(6)
            spec["storageClassName"] = self.one_of(("immediate", "missing") if odd else usual)
        if self.sometimes(40):
            spec["volumeName"] = self.one_of(VOLUMES)
            if self.sometimes(95):
                annotations[BIND_COMPLETED] = "yes"
        elif self.sometimes(15):
            annotations[SELECTED_NODE] = self.one_of(self._node_names)
        if self.sometimes(10):
            spec["selector"] = {"matchLabels": {"tier": "gold"}}
        if self.sometimes(2):
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        status = {"phase": "Lost"} if self.sometimes(2) else {}
        fields = {"metadata": {**meta, "annotations": annotations}, "spec": spec, "status": status}
        return msgspec.convert(fields, PersistentVolumeClaim)

    # -- pods ------------------------------------------------------------------------------------

    def pod(self, name: str, node_name: str = "") -> Pod:
        namespace = self.one_of(NAMESPACES)
        volumes = self.several(self._pod_volume, self.one_of((1, 2, 4)), 1)
        for number, volume in enumerate(volumes):
            volume["name"] = f"vol{number}"
        spec = {"nodeName": node_name, "containers": [{"name": "c"}], "volumes": volumes}
        meta = {"name": name, "namespace": namespace, "uid": f"uid:{name}"}
        return msgspec.convert({"metadata": meta, "spec": spec}, Pod)

    def _pod_volume(self) -> dict[str, Any]:
        if self.sometimes(80):
            return {"persistentVolumeClaim": {"claimName": self.one_of((*CLAIMS, "c0"))}}
        only_read, disk = self.sometimes(), self.one_of("yz")
        monitors = self.several(lambda: self.one_of(("m1", "m2")), 2, 1)
        return self.one_of(
            (
                {"awsElasticBlockStore": {"volumeID": self.one_of(("vol-1", "vol-v1"))}},
                {"gcePersistentDisk": {"pdName": self.one_of("de"), "readOnly": only_read}},
                {"azureDisk": {"diskName": disk, "diskURI": f"https://disks.example/{disk}.vhd"}},
                {"iscsi": {"iqn": "i", "readOnly": only_read}},
                {"rbd": {"image": "r", "monitors": monitors, "readOnly": only_read}},
                {"cinder": {"volumeID": self.one_of(VOLUMES)}},
                {"azureFile": {"secretName": "s", "shareName": "f"}},
                {"ephemeral": {}},
                {"emptyDir": {}},
            )
        )

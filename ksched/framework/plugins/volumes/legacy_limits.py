"""EBSLimits, GCEPDLimits and AzureDiskLimits: limits of pre-CSI disks. Off by default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ksched.api.objects import Pod, Volume
from ksched.api.storage import CSINode, PersistentVolumeClaim, PersistentVolumeSpec
from ksched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Listers,
    NodeInfo,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.volumes.attached import Lookup, Volumes
from ksched.framework.plugins.volumes.claims import claim_events, uses_claims
from ksched.framework.plugins.volumes.csi_volumes import UNBOUND, StorageLookup, claim_use
from ksched.framework.plugins.volumes.node_volume_limits import VolumeLimits

INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
MAX_EBS_VOLUMES = 39
MAX_EBS_VOLUMES_ON_NITRO = 25
MAX_DISKS = 16
_NITRO = re.compile(r"^[cmr]5.*|t3|z1d")
_EVERY_DISK = "disk"


class DiskCounting:
    """Disks of one in-tree plugin, on nodes where no CSI driver has replaced it."""

    def __init__(
        self, listers: Listers, plugin: str, source: str, identity: str, resource: str
    ) -> None:
        self._lookup = StorageLookup(listers)
        self._csi_nodes = listers.require(CSINode)
        self.sources = self._lookup.sources
        self._plugin, self._source, self._identity = plugin, source, identity
        self._resource = resource
        self._node_changes = self._csi_nodes.cursor()
        self._fixed_limit = _limit_from_environment()

    def has_csi_node(self, node_name: str) -> bool:
        return self._csi_nodes.get(node_name) is not None

    def volumes_of(self, pod: PodInfo, node_name: str, seen: set[Lookup]) -> Volumes:
        return self.resolve(pod, seen, has_csi_node=False, is_new=False)

    def resolve(
        self, pod: PodInfo, seen: set[Lookup], *, has_csi_node: bool, is_new: bool
    ) -> Volumes:
        found: Volumes = {}
        for volume in pod.template.spec.volumes:
            disk = self.disk_of(volume)
            use = claim_use(pod, volume)
            if disk is None and use is not None:
                claim = self._lookup.claim(pod, use, seen, is_new=is_new)
                disk = None if claim is None else self._of_claim(claim, seen)
            if disk is not None:
                found[disk] = _EVERY_DISK
        return found

    def disk_of(self, spec: Volume | PersistentVolumeSpec) -> str | None:
        source: Any = getattr(spec, self._source)
        identity: str | None = None if source is None else getattr(source, self._identity)
        return identity

    def _of_claim(self, claim: PersistentVolumeClaim, seen: set[Lookup]) -> str | None:
        name = claim.spec.volume_name
        volume = self._lookup.volume(name, seen) if name else None
        if volume is not None:
            return self.disk_of(volume.spec)
        provisioner = self._lookup.provisioner(claim.spec.storage_class_name or "", seen)
        return f"{UNBOUND}{claim.metadata.key}" if provisioner == self._plugin else None

    def attached_to(self, node_name: str, seen: set[Lookup]) -> Volumes:
        return {}

    def limits_of(self, info: NodeInfo) -> Mapping[str, int]:
        csi_node = self._csi_nodes.get(info.name)
        if csi_node is not None and self._plugin in csi_node.migrated_plugins:
            return {}
        if info.node is not None and self._resource in info.node.status.allocatable:
            return {_EVERY_DISK: info.allocatable_of(self._resource)}
        return {_EVERY_DISK: self._fixed_limit or self.usual_limit(info)}

    def usual_limit(self, info: NodeInfo) -> int:
        if self._plugin != "kubernetes.io/aws-ebs":
            return MAX_DISKS
        kinds = (info.labels.get(label, "") for label in INSTANCE_TYPE_LABELS)
        is_nitro = _NITRO.search(next(filter(None, kinds), "")) is not None
        return MAX_EBS_VOLUMES_ON_NITRO if is_nitro else MAX_EBS_VOLUMES

    def changed_nodes(self) -> set[str] | None:
        changed = self._node_changes.changes()
        return None if changed is None else set(changed)

    def advance(self) -> None:
        self._node_changes.advance()


def _limit_from_environment() -> int:
    """The administrator's limit for all nodes; 0 if there is none or it is invalid."""
    text = os.environ.get("KUBE_MAX_PD_VOLS", "")
    return int(text) if text.isdecimal() else 0


class DiskLimits(VolumeLimits):
    """A limit of one kind of disk."""

    _disks: DiskCounting

    def __init__(self, counting: DiskCounting) -> None:
        super().__init__(counting)
        self._disks = counting

    def _concerns(self, template: PodTemplate) -> bool:
        return uses_claims(template) or any(
            self._disks.disk_of(volume) is not None for volume in template.spec.volumes
        )

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        deleted = ClusterEvent(Resource.POD, Action.DELETE)
        return (
            ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD)),
            ClusterEventWithHint(deleted, self._is_schedulable_after_pod_deleted, per_pod=False),
            *claim_events(Action.ADD),
        )

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        had_node = old.spec.node_name or old.status.nominated_node_name
        return QueueingHint.QUEUE if had_node and old.spec.volumes else QueueingHint.SKIP


class EBSLimits(DiskLimits):
    """Rejects nodes that cannot attach all of the pod's EBS volumes of the former in-tree plugin.

    The limit is the node's ``attachable-volumes-aws-ebs``, else ``KUBE_MAX_PD_VOLS`` from the
    environment, else 39 (25 on instance types of the Nitro system). Nodes on which the CSI driver
    has taken over (``kubernetes.io/aws-ebs`` among the migrated plugins of the CSINode) are left to
    NodeVolumeLimits.

    Reason: ``node(s) exceed max volume count``. No arguments. No longer in kube-scheduler, and off
    by default.
    """

    name: ClassVar[str] = names.EBS_LIMITS

    def __init__(self, listers: Listers) -> None:
        resource = "attachable-volumes-aws-ebs"
        source = "aws_elastic_block_store"
        plugin = "kubernetes.io/aws-ebs"
        super().__init__(DiskCounting(listers, plugin, source, "volume_id", resource))


class GCEPDLimits(DiskLimits):
    """Rejects nodes that cannot attach all of the pod's GCE disks of the former in-tree plugin.

    The limit is the node's ``attachable-volumes-gce-pd``, else ``KUBE_MAX_PD_VOLS`` from the
    environment, else 16. Nodes on which the CSI driver has taken over (``kubernetes.io/gce-pd``
    among the migrated plugins of the CSINode) are left to NodeVolumeLimits.

    Reason: ``node(s) exceed max volume count``. No arguments. No longer in kube-scheduler, and off
    by default.
    """

    name: ClassVar[str] = names.GCE_PD_LIMITS

    def __init__(self, listers: Listers) -> None:
        resource = "attachable-volumes-gce-pd"
        source = "gce_persistent_disk"
        plugin = "kubernetes.io/gce-pd"
        super().__init__(DiskCounting(listers, plugin, source, "pd_name", resource))


class AzureDiskLimits(DiskLimits):
    """Rejects nodes that cannot attach all of the pod's Azure disks of the former in-tree plugin.

    The limit is the node's ``attachable-volumes-azure-disk``, else ``KUBE_MAX_PD_VOLS`` from the
    environment, else 16. Nodes on which the CSI driver has taken over
    (``kubernetes.io/azure-disk`` among the migrated plugins of the CSINode) are left to
    NodeVolumeLimits.

    Reason: ``node(s) exceed max volume count``. No arguments. No longer in kube-scheduler, and off
    by default.
    """

    name: ClassVar[str] = names.AZURE_DISK_LIMITS

    def __init__(self, listers: Listers) -> None:
        resource = "attachable-volumes-azure-disk"
        source = "azure_disk"
        plugin = "kubernetes.io/azure-disk"
        super().__init__(DiskCounting(listers, plugin, source, "disk_name", resource))

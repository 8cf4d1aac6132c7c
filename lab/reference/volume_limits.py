"""NodeVolumeLimits and the limits of disks from before CSI, spelled out."""

from __future__ import annotations

from ksched.api.objects import Node, Pod, Volume
from ksched.api.storage import (
    MIGRATED_PLUGINS,
    CSINode,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
)
from lab.reference.volumes import (
    claim_name,
    class_of_claim,
    find_claim,
    find_class,
    find_volume,
    is_owned,
)
from lab.reference.world import UNSCHEDULABLE, Verdict, World

_REPLACED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
_NOT_REPLACED = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")


def find_csi_node(world: World, node: Node) -> CSINode | None:
    for csi_node in world.others.csi_nodes:
        if csi_node.metadata.name == node.metadata.name:
            return csi_node
    return None


def filter_limits(world: World, node: Node) -> Verdict:
    csi_node = find_csi_node(world, node)
    if csi_node is None:
        return None
    new = _volumes(world, world.pod)
    in_use: dict[str, str] = {}
    for pod in world.pods_on(node):
        in_use.update(_volumes(world, pod))
    attached = dict(in_use)
    for attachment in world.others.attachments:
        name = attachment.spec.source.persistent_volume_name
        volume = find_volume(world, name) if name is not None else None
        if attachment.spec.node_name != node.metadata.name or not attachment.spec.attacher:
            continue
        if volume is not None and volume.spec.csi is not None:
            attacher = attachment.spec.attacher
            attached[f"{attacher}/{volume.spec.csi.volume_handle}"] = attacher
    for driver in csi_node.spec.drivers:
        if driver.allocatable is None or driver.allocatable.count is None:
            continue
        more = [unique for unique, its in new.items() if its == driver.name]
        more = [unique for unique in more if unique not in in_use]
        there = [unique for unique, its in attached.items() if its == driver.name]
        if more and len(there) + len(more) > driver.allocatable.count:
            return UNSCHEDULABLE, ["node(s) exceed max volume count"]
    return None


def _volumes(world: World, pod: Pod) -> dict[str, str]:
    """Unique names of a pod's volumes on a node with CSI drivers, and their drivers."""
    found = {}
    for volume in pod.spec.volumes:
        driver, handle = _driver_and_handle(world, pod, volume)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    return found


def _driver_and_handle(world: World, pod: Pod, volume: Volume) -> tuple[str, str]:
    name = claim_name(pod, volume)
    if name is None:
        return _translated(volume, "")
    claim = find_claim(world, name[0], pod.metadata.namespace)
    if claim is None or (name[1] and not is_owned(claim, pod)):
        return "", ""
    bound = find_volume(world, claim.spec.volume_name)
    if bound is None:
        return _expected(world, claim)
    if bound.spec.csi is not None:
        return bound.spec.csi.driver, bound.spec.csi.volume_handle
    labels = bound.metadata.labels
    zone = labels.get("failure-domain.beta.kubernetes.io/zone", "")
    return _translated(bound.spec, zone or labels.get("topology.kubernetes.io/zone", ""))


def _expected(world: World, claim: PersistentVolumeClaim) -> tuple[str, str]:
    storage_class = find_class(world, class_of_claim(claim))
    if storage_class is None or storage_class.provisioner in _NOT_REPLACED:
        return "", ""
    provisioner = storage_class.provisioner
    return _REPLACED.get(provisioner, provisioner), f"?{claim.metadata.key}"


def _translated(spec: Volume | PersistentVolumeSpec, zone: str) -> tuple[str, str]:
    if spec.aws_elastic_block_store is not None:
        return "ebs.csi.aws.com", spec.aws_elastic_block_store.volume_id.rpartition("/")[2]
    if spec.gce_persistent_disk is not None:
        disk = spec.gce_persistent_disk.pd_name
        return "pd.csi.storage.gke.io", f"{zone or 'UNSPECIFIED'}/{disk}"
    if spec.azure_disk is not None:
        return "disk.csi.azure.com", spec.azure_disk.disk_uri
    if spec.cinder is not None:
        return "cinder.csi.openstack.org", spec.cinder.volume_id
    if spec.portworx_volume is not None:
        return "pxd.portworx.com", spec.portworx_volume.volume_id
    return "", ""


# -- before CSI ---------------------------------------------------------------------------------


def filter_ebs(world: World, node: Node) -> Verdict:
    instance = node.metadata.labels.get("node.kubernetes.io/instance-type", "")
    usual = 25 if instance.startswith(("c5", "m5", "r5", "t3", "z1d")) else 39
    return _filter_disks(world, node, "aws-ebs", usual)


def filter_gce_pd(world: World, node: Node) -> Verdict:
    return _filter_disks(world, node, "gce-pd", 16)


def filter_azure_disk(world: World, node: Node) -> Verdict:
    return _filter_disks(world, node, "azure-disk", 16)


def _filter_disks(world: World, node: Node, kind: str, usual: int) -> Verdict:
    csi_node = find_csi_node(world, node)
    if csi_node is not None:
        migrated = csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")
        if f"kubernetes.io/{kind}" in migrated:
            return None
    limit = int(node.status.allocatable.get(f"attachable-volumes-{kind}", usual))
    there = {disk for pod in world.pods_on(node) for disk in _disks(world, pod, kind)}
    new = _disks(world, world.pod, kind) - there
    if new and len(there) + len(new) > limit:
        return UNSCHEDULABLE, ["node(s) exceed max volume count"]
    return None


def _disks(world: World, pod: Pod, kind: str) -> set[str]:
    """The disks of one kind that a pod uses, those yet to be made included."""
    found = set()
    for volume in pod.spec.volumes:
        name = claim_name(pod, volume)
        claim = None if name is None else find_claim(world, name[0], pod.metadata.namespace)
        if name is None:
            found.add(_disk(volume, kind))
        elif claim is not None and (not name[1] or is_owned(claim, pod)):
            bound = find_volume(world, claim.spec.volume_name)
            wanted = find_class(world, claim.spec.storage_class_name or "")
            if bound is not None:
                found.add(_disk(bound.spec, kind))
            elif wanted is not None and wanted.provisioner == f"kubernetes.io/{kind}":
                found.add(f"?{claim.metadata.key}")
    return found - {""}


def _disk(spec: Volume | PersistentVolumeSpec, kind: str) -> str:
    if kind == "aws-ebs":
        return (
            "" if spec.aws_elastic_block_store is None else spec.aws_elastic_block_store.volume_id
        )
    if kind == "gce-pd":
        return "" if spec.gce_persistent_disk is None else spec.gce_persistent_disk.pd_name
    return "" if spec.azure_disk is None else spec.azure_disk.disk_name

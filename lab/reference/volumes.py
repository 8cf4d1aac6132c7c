"""VolumeRestrictions and VolumeZone, spelled out, and what all volume plugins ask."""

from __future__ import annotations

from collections.abc import Iterator

from ksched.api.objects import Node, Pod, Volume
from ksched.api.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from lab.reference.world import UNRESOLVABLE, UNSCHEDULABLE, Verdict, World

_ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


# -- looking up ---------------------------------------------------------------------------------


def find_claim(world: World, name: str, namespace: str) -> PersistentVolumeClaim | None:
    for claim in world.others.claims:
        if (claim.metadata.name, claim.metadata.namespace) == (name, namespace):
            return claim
    return None


def find_volume(world: World, name: str) -> PersistentVolume | None:
    for volume in world.others.volumes:
        if volume.metadata.name == name:
            return volume
    return None


def find_class(world: World, name: str) -> StorageClass | None:
    for storage_class in world.others.storage_classes:
        if storage_class.metadata.name == name:
            return storage_class
    return None


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    annotated = claim.metadata.annotations.get("volume.beta.kubernetes.io/storage-class")
    return annotated if annotated is not None else claim.spec.storage_class_name or ""


def claim_name(pod: Pod, volume: Volume) -> tuple[str, bool] | None:
    """The claim behind a volume of a pod, and whether it is made for the pod."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name, False
    if volume.ephemeral is not None:
        return f"{pod.metadata.name}-{volume.name}", True
    return None


def is_owned(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    for owner in claim.metadata.owner_references:
        if owner.controller:
            return owner.uid == pod.metadata.uid
    return False


def named_claims(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name


# -- VolumeRestrictions -------------------------------------------------------------------------


def pre_filter_restrictions(world: World) -> Verdict:
    for name in named_claims(world.pod):
        if find_claim(world, name, world.pod.metadata.namespace) is None:
            return UNRESOLVABLE, [f'persistentvolumeclaim "{name}" not found']
    return None


def filter_restrictions(world: World, node: Node) -> Verdict:
    for own in world.pod.spec.volumes:
        for other in world.pods_on(node):
            if any(_is_same_disk(own, theirs) for theirs in other.spec.volumes):
                return UNSCHEDULABLE, ["node(s) had no available disk"]
    namespace = world.pod.metadata.namespace
    for name in named_claims(world.pod):
        claim = find_claim(world, name, namespace)
        if claim is None or "ReadWriteOncePod" not in claim.spec.access_modes:
            continue
        for other_node in world.nodes:
            for other in world.pods_on(other_node):
                if other.metadata.namespace == namespace and name in named_claims(other):
                    return UNSCHEDULABLE, [
                        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod "
                        "access mode already in-use by another pod"
                    ]
    return None


def _is_same_disk(one: Volume, other: Volume) -> bool:
    if one.gce_persistent_disk and other.gce_persistent_disk:
        both_read = one.gce_persistent_disk.read_only and other.gce_persistent_disk.read_only
        return (
            one.gce_persistent_disk.pd_name == other.gce_persistent_disk.pd_name and not both_read
        )
    if one.aws_elastic_block_store and other.aws_elastic_block_store:
        return one.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id
    if one.iscsi and other.iscsi:
        both_read = one.iscsi.read_only and other.iscsi.read_only
        return one.iscsi.iqn == other.iscsi.iqn and not both_read
    if one.rbd and other.rbd:
        both_read = one.rbd.read_only and other.rbd.read_only
        same = (one.rbd.pool, one.rbd.image) == (other.rbd.pool, other.rbd.image)
        return same and bool({*one.rbd.monitors} & {*other.rbd.monitors}) and not both_read
    return False


# -- VolumeZone ---------------------------------------------------------------------------------


def pre_filter_zone(world: World) -> Verdict:
    for name in named_claims(world.pod):
        claim = find_claim(world, name, world.pod.metadata.namespace)
        if claim is None:
            return UNRESOLVABLE, [f'persistentvolumeclaim "{name}" not found']
        if claim.spec.volume_name:
            if find_volume(world, claim.spec.volume_name) is None:
                return UNRESOLVABLE, [f'persistentvolume "{claim.spec.volume_name}" not found']
            continue
        class_name = class_of_claim(claim)
        if not class_name:
            return UNRESOLVABLE, ["PersistentVolumeClaim had no pv name and storageClass name"]
        storage_class = find_class(world, class_name)
        if storage_class is None:
            return UNRESOLVABLE, [f'storageclass.storage.k8s.io "{class_name}" not found']
        if storage_class.volume_binding_mode is None:
            reason = f'VolumeBindingMode not set for StorageClass "{class_name}"'
            return UNRESOLVABLE, [reason]
        if storage_class.volume_binding_mode != "WaitForFirstConsumer":
            return UNRESOLVABLE, ["PersistentVolume had no name"]
    return None


def filter_zone(world: World, node: Node) -> Verdict:
    labels = node.metadata.labels
    if not any(label in labels for label in _ZONE_LABELS):
        return None
    for name in named_claims(world.pod):
        claim = find_claim(world, name, world.pod.metadata.namespace)
        volume = find_volume(world, claim.spec.volume_name) if claim is not None else None
        if volume is None:
            continue
        for label, newer in _ZONE_LABELS.items():
            zones = [zone.strip() for zone in volume.metadata.labels.get(label, "").split("__")]
            if "" in zones:
                continue
            if labels.get(label, labels.get(newer)) not in zones:
                return UNRESOLVABLE, ["node(s) had no available volume zone"]
    return None

"""CSI volumes: of a pod, and attached to a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ksched.api.objects import Volume
from ksched.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from ksched.framework import Lister, Listers, NodeInfo, PodInfo
from ksched.framework.plugins.volumes.attached import CannotCount, Lookup, Volumes
from ksched.framework.plugins.volumes.claims import (
    ClaimUse,
    claim_not_found,
    is_made_for,
    not_made_for,
)
from ksched.framework.plugins.volumes.csi_migration import (
    BY_NAME,
    InTreePlugin,
    Untranslatable,
    in_tree_plugin,
    inline_handle,
    volume_handle,
)

UNBOUND = "unbound claim "
"""Prefix of the key of a claim without a volume; no real handle begins like it."""

_NOT_A_VOLUME = ("", "")


class ClaimMissing(Exception):
    """A pod cannot be placed before its claim exists."""


class StorageLookup:
    """Storage objects by name; records look-ups."""

    def __init__(self, listers: Listers) -> None:
        self.claims = listers.require(PersistentVolumeClaim)
        self.volumes = listers.require(PersistentVolume)
        self.classes = listers.require(StorageClass)
        self.sources: tuple[Lister[Any], ...] = (self.claims, self.volumes, self.classes)

    def claim(
        self, pod: PodInfo, use: ClaimUse, seen: set[Lookup], *, is_new: bool
    ) -> PersistentVolumeClaim | None:
        """Return a claim of a pod; for a running pod it may be gone, a new pod waits for it."""
        seen.add(Lookup(self.claims, f"{pod.namespace}/{use.name}"))
        claim = self.claims.get(use.name, pod.namespace)
        if claim is None and is_new:
            where = f"looking up PVC {pod.namespace}/{use.name}"
            raise ClaimMissing(f"{where}: {claim_not_found(use.name)}")
        if claim is not None and use.is_ephemeral and not is_made_for(claim, pod):
            raise CannotCount(not_made_for(claim, pod))
        return claim

    def volume(self, name: str, seen: set[Lookup]) -> PersistentVolume | None:
        seen.add(Lookup(self.volumes, name))
        return self.volumes.get(name)

    def provisioner(self, class_name: str, seen: set[Lookup]) -> str:
        seen.add(Lookup(self.classes, class_name))
        storage_class = self.classes.get(class_name)
        return "" if storage_class is None else storage_class.provisioner


def claim_use(pod: PodInfo, volume: Volume) -> ClaimUse | None:
    if volume.persistent_volume_claim is not None:
        return ClaimUse(volume.persistent_volume_claim.claim_name, False)
    if volume.ephemeral is not None:
        return ClaimUse(f"{pod.name}-{volume.name}", True)
    return None


class CSICounting:
    """Volumes of CSI drivers, and of in-tree plugins that a CSI driver has replaced.

    An in-tree volume counts on nodes that have a CSINode, since the drivers are there.
    """

    def __init__(self, listers: Listers) -> None:
        self._lookup = StorageLookup(listers)
        self._csi_nodes = listers.require(CSINode)
        self._attachments = listers.require(VolumeAttachment)
        self.sources = self._lookup.sources
        self._node_changes = self._csi_nodes.cursor()
        self._attachment_changes = self._attachments.cursor()
        self._concerned: set[str] = set()
        """Nodes with a changed attachment, until they are recounted."""
        self._node_of: dict[str, str] = {}
        self._by_node: dict[str, dict[str, VolumeAttachment]] = {}

    def has_csi_node(self, node_name: str) -> bool:
        return self._csi_nodes.get(node_name) is not None

    def volumes_of(self, pod: PodInfo, node_name: str, seen: set[Lookup]) -> Volumes:
        return self.resolve(pod, seen, has_csi_node=self.has_csi_node(node_name), is_new=False)

    def resolve(
        self, pod: PodInfo, seen: set[Lookup], *, has_csi_node: bool, is_new: bool
    ) -> Volumes:
        """Return a pod's volumes; raises ``CannotCount``, and ``ClaimMissing`` for a new pod.

        kube-scheduler: filterAttachableVolumes.
        """
        found: Volumes = {}
        for volume in pod.template.spec.volumes:
            use = claim_use(pod, volume)
            if use is None:
                driver, handle = _inline(volume, has_csi_node)
            else:
                claim = self._lookup.claim(pod, use, seen, is_new=is_new)
                if claim is None:
                    continue
                driver, handle = self._of_claim(claim, has_csi_node, seen)
            if driver and handle:
                found[f"{driver}/{handle}"] = driver
        return found

    def _of_claim(
        self, claim: PersistentVolumeClaim, has_csi_node: bool, seen: set[Lookup]
    ) -> tuple[str, str]:
        """kube-scheduler: getCSIDriverInfo."""
        name = claim.spec.volume_name
        volume = self._lookup.volume(name, seen) if name else None
        if volume is None:
            return self._of_class(claim, has_csi_node, seen)
        if volume.spec.csi is not None:
            return volume.spec.csi.driver, volume.spec.csi.volume_handle
        plugin = in_tree_plugin(volume.spec)
        if plugin is None or not _is_on(plugin, has_csi_node):
            return _NOT_A_VOLUME
        try:
            return plugin.driver, volume_handle(plugin, volume)
        except Untranslatable:
            return _NOT_A_VOLUME

    def _of_class(
        self, claim: PersistentVolumeClaim, has_csi_node: bool, seen: set[Lookup]
    ) -> tuple[str, str]:
        """Return the future volume of an unbound claim, identified by the claim's name.

        kube-scheduler: getCSIDriverInfoFromSC.
        """
        if not claim.class_name:
            return _NOT_A_VOLUME
        driver = self._lookup.provisioner(claim.class_name, seen)
        plugin = BY_NAME.get(driver)
        if plugin is not None:
            driver = plugin.driver if _is_on(plugin, has_csi_node) else ""
        return driver, f"{UNBOUND}{claim.metadata.key}"

    def attached_to(self, node_name: str, seen: set[Lookup]) -> Volumes:
        """kube-scheduler: getNodeVolumeAttachmentInfo."""
        found: Volumes = {}
        for attachment in self._by_node.get(node_name, {}).values():
            driver, name = attachment.spec.attacher, attachment.spec.source.persistent_volume_name
            if not driver or name is None:
                continue
            volume = self._lookup.volume(name, seen)
            if volume is not None and volume.spec.csi is not None:
                found[f"{driver}/{volume.spec.csi.volume_handle}"] = driver
        return found

    def limits_of(self, info: NodeInfo) -> Mapping[str, int]:
        """kube-scheduler: getVolumeLimits."""
        csi_node = self._csi_nodes.get(info.name)
        return {} if csi_node is None else csi_node.limits

    def changed_nodes(self) -> set[str] | None:
        nodes, attachments = self._node_changes.changes(), self._attachment_changes.changes()
        if attachments is None:
            attachments = [*self._node_of, *(one.metadata.key for one in self._attachments)]
        for key in set(attachments):
            self._concerned.update(self._take_over(key))
        return None if nodes is None else {*nodes, *self._concerned}

    def advance(self) -> None:
        self._node_changes.advance()
        self._attachment_changes.advance()
        self._concerned.clear()

    def _take_over(self, key: str) -> Iterator[str]:
        """Index an attachment by node; yields its previous and its new node."""
        before = self._node_of.pop(key, None)
        if before is not None:
            del self._by_node[before][key]
            yield before
        attachment = self._attachments.get(key)
        if attachment is not None:
            node_name = self._node_of[key] = attachment.spec.node_name
            self._by_node.setdefault(node_name, {})[key] = attachment
            yield node_name


def _is_on(plugin: InTreePlugin, has_csi_node: bool) -> bool:
    """kube-scheduler: isCSIMigrationOn."""
    return has_csi_node and plugin.is_replaced


def _inline(volume: Volume, has_csi_node: bool) -> tuple[str, str]:
    """kube-scheduler: checkAttachableInlineVolume."""
    plugin = in_tree_plugin(volume)
    if plugin is None or not _is_on(plugin, has_csi_node):
        return _NOT_A_VOLUME
    try:
        return plugin.driver, inline_handle(plugin, volume)
    except Untranslatable as problem:
        raise CannotCount(
            f"converting volume({volume.name}) from inline to csi: {problem}"
        ) from problem

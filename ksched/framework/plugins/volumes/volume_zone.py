"""VolumeZone: volumes with zone labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from ksched.framework import (
    SKIP,
    SKIP_TEMPLATE,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    Listers,
    NodeRows,
    PodInfo,
    QueueingHint,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    unresolvable,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.volumes.claims import (
    claim_events,
    claim_not_found,
    claims_of,
    class_not_found,
    volume_not_found,
)
from ksched.framework.plugins.volumes.csi_migration import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONES_SEPARATOR,
)

NO_ZONE = unresolvable("node(s) had no available volume zone")
_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_SUCCESSORS = {BETA_ZONE: ZONE, BETA_REGION: REGION}
_NO_ROWS: NDArray[np.intp] = np.zeros(0, np.intp)

Zones = tuple[tuple[str, frozenset[str]], ...]
"""Label keys and the allowed values of each."""


class VolumeZone:
    """Rejects nodes outside the zone or region that a bound volume's labels name.

    The labels are ``topology.kubernetes.io/zone`` and ``region`` and their beta names under
    ``failure-domain.beta.kubernetes.io``; a value may list several zones, separated by ``__``. Only
    volumes with these labels matter, which current CSI drivers do not set: they use the volume's
    node affinity, see VolumeBinding. A node without any of the labels is accepted.

    Reasons: ``node(s) had no available volume zone``; for the pod as a whole that its claim, the
    claim's volume or its storage class was ``not found``, ``PersistentVolumeClaim had no pv name
    and storageClass name``, ``VolumeBindingMode not set for StorageClass "x"``, and
    ``PersistentVolume had no name`` for an unbound claim that does not wait for its first consumer.
    No arguments.
    """

    name: ClassVar[str] = names.VOLUME_ZONE

    def __init__(self, listers: Listers) -> None:
        self.filter_depends_on = FilterDependsOn(
            Scope.CLUSTER,
            reads_inter_pod_fields=False,
            changes=self._filter_changes,
            reads_claim_names=False,
        )
        self._claims = listers.require(PersistentVolumeClaim)
        self._volumes = listers.require(PersistentVolume)
        self._classes = listers.require(StorageClass)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        """kube-scheduler: getPVbyPod."""
        if not pod.template.claim_names:
            return SKIP_TEMPLATE
        zones: Zones = ()
        for use in claims_of(pod, ephemeral=False):
            claim = self._claims.get(use.name, pod.namespace)
            if claim is None:
                return unresolvable(claim_not_found(use.name))
            if not claim.spec.volume_name:
                status = self._check_unbound(claim)
                if not status.is_success:
                    return status
                continue
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                return unresolvable(volume_not_found(claim.spec.volume_name))
            zones += _zones_of(volume)
        if not zones:
            return SKIP
        state.write(self.name, zones)
        return SUCCESS

    def _check_unbound(self, claim: PersistentVolumeClaim) -> Status:
        """An unbound claim is accepted if its volume will be placed with the pod."""
        if not claim.class_name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = self._classes.get(claim.class_name)
        if storage_class is None:
            return unresolvable(class_not_found(claim.class_name))
        mode = storage_class.volume_binding_mode
        if mode is None:
            return unresolvable(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
        if mode == WAIT_FOR_FIRST_CONSUMER:
            return SUCCESS
        return unresolvable("PersistentVolume had no name")

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        zones: Zones = state.read(self.name, tuple)
        is_somewhere = np.zeros(len(nodes), np.bool_)
        for key in _LABELS:
            is_somewhere |= nodes.label(key).test(lambda value: value is not None)
        outside = np.zeros(len(nodes), np.bool_)
        for key, allowed in zones:
            outside |= ~_inside(nodes, key, allowed)
        return Verdicts.rejecting(is_somewhere & outside, NO_ZONE)

    def _filter_changes(
        self, state: CycleState, pod: PodInfo, mark: object
    ) -> tuple[object, NDArray[np.intp] | None]:
        zones = state.read(self.name, tuple)
        return zones, _NO_ROWS if mark == zones else None

    # -- wake-ups -------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        storage_class = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        volume = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE)
        return (
            ClusterEventWithHint(
                storage_class, self._is_schedulable_after_storage_class_added, per_pod=False
            ),
            ClusterEventWithHint(node),
            *claim_events(Action.ADD | Action.UPDATE, ephemeral=False),
            ClusterEventWithHint(
                volume, self._is_schedulable_after_persistent_volume_change, per_pod=False
            ),
        )

    def _is_schedulable_after_storage_class_added(
        self, pod: PodInfo, old: None, new: StorageClass
    ) -> QueueingHint:
        waits = new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        return QueueingHint.QUEUE if waits else QueueingHint.SKIP

    def _is_schedulable_after_persistent_volume_change(
        self, pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume
    ) -> QueueingHint:
        if old is None or _zones_of(old) != _zones_of(new):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP


def _zones_of(volume: PersistentVolume) -> Zones:
    """kube-scheduler: getPVTopologies."""
    labels = volume.metadata.labels
    found = []
    for key in _LABELS:
        if key in labels:
            zones = [zone.strip() for zone in labels[key].split(ZONES_SEPARATOR)]
            # A list with an empty element is invalid; kube-scheduler ignores the label.
            if all(zones):
                found.append((key, frozenset(zones)))
    return tuple(found)


def _inside(nodes: NodeRows, key: str, allowed: frozenset[str]) -> NDArray[np.bool_]:
    """Mark nodes with an allowed value; without a beta label the GA label is read.

    kube-scheduler: translateToGALabel.
    """
    column = nodes.label(key)
    inside = column.test(lambda value: value in allowed)
    successor = _SUCCESSORS.get(key)
    if successor is not None:
        absent = column.test(lambda value: value is None)
        inside |= absent & nodes.label(successor).test(lambda value: value in allowed)
    return inside

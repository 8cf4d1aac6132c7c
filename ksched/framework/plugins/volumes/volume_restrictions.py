"""VolumeRestrictions: volumes that must not be shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from ksched.api.objects import Pod, Volume
from ksched.api.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
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
    NodeInfo,
    NodeRows,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    template_fact,
    unresolvable,
    unschedulable,
)
from ksched.framework.memoizing import memoize_last
from ksched.framework.plugins import names
from ksched.framework.plugins.volumes.claims import claim_events, claim_not_found, claims_of

NO_DISK = unschedulable("node(s) had no available disk")
IN_USE = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)


class _Conflicts:
    """The pod's ReadWriteOncePod claims, and how often other pods use them."""

    __slots__ = ("claims", "generation", "used")

    def __init__(self, claims: frozenset[str], used: int, generation: int) -> None:
        self.claims = claims
        self.used = used
        self.generation = generation
        """The row generation when they were counted."""

    def clone(self) -> _Conflicts:
        return _Conflicts(self.claims, self.used, self.generation)

    def change(self, other: PodInfo, sign: int) -> None:
        # Namespaces are not compared, as in kube-scheduler: in dry runs a claim of the same name
        # in another namespace counts.
        self.used += sign * sum(name in self.claims for name in other.template.claim_names)


class VolumeRestrictions:
    """Separates pods that must not share a volume.

    A claim with the access mode ReadWriteOncePod belongs to one pod in the whole cluster: while
    another pod uses it, every node is rejected (``node(s) unavailable due to PersistentVolumeClaim
    with ReadWriteOncePod access mode already in-use by another pod``), unless preemption removes
    that pod. Inline disks belong to one pod of a node (``node(s) had no available disk``): GCE
    persistent disks, iSCSI targets and Ceph RBD images unless all pods only read, EBS volumes
    always. A missing claim rejects the pod (``persistentvolumeclaim "x" not found``). No
    arguments.
    """

    name: ClassVar[str] = names.VOLUME_RESTRICTIONS

    def __init__(self, listers: Listers) -> None:
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, epoch=self._filter_epoch)
        self._claims = listers.require(PersistentVolumeClaim)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        """kube-scheduler: readWriteOncePodPVCsForPod."""
        template = pod.template
        if not template.spec.volumes:
            return SKIP_TEMPLATE
        exclusive = set()
        for use in claims_of(pod, ephemeral=False):
            claim = self._claims.get(use.name, template.namespace)
            if claim is None:
                return unresolvable(claim_not_found(use.name))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                exclusive.add(use.name)
        used = _in_use({f"{template.namespace}/{name}" for name in exclusive}, snapshot)
        if not used and not _disks(template):
            return SKIP
        conflicts = _Conflicts(frozenset(exclusive), used, snapshot.table.row_log.generation)
        state.write(self.name, conflicts)
        return SUCCESS

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        state.read(self.name, _Conflicts).change(added, 1)
        return SUCCESS

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        state.read(self.name, _Conflicts).change(removed, -1)
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        """kube-scheduler: satisfyReadWriteOncePod."""
        used = state.read(self.name, _Conflicts).used
        codes = np.full(len(nodes), 2 if used > 0 else 0, np.int16)
        if disks := _wanted_disks(pod.template):
            for position, info in enumerate(nodes.infos):
                if _is_disk_taken(disks, info):
                    codes[position] = 1
        return Verdicts(codes, (NO_DISK, IN_USE))

    def _filter_epoch(self, state: CycleState, pod: PodInfo) -> object:
        conflicts = state.read(self.name, _Conflicts)
        is_used = conflicts.used > 0
        return (self.name, is_used, conflicts.generation if _disks(pod.template) else 0)

    # -- wake-ups -------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        deleted = ClusterEvent(Resource.POD, Action.DELETE)
        return (
            ClusterEventWithHint(deleted, self._is_schedulable_after_pod_deleted, per_pod=False),
            ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD)),
            *claim_events(Action.ADD, ephemeral=False),
        )

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        template = pod.template
        if old.metadata.namespace != template.namespace:
            return QueueingHint.SKIP
        claims, disks = _freed(old)
        if _conflict(_wanted_disks(template), disks) or not claims.isdisjoint(template.claim_names):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP


def _in_use(claims: set[str], snapshot: Snapshot) -> int:
    """Count the claims that some pod uses, on any node.

    kube-scheduler: conflictingPVCRefCountForPod, createUsedPVCSet.
    """
    found: set[str] = set()
    if claims:
        for info in snapshot.table.infos:
            if info.claims:
                found |= claims & info.claims.keys()
    return len(found)


# -- disks --------------------------------------------------------------------------------------


class _Disk(NamedTuple):
    """An inline disk, identified under any of some addresses."""

    identity: tuple[str, ...]
    addresses: frozenset[str]
    is_only_read: bool


_WantedDisks = Mapping[tuple[tuple[str, ...], str], bool]
"""By identity and address: whether a disk is used read-only."""

_ANYWHERE = frozenset({""})


@template_fact
def _disks(template: PodTemplate) -> Sequence[_Disk]:
    return tuple(_disks_in(template.spec.volumes))


def _disks_in(volumes: Sequence[Volume]) -> Iterator[_Disk]:
    for volume in volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            yield _Disk(("gce", gce.pd_name), _ANYWHERE, gce.read_only)
        if (ebs := volume.aws_elastic_block_store) is not None:
            # Attached once, whatever the access mode.
            yield _Disk(("ebs", ebs.volume_id), _ANYWHERE, False)
        if (iscsi := volume.iscsi) is not None:
            yield _Disk(("iscsi", iscsi.iqn), _ANYWHERE, iscsi.read_only)
        if (rbd := volume.rbd) is not None:
            yield _Disk(("rbd", rbd.pool, rbd.image), frozenset(rbd.monitors), rbd.read_only)


@template_fact
def _wanted_disks(template: PodTemplate) -> _WantedDisks:
    """kube-scheduler: needsRestrictionsCheck."""
    wanted: dict[tuple[tuple[str, ...], str], bool] = {}
    for disk in _disks(template):
        for address in disk.addresses:
            key = (disk.identity, address)
            wanted[key] = disk.is_only_read and wanted.get(key, True)
    return wanted


@memoize_last
def _freed(deleted: Pod) -> tuple[frozenset[str], Sequence[_Disk]]:
    """Return the claims and disks of a deleted pod."""
    volumes = deleted.spec.volumes
    claims = [
        one.persistent_volume_claim.claim_name for one in volumes if one.persistent_volume_claim
    ]
    return frozenset(claims), tuple(_disks_in(volumes))


def _conflict(wanted: _WantedDisks, others: Sequence[_Disk]) -> bool:
    """Whether a disk is requested under a common address, and not only read by both.

    kube-scheduler: isVolumeConflict, haveOverlap.
    """
    for disk in others:
        for address in disk.addresses:
            is_only_read = wanted.get((disk.identity, address))
            if is_only_read is not None and not (is_only_read and disk.is_only_read):
                return True
    return False


def _is_disk_taken(wanted: _WantedDisks, info: NodeInfo) -> bool:
    """kube-scheduler: satisfyVolumeConflicts."""
    return any(_conflict(wanted, _disks(other)) for other in (*info.running, *info.terminating))

"""NodeVolumeLimits: how many volumes the CSI drivers of a node can attach."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Pod, Volume
from ksched.api.storage import CSINode, VolumeAttachment
from ksched.framework import (
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
    error,
    template_fact,
    unresolvable,
    unschedulable,
)
from ksched.framework.node_columns import NodeTable
from ksched.framework.plugins import names
from ksched.framework.plugins.volumes.attached import (
    AttachedVolumes,
    CannotCount,
    Counting,
    Lookup,
    Volumes,
    count_node,
)
from ksched.framework.plugins.volumes.claims import claim_events, uses_claims
from ksched.framework.plugins.volumes.csi_migration import in_tree_plugin
from ksched.framework.plugins.volumes.csi_volumes import ClaimMissing, CSICounting

TOO_MANY = unschedulable("node(s) exceed max volume count")
Codes = NDArray[np.int16]


class CountingOfNew(Counting, Protocol):
    """Counting that also covers the volumes of a pod that is not placed yet."""

    def has_csi_node(self, node_name: str) -> bool: ...

    def resolve(
        self, pod: PodInfo, seen: set[Lookup], *, has_csi_node: bool, is_new: bool
    ) -> Volumes:
        """Return a pod's volumes; raises ``CannotCount``, and ``ClaimMissing`` for a new pod."""
        ...


class NewVolumes(NamedTuple):
    """The additional volumes of a pod on a node, or why it cannot be placed there."""

    volumes: Volumes
    refusal: Status = SUCCESS


class Attempt(NamedTuple):
    """A pod's volumes on nodes with and without a CSINode, and the existing counters."""

    with_csi: NewVolumes
    without_csi: NewVolumes
    attached: AttachedVolumes
    table: NodeTable


class VolumeLimits:
    """Counts a pod's new volumes against a limit; subclasses define what counts."""

    name: ClassVar[str]

    def __init__(self, counting: CountingOfNew) -> None:
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, epoch=self._filter_epoch)
        self._counting = counting
        self._attached: tuple[NodeTable, AttachedVolumes] | None = None

    def _concerns(self, template: PodTemplate) -> bool:
        raise NotImplementedError

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | Coroutine[Any, Any, Status]:
        if not self._concerns(pod.template):
            return SKIP_TEMPLATE
        table = snapshot.table
        if self._attached is None or self._attached[0] is not table:
            self._attached = (table, AttachedVolumes(table, self._counting))
        attached = self._attached[1]
        attached.catch_up()
        if pod.template.is_large:
            return self._resolve_in_steps(state, pod, attached, table)
        with_csi, without_csi = (self._bring(pod, has_csi_node) for has_csi_node in (True, False))
        state.write(self.name, Attempt(with_csi, without_csi, attached, table))
        return SUCCESS

    async def _resolve_in_steps(
        self, state: CycleState, pod: PodInfo, attached: AttachedVolumes, table: NodeTable
    ) -> Status:
        """Yield to the event loop in between: a pod may have ten thousand volumes."""
        await asyncio.sleep(0)
        with_csi = self._bring(pod, True)
        await asyncio.sleep(0)
        without_csi = self._bring(pod, False)
        state.write(self.name, Attempt(with_csi, without_csi, attached, table))
        return SUCCESS

    def _bring(self, pod: PodInfo, has_csi_node: bool) -> NewVolumes:
        try:
            found = self._counting.resolve(pod, set(), has_csi_node=has_csi_node, is_new=True)
            return NewVolumes(found)
        except ClaimMissing as problem:
            return NewVolumes({}, unresolvable(str(problem)))
        except CannotCount as problem:
            return NewVolumes({}, error(str(problem)))

    # -- filter ---------------------------------------------------------------------------------

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        attempt = state.read(self.name, Attempt)
        if nodes.table is not attempt.table:
            return Verdicts.of([self._judge(attempt, info) for info in nodes.infos])
        statuses = [TOO_MANY]
        codes: Codes = np.zeros(len(nodes), np.int16)
        if attempt.with_csi.refusal == attempt.without_csi.refusal:
            if not attempt.with_csi.refusal.is_success:
                return Verdicts(codes + 1, (attempt.with_csi.refusal,))
        else:
            statuses.append(attempt.with_csi.refusal)
            has_csi = [self._counting.has_csi_node(name) for name in nodes.names]
            codes[has_csi] = len(statuses)
        if attempt.with_csi.volumes:
            over = _over_limit(attempt, nodes)
            if len(statuses) == 1:
                codes = over.astype(np.int16)
            else:
                codes[over & (codes == 0)] = 1
            _refuse_uncountable(attempt, nodes, codes, statuses)
        return Verdicts(codes, statuses)

    def _judge(self, attempt: Attempt, info: NodeInfo) -> Status:
        """Evaluate one node of a dry run, whose pods are not those that were counted."""
        has_csi_node = self._counting.has_csi_node(info.name)
        new = attempt.with_csi if has_csi_node else attempt.without_csi
        limits = self._counting.limits_of(info)
        if not new.refusal.is_success or not new.volumes or not limits:
            return new.refusal
        there = count_node(self._counting, info, set())
        if there.problem:
            return error(there.problem)
        brought = Counter(
            driver for name, driver in new.volumes.items() if name not in there.of_pods
        )
        for driver, count in brought.items():
            if driver in limits and there.counts.get(driver, 0) + count > limits[driver]:
                return TOO_MANY
        return SUCCESS

    def _filter_epoch(self, state: CycleState, pod: PodInfo) -> object:
        attempt = state.read(self.name, Attempt)
        return (self.name, attempt.attached.generation, attempt.with_csi, attempt.without_csi)


def _over_limit(attempt: Attempt, nodes: NodeRows) -> NDArray[np.bool_]:
    """Mark the nodes where the pod's volumes would exceed the limit.

    The pod's volumes on nodes without a CSINode differ only where these have no limit.
    """
    attached = attempt.attached
    over = np.zeros(len(attached.rows), np.bool_)
    for driver, brought in Counter(attempt.with_csi.volumes.values()).items():
        limit = attached.limit(driver)
        if limit is None:
            continue
        there = attached.count(driver)
        room = limit if there is None else limit - there
        own = [name for name, its in attempt.with_csi.volumes.items() if its == driver]
        used = [rows for name in own if (rows := attached.rows_with.get(name))]
        if not used:
            over |= room < brought
            continue
        more = np.full(len(over), brought, np.int64)
        for rows in used:
            more[[*rows]] -= 1
        # A pod without new volumes is not rejected, however full the node is.
        over |= (more > 0) & (more > room)
    return over if nodes.rows is None else over[nodes.rows]


def _refuse_uncountable(
    attempt: Attempt, nodes: NodeRows, codes: Codes, statuses: list[Status]
) -> None:
    """Reject nodes with limits on which a pod's volumes cannot be determined."""
    attached = attempt.attached
    for row, problem in attached.problems.items():
        if attached.limits[row]:
            where = [row] if nodes.rows is None else np.flatnonzero(nodes.rows == row)
            statuses.append(error(problem))
            codes[where] = len(statuses)


# -- CSI ----------------------------------------------------------------------------------------


class NodeVolumeLimits(VolumeLimits):
    """Rejects nodes that cannot attach all of the pod's volumes.

    A node's CSINode has the number of volumes that each CSI driver can attach there. Counted are
    the volumes of the pods on the node, those attached for other reasons (VolumeAttachments), and
    the pod's own; one volume used by several pods counts once. A claim that is not bound yet counts
    for the driver of its storage class. Pre-CSI volumes of EBS, GCE PD, Azure disk, Cinder and
    Portworx count for the drivers that replaced those plugins.

    Reasons: ``node(s) exceed max volume count``, and ``looking up PVC ns/x: persistentvolumeclaim
    "x" not found``. No arguments.

    kube-scheduler: CSILimits.
    """

    name: ClassVar[str] = names.NODE_VOLUME_LIMITS

    def __init__(self, listers: Listers) -> None:
        super().__init__(CSICounting(listers))

    def _concerns(self, template: PodTemplate) -> bool:
        return _may_be_attached(template)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        added = ClusterEvent(Resource.CSI_NODE, Action.ADD)
        updated = ClusterEvent(Resource.CSI_NODE, Action.UPDATE)
        pod = ClusterEvent(Resource.POD, Action.DELETE)
        detached = ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE)
        return (
            ClusterEventWithHint(added),
            ClusterEventWithHint(
                updated, self._is_schedulable_after_csi_node_updated, per_pod=False
            ),
            ClusterEventWithHint(pod, self._is_schedulable_after_pod_deleted, per_pod=False),
            *claim_events(Action.ADD),
            ClusterEventWithHint(
                detached, self._is_schedulable_after_volume_attachment_deleted, per_pod=False
            ),
        )

    def _is_schedulable_after_csi_node_updated(
        self, pod: PodInfo, old: CSINode, new: CSINode
    ) -> QueueingHint:
        before = old.limits
        grown = any(limit > before.get(driver, 0) for driver, limit in new.limits.items())
        return QueueingHint.QUEUE if grown else QueueingHint.SKIP

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        had_node = old.spec.node_name or old.status.nominated_node_name
        if had_node and any(map(_is_attachable, old.spec.volumes)):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _is_schedulable_after_volume_attachment_deleted(
        self, pod: PodInfo, old: VolumeAttachment, new: None
    ) -> QueueingHint:
        for volume in pod.template.spec.volumes:
            plugin = in_tree_plugin(volume)
            same_driver = plugin is not None and plugin.driver == old.spec.attacher
            if volume.persistent_volume_claim is not None or same_driver:
                return QueueingHint.QUEUE
        return QueueingHint.SKIP


def _is_attachable(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or in_tree_plugin(volume) is not None
    )


@template_fact
def _may_be_attached(template: PodTemplate) -> bool:
    return uses_claims(template) or any(map(_is_attachable, template.spec.volumes))

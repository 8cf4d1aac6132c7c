"""VolumeBinding: claims and their volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.quantity import value
from ksched.api.storage import (
    MIGRATED_PLUGINS,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from ksched.configuration.plugin_args import VolumeBindingArgs
from ksched.framework import (
    SKIP,
    SKIP_TEMPLATE,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    Handle,
    NodeRows,
    PodInfo,
    QueueingHint,
    Resource,
    Scope,
    ScoreDependsOn,
    Snapshot,
    Status,
    Verdicts,
    error,
    unresolvable,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.volumes.binder import PodVolumes, VolumeBinder
from ksched.framework.plugins.volumes.claims import (
    ClaimUse,
    claim_events,
    claim_not_found,
    claims_of,
    is_made_for,
    not_made_for,
    uses_claims,
)
from ksched.framework.plugins.volumes.finding import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    VOLUME_MISSING,
    PodClaims,
    VolumeFinder,
)
from ksched.framework.plugins.volumes.matching import CannotMatch

UNBOUND_IMMEDIATE = unresolvable("pod has unbound immediate PersistentVolumeClaims")
_REASONS = {
    NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    VOLUME_MISSING: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
_STATUSES = tuple(
    unresolvable(*(reason for flag, reason in _REASONS.items() if code & flag))
    for code in range(1, 2 * VOLUME_MISSING)
)
_WRITING_SECONDS = 120.0
"""Time for writing volumes and claims, before the wait for the controllers begins."""


class _Attempt:
    """The claims of a pod, and from Reserve on its assumed volumes."""

    __slots__ = ("claims", "generation", "volumes")

    def __init__(self, claims: PodClaims, generation: int) -> None:
        self.claims = claims
        self.generation = generation
        """The node generation when the pod was filtered."""
        self.volumes: PodVolumes | None = None


class VolumeBinding:
    """Finds the nodes where the volumes of a pod's claims can be used, and binds claims.

    The volume of a bound claim must be reachable from the node. A claim whose storage class waits
    for its first consumer gets the smallest available volume that fits it and can be reached, or,
    if there is none, a new one: the class must have a provisioner, its ``allowedTopologies`` must
    include the node, and if the CSI driver reports capacities there must be enough. When a node is
    selected the volumes are assumed for the pod; before it is bound they are written (the volume's
    ``claimRef``, the claim's annotation ``volume.kubernetes.io/selected-node``), and the pod waits
    until all its claims are bound.

    Reasons: ``node(s) didn't match PersistentVolume's node affinity``, ``node(s) didn't find
    available persistent volumes to bind``, ``node(s) did not have enough free storage``, ``node(s)
    unavailable due to one or more pvc(s) bound to non-existent pv(s)``. For the pod as a whole:
    ``pod has unbound immediate PersistentVolumeClaims``, ``persistentvolumeclaim "x" not found``,
    ``persistentvolumeclaim "x" is being deleted``, ``persistentvolumeclaim "x" bound to
    non-existent persistentvolume "y"``, ``waiting for ephemeral volume controller to create the
    persistentvolumeclaim "x"``, ``PVC ns/x was not created for pod ns/p (pod is not owner)``. If
    the binding fails in the end, the attempt fails with ``binding volumes: ...`` and is retried.
    """

    name: ClassVar[str] = names.VOLUME_BINDING
    score_depends_on: ClassVar = ScoreDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, epoch=self._filter_epoch)
        args = args or VolumeBindingArgs()
        self._handle = handle
        self._finder = VolumeFinder(handle.listers)
        self._binder = VolumeBinder(handle, self._finder, args.bind_timeout_seconds)
        self._claims = self._finder.volumes.claims
        self.timeout_seconds = args.bind_timeout_seconds + _WRITING_SECONDS

    # -- filter ---------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        """kube-scheduler: GetPodVolumeClaims."""
        if not uses_claims(pod.template):
            return SKIP_TEMPLATE
        bound: list[PersistentVolumeClaim] = []
        delayed: list[PersistentVolumeClaim] = []
        has_immediate = False
        claims = []
        for use in claims_of(pod):
            claim = self._claims.get(use.name, pod.namespace)
            if claim is None or (problem := _problem(use, claim, pod)):
                return unresolvable(_missing(use) if claim is None else problem)
            claims.append(claim)
        for claim in claims:
            if claim.is_fully_bound:
                bound.append(claim)
                continue
            storage_class = self._finder.classes.get(claim.class_name)
            if storage_class is not None and storage_class.volume_binding_mode is None:
                return error(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
            if _waits(storage_class) and not claim.spec.volume_name:
                delayed.append(claim)
            else:
                has_immediate = True
        if has_immediate:
            return UNBOUND_IMMEDIATE
        generation = snapshot.table.node_log.generation
        state.write(self.name, _Attempt(PodClaims(bound, delayed), generation))
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        try:
            codes = self._finder.judge(state.read(self.name, _Attempt).claims, nodes)
        except CannotMatch as problem:
            failed = self._counted("predicate", error(str(problem)))
            return Verdicts(np.ones(len(nodes), np.int16), (failed,))
        return Verdicts(codes, _STATUSES)

    def _filter_epoch(self, state: CycleState, pod: PodInfo) -> object:
        attempt = state.read(self.name, _Attempt)
        return (self.name, attempt.generation, self._finder.epoch(attempt.claims))

    # -- score ----------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        """Scores only with the feature gate StorageCapacityScoring, which is off."""
        return SKIP_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        return np.zeros(len(nodes), np.int64)

    # -- reserve and bind -----------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(self.name, _Attempt)
        if attempt is None or not attempt.claims.delayed:
            return SUCCESS
        table = self._handle.snapshot.table
        row = table.rows[node_name]
        try:
            code = self._finder.judge(attempt.claims, table.some(np.array([row], np.intp)))[0]
            placement = self._finder.place(attempt.claims, table.infos[row])
        except CannotMatch as problem:
            return self._counted("assume", error(str(problem)))
        if code:
            # An async plugin let the state change since the node was filtered.
            wrong = f"volumes changed meanwhile: {_STATUSES[code - 1].message}"
            return self._counted("assume", error(wrong))
        attempt.volumes = PodVolumes(placement, node_name)
        return self._counted("assume", self._binder.assume(attempt.volumes))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        attempt = state.get(self.name, _Attempt)
        if attempt is not None and attempt.volumes is not None:
            self._binder.revert(attempt.volumes)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(self.name, _Attempt)
        return SKIP if attempt is None or attempt.volumes is None else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(self.name, _Attempt)
        if attempt is None or attempt.volumes is None:
            return SUCCESS
        return self._counted("bind", await self._binder.bind(pod, node_name, attempt.volumes))

    def _counted(self, operation: str, status: Status) -> Status:
        """Count an operation unless it succeeded."""
        if not status.is_success:
            self._handle.metrics.volume_scheduling_stage_error.increment(operation)
        return status

    # -- wake-ups -------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changed = Action.ADD | Action.UPDATE
        storage_class = ClusterEvent(Resource.STORAGE_CLASS, changed)
        volume = ClusterEvent(Resource.PERSISTENT_VOLUME, changed)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        csi_node = ClusterEvent(Resource.CSI_NODE, changed)
        driver = ClusterEvent(Resource.CSI_DRIVER, Action.UPDATE)
        capacity = ClusterEvent(Resource.CSI_STORAGE_CAPACITY, changed)
        return (
            ClusterEventWithHint(
                storage_class, self._is_schedulable_after_storage_class_change, per_pod=False
            ),
            *claim_events(changed),
            ClusterEventWithHint(volume),
            ClusterEventWithHint(node),
            ClusterEventWithHint(
                csi_node, self._is_schedulable_after_csi_node_change, per_pod=False
            ),
            ClusterEventWithHint(
                driver, self._is_schedulable_after_csi_driver_change, per_pod=False
            ),
            ClusterEventWithHint(
                capacity, self._is_schedulable_after_csi_storage_capacity_change, per_pod=False
            ),
        )

    def _is_schedulable_after_storage_class_change(
        self, pod: PodInfo, old: StorageClass | None, new: StorageClass
    ) -> QueueingHint:
        return _queue_if(old is None or old.allowed_topologies != new.allowed_topologies)

    def _is_schedulable_after_csi_node_change(
        self, pod: PodInfo, old: CSINode | None, new: CSINode
    ) -> QueueingHint:
        if old is None:
            return QueueingHint.QUEUE
        before, after = (one.metadata.annotations.get(MIGRATED_PLUGINS, "") for one in (old, new))
        return _queue_if(before != after)

    def _is_schedulable_after_csi_driver_change(
        self, pod: PodInfo, old: CSIDriver, new: CSIDriver
    ) -> QueueingHint:
        is_used = any(
            volume.csi is not None and volume.csi.driver == new.metadata.name
            for volume in pod.template.spec.volumes
        )
        return _queue_if(is_used and old.spec.storage_capacity and not new.spec.storage_capacity)

    def _is_schedulable_after_csi_storage_capacity_change(
        self, pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity
    ) -> QueueingHint:
        if old is None:
            return QueueingHint.QUEUE
        before, after = old.volume_limit, new.volume_limit
        if after is None:
            return QueueingHint.SKIP
        return _queue_if(before is None or value(after) > value(before))


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _waits(storage_class: StorageClass | None) -> bool:
    """Whether a class binds when a pod is placed; false for an unknown class."""
    return (
        storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )


def _missing(use: ClaimUse) -> str:
    """kube-scheduler: getPVCName."""
    if use.is_ephemeral:
        waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{waiting} "{use.name}"'
    return claim_not_found(use.name)


def _problem(use: ClaimUse, claim: PersistentVolumeClaim, pod: PodInfo) -> str:
    """Return why a pod cannot use a claim; empty if it can."""
    name = claim.metadata.name
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if use.is_ephemeral and not is_made_for(claim, pod):
        return not_made_for(claim, pod)
    return ""

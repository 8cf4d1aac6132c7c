"""Routes watch events: facts to the cache first, then wake-ups to the queue.

Everything here is synchronous, so a change is applied completely or not at all. A pod counts as
assigned when ``spec.nodeName`` is set; assigned pods of every scheduler go to the cache, unassigned
ones to the queue if their ``spec.schedulerName`` is one of our profiles.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

from ksched.api.objects import Node, Pod
from ksched.api.watched_kinds import HasMetadata
from ksched.api.whole_objects import WholeNode
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Lister
from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock
from ksched.errors import InvalidObject
from ksched.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSUMED_POD_FORGOTTEN,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
)
from ksched.framework.event_derivation import node_update_events, pod_update_events
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.groups.registry import Groups
from ksched.queue.pending_pods import PendingPods
from ksched.queue.places import IN_FLIGHT
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.pod_status import PodStatusUpdater
from ksched.scheduling.quarantine import quarantine_seconds

log = logging.getLogger(__name__)

REMOVED = "removed"
"""Reason for rejecting a pod that waits on permit when it is deleted."""

T = TypeVar("T", bound=HasMetadata)


class PodHandler:
    """Handles events of every non-terminal pod of the cluster.

    kube-scheduler: addPod, updatePod, deletePod.
    """

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        pending: PendingPods,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        status: PodStatusUpdater,
        scheduler_names: Collection[str],
        clock: Clock,
        groups: Groups | None = None,
    ) -> None:
        self._cache = cache
        self._pending = pending
        self._queue = queue
        self._waiting = waiting
        self._status = status
        self._scheduler_names = frozenset(scheduler_names)
        self._clock = clock
        self._groups = groups
        """``None`` if no plugin reads pod groups."""
        self.quarantine_ends: dict[str, float] = {}
        """Pending pods that are withheld from the queue, by UID, with the end of the quarantine;
        read-only for others."""
        self.is_synced = False

    def synced(self) -> None:
        self.is_synced = True

    def added(self, pod: Pod) -> None:
        """kube-scheduler: addPodToSchedulingQueue."""
        info = self._info(pod)
        if info is None:
            return
        if info.node_name:
            self._assigned(info)
            return
        is_ours = self._is_ours(info)
        if self._groups is not None:
            self._groups.pending(info, is_ours=is_ours)
        if is_ours:
            self._pending.put(info)
            if not self._is_quarantined(info):
                self._queue.add(info)

    def modified(self, old: Pod, new: Pod) -> None:
        # spec.nodeName is immutable, unless the API server's data was restored from a backup.
        is_moved = old.spec.node_name and old.spec.node_name != new.spec.node_name
        if is_moved or old.metadata.uid != new.metadata.uid:
            self.deleted(old)
            self.added(new)
            return
        info = self._info(new)
        if info is None:
            self.deleted(old)
        elif info.node_name and old.spec.node_name:
            self._cache.update_pod(info)
            for event in pod_update_events(old, new):
                self._queue.move_all_to_active_or_backoff_queue(event, old, new)
        elif info.node_name:
            self._assigned(info)
        else:
            self._pending_modified(old, info)

    def deleted(self, pod: Pod) -> None:
        """Remove a pod, whether it is known as pending, assumed or assigned.

        kube-scheduler: deletePodFromSchedulingQueue, deleteAssignedPodFromCache.
        """
        uid = pod.metadata.uid
        if self._groups is not None:
            self._groups.gone(uid)
        was_pending = self._forget_pending(uid)
        known = self._cache.get_pod(uid)
        if known is None:
            if was_pending and pod.status.nominated_node_name:
                self._wake_after_lost_nomination(pod, ASSIGNED_POD_DELETE)
            return
        if self._cache.is_assumed(uid) and self._reject_waiting(uid):
            # Held at Permit: its binding cycle forgets it. Past Permit the bind will fail, and the
            # space is free now.
            return
        self._cache.remove_pod(uid)
        self._queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE, known.pod, None)

    def end_quarantines(self) -> None:
        """Queue the pods whose quarantine is over; call periodically."""
        now = self._clock.now()
        for uid in [uid for uid, end in self.quarantine_ends.items() if end <= now]:
            del self.quarantine_ends[uid]
            self._queue.add(self._quarantined_pod(uid))

    def quarantined(self) -> Iterator[tuple[PodInfo, float]]:
        """Return the quarantined pods and the end of each quarantine (``clock.now()``)."""
        return ((self._quarantined_pod(uid), end) for uid, end in self.quarantine_ends.items())

    def _quarantined_pod(self, uid: str) -> PodInfo:
        pod = self._pending.get(uid)
        assert pod is not None, "a quarantined pod is pending"
        return pod

    def give_up(self, uids: Iterable[str]) -> None:
        """Requeue assumed pods whose bind was confirmed but is not in the relisted state."""
        for uid in uids:
            pending = self._pending.get(uid)
            if pending is None or not self._cache.is_assumed(uid):
                continue
            lost = self._cache.remove_pod(uid)
            assert lost is not None
            log.warning("binding was lost", extra={"pod": lost.key, "node": lost.node_name})
            self._queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE, lost.pod, None)
            self._queue.add(pending)

    def _assigned(self, info: PodInfo) -> None:
        """kube-scheduler: addAssignedPodToCache, updateAssignedPodInCache."""
        self._cache.add_pod(info)
        # It was bound by another client while waiting on permit.
        self._reject_waiting(info.uid)
        self._forget_pending(info.uid)
        self._queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_ADD, None, info.pod)

    def _pending_modified(self, old: Pod, info: PodInfo) -> None:
        """kube-scheduler: updatePodInSchedulingQueue, hasNominatedNodeNameChanged."""
        if not self._is_ours(info):
            # schedulerName changed: another scheduler is responsible now.
            self.deleted(old)
            if self._groups is not None:
                self._groups.pending(info, is_ours=False)
            return
        if self._groups is not None:
            self._groups.pending(info, is_ours=True)
        known = self._pending.put(info)
        if self._cache.is_assumed(info.uid):
            if self._queue.place_of(info.uid) is IN_FLIGHT:
                self._queue.update(known, info)
            if info.is_terminating and not old.metadata.deletion_timestamp:
                self._reject_waiting(info.uid)
            return
        if not self._is_quarantined(info):
            self._queue.update(known, info)
        nominated = old.status.nominated_node_name
        if nominated and nominated != info.pod.status.nominated_node_name:
            is_own = self._status.is_own_update(old, info.pod)
            self._wake_after_lost_nomination(
                old, ASSUMED_POD_FORGOTTEN if is_own else ASSIGNED_POD_DELETE
            )

    def _wake_after_lost_nomination(self, nominated: Pod, event: ClusterEvent) -> None:
        """Wake pods that did not fit because of a nominated pod, now gone or nominated elsewhere.

        kube-scheduler: getLEPriorityPreCheck.
        """
        uid, priority = nominated.metadata.uid, nominated.spec.priority or 0
        self._queue.move_all_to_active_or_backoff_queue(
            event, nominated, None, lambda other: other.priority <= priority and other.uid != uid
        )

    def _reject_waiting(self, uid: str) -> bool:
        """kube-scheduler: handleAssumedPodDeletion."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            waiting.reject("", REMOVED)
        return waiting is not None

    def _forget_pending(self, uid: str) -> bool:
        self._queue.delete(uid)
        self._status.forget(uid)
        self.quarantine_ends.pop(uid, None)
        return self._pending.remove(uid) is not None

    def _is_quarantined(self, info: PodInfo) -> bool:
        """Whether a pod must not be tried for now; it is withheld from the queue then."""
        if not info.pod.status.conditions and not self.quarantine_ends:
            return False
        seconds = quarantine_seconds(info.pod, self._clock.wall())
        if not seconds:
            self.quarantine_ends.pop(info.uid, None)
            return False
        if info.uid not in self.quarantine_ends:
            fields = {"pod": info.key, "seconds": round(seconds)}
            log.warning("pod is quarantined, it held up a scheduler", extra=fields)
            self._queue.delete(info.uid)
        self.quarantine_ends[info.uid] = self._clock.now() + seconds
        return True

    def _is_ours(self, info: PodInfo) -> bool:
        """kube-scheduler: responsibleForPod."""
        return info.template.spec.scheduler_name in self._scheduler_names

    def _info(self, pod: Pod) -> PodInfo | None:
        try:
            return self._cache.pod_info(pod)
        except InvalidObject as error:
            log.error("pod is invalid", extra={"pod": error.key, "err": error.problem})
            return None


class NodeHandler:
    """Handles events of every node."""

    def __init__(self, *, cache: SchedulerCache, queue: SchedulingQueue) -> None:
        self._cache = cache
        self._queue = queue
        self.is_synced = False

    def synced(self) -> None:
        self.is_synced = True

    def added(self, node: Node) -> None:
        """kube-scheduler: addNodeToCache."""
        if self._put(node):
            self._queue.move_all_to_active_or_backoff_queue(NODE_ADD, None, node)

    def modified(self, old: Node, new: Node) -> None:
        """kube-scheduler: updateNodeInCache."""
        if self._cache.get_node(new.metadata.name) is None:
            self.added(new)
            return
        # An extender that receives whole nodes may read any field.
        is_same = _is_same(old, new) and not isinstance(new, WholeNode)
        if not is_same and not self._put(new):
            return
        for event in node_update_events(old, new):
            self._queue.move_all_to_active_or_backoff_queue(event, old, new)

    def deleted(self, node: Node) -> None:
        """kube-scheduler: deleteNodeFromCache."""
        self._cache.remove_node(node.metadata.name)
        self._queue.move_all_to_active_or_backoff_queue(NODE_DELETE, node, None)

    def _put(self, node: Node) -> bool:
        try:
            self._cache.add_node(node)
        except InvalidObject as error:
            log.error("node is invalid", extra={"node": error.key, "err": error.problem})
            return False
        return True


class ListerHandler(Generic[T]):
    """Updates one lister, and wakes pods whose plugins registered for its kind."""

    def __init__(self, *, lister: Lister[T], queue: SchedulingQueue, resource: str) -> None:
        self._lister = lister
        self._queue = queue
        self._resource = resource
        self.is_synced = False

    def synced(self) -> None:
        self.is_synced = True

    def added(self, obj: T) -> None:
        self._lister.put(obj)
        self._wake(Action.ADD, None, obj)

    def modified(self, old: T, new: T) -> None:
        self._lister.put(new)
        self._wake(Action.UPDATE, old, new)

    def deleted(self, obj: T) -> None:
        self._lister.remove(obj)
        self._wake(Action.DELETE, obj, None)

    def _wake(self, action: Action, old: T | None, new: T | None) -> None:
        if self._resource:
            event = ClusterEvent(self._resource, action)
            self._queue.move_all_to_active_or_backoff_queue(event, old, new)


def _is_same(old: Node, new: Node) -> bool:
    """Whether two versions differ in nothing that a column or plugin reads (heartbeats)."""
    return (
        old.spec == new.spec
        and old.status == new.status
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.uid == new.metadata.uid
    )

"""One waiting pod is tried for all that are judged alike.

Ten thousand replicas wait for room, and a node comes that can take ten of them. If the event woke
all of them, 9,990 attempts would fail again, each with an Event and a longer backoff. So of the
pods of a group that is judged alike (``QueuedPodInfo.is_judged_alike``: template and nodes decide,
nothing else) only one is woken, the *scout*: the first if it can be tried at once, otherwise the
one whose backoff is over first. If it comes back to its group, the others would as well, and they
go on waiting. In every other case, as when it was placed, deleted or nominated, the next one is
woken, before any other pod is popped.

So a scout may back off, and be popped early like any other pod. If all that back off were woken
with it, each of them would fail again, early, and pay with a longer backoff. A scout that still
backs off when an event finds a pod that can be tried sooner is not the scout any more.
Pods with a nomination are never judged alike: what rejects the others may be that nomination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.backoff import BackoffQueue
from ksched.queue.nominator import Nominator
from ksched.queue.places import ACTIVE, BACKOFF, Place
from ksched.queue.unschedulable import UnschedulablePods, WaitingGroup


class Scouts:
    """The scouts that are ACTIVE or back off, and those that are being tried or gone."""

    def __init__(
        self,
        places: dict[str, Place],
        waiting: UnschedulablePods,
        nominator: Nominator,
        backoff: BackoffQueue,
        now: Callable[[], float],
    ) -> None:
        self._places = places
        self._waiting = waiting
        self._nominator = nominator
        self._backoff = backoff
        self._now = now
        self.ready: dict[str, WaitingGroup] = {}
        """The groups of the scouts that are ACTIVE or back off, by UID of the scout."""
        self.gone: list[tuple[QueuedPodInfo, WaitingGroup]] = []
        """Scouts that were popped, or are no longer pending, since ``next``."""

    def of(self, group: WaitingGroup, at: float, label: str) -> Iterator[QueuedPodInfo]:
        """Yield the pods of a group to be woken by an event, the scout last.

        The caller must requeue each pod before it takes the next.
        """
        group.woken_at, group.woken_by = at, label
        while group.pods:
            queued = self._soonest(group)
            if queued.timestamp > at or self._has_scout_before(group, queued):
                # Its attempt sees the event, or another has seen it already.
                return
            yield queued
            if queued.uid in group.pods:
                return
            is_ready = self._places.get(queued.uid) in (ACTIVE, BACKOFF)
            if is_ready and not self.is_nominated(queued):
                before = group.scout
                if before is not None and self.ready.get(before.uid) is group:
                    del self.ready[before.uid]
                group.scout = queued
                self.ready[queued.uid] = group
                return

    def _soonest(self, group: WaitingGroup) -> QueuedPodInfo:
        """The first pod if it can be tried at once, otherwise the one that can be first."""
        first = next(iter(group.pods.values()))
        if group.by_backoff is None or not self._backoff.is_backing_off(first, self._now()):
            return first
        return group.by_backoff.peek() or first

    def _has_scout_before(self, group: WaitingGroup, queued: QueuedPodInfo) -> bool:
        """Whether a scout of the group is ready that can be tried as soon as another pod."""
        scout = group.scout
        if scout is None or self.ready.get(scout.uid) is not group:
            return False
        if self._places.get(scout.uid) is ACTIVE:
            return True
        return self._backoff.expiration(scout) <= self._backoff.expiration(queued)

    def left(self, queued: QueuedPodInfo) -> None:
        """Record that a scout is popped, or no longer pending."""
        self.gone.append((queued, self.ready.pop(queued.uid)))

    def next(self) -> Iterator[tuple[QueuedPodInfo, str]]:
        """Yield the pods to be woken now that attempts of scouts are over, with the cause.

        The caller must requeue each pod before it takes the next.
        """
        while self.gone:
            queued, group = self.gone[-1]
            back = self._waiting.group_of(queued.uid)
            is_back = back is not None and back.key == group.key
            if not is_back or self.is_nominated(queued):
                for other in self.of(group, group.woken_at, group.woken_by):
                    yield other, group.woken_by
            self.gone.remove((queued, group))

    def is_special_now(self, queued: QueuedPodInfo) -> bool:
        """Whether a waiting pod that was judged alike has been nominated since."""
        return queued.is_judged_alike and self.is_nominated(queued)

    def is_nominated(self, queued: QueuedPodInfo) -> bool:
        """Whether a node may fit this pod that fits no other of its template."""
        status = queued.pod.pod.status
        return bool(self._nominator.node_of(queued.uid) or status.nominated_node_name)

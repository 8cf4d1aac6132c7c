"""The pods of the scheduling queue by place, and the transitions between places."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from ksched.cache.pod_info import PodInfo
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.active import ActiveQueue
from ksched.queue.backoff import BackoffQueue
from ksched.queue.in_flight import InFlight
from ksched.queue.nominator import Nominator
from ksched.queue.places import (
    ABSENT,
    ACTIVE,
    ALLOWED,
    BACKOFF,
    GATED,
    IN_FLIGHT,
    UNSCHEDULABLE,
    InvalidTransition,
    Observer,
    Place,
    Statistics,
    Transition,
    TransitionLog,
)
from ksched.queue.scouts import Scouts
from ksched.queue.unschedulable import RejectionCounts, SubjectKey, UnschedulablePods, Waker


class _Container(Protocol):
    def add(self, queued: QueuedPodInfo) -> None: ...
    def remove(self, uid: str) -> object: ...
    def __len__(self) -> int: ...


class QueueContents:
    """Every pending pod in exactly one place; ``SchedulingQueue`` decides where it goes."""

    def __init__(
        self,
        now: Callable[[], float],
        sort_key: Callable[[QueuedPodInfo], Any],
        rank: Callable[[QueuedPodInfo], Any] | None,
        backoff: BackoffQueue,
        observer: Observer | None,
        nominator: Nominator,
        subject_keys: Callable[[Iterable[Waker], PodInfo], Collection[SubjectKey]],
    ) -> None:
        self.nominator = nominator
        self._now = now
        self._observer = observer
        self._active = ActiveQueue(sort_key, rank)
        self._backoff = backoff
        self._unschedulable = UnschedulablePods(subject_keys, backoff.expiration)
        self._gated = UnschedulablePods(subject_keys, backoff.expiration)
        self._in_flight = InFlight()
        self._containers: dict[Place, _Container] = {
            ACTIVE: self._active,
            BACKOFF: self._backoff,
            UNSCHEDULABLE: self._unschedulable,
            GATED: self._gated,
            IN_FLIGHT: self._in_flight,
        }
        self._pods: dict[str, QueuedPodInfo] = {}
        self._place: dict[str, Place] = {}
        self._scouts = Scouts(self._place, self._unschedulable, nominator, backoff, now)
        self._log = TransitionLog()
        self._rejections = RejectionCounts()
        self._ready = asyncio.Event()
        self._resumed: asyncio.Event | None = None
        """Set when a pause ends."""

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return the entry of a queued or in-flight pod."""
        return self._pods.get(uid)

    def place_of(self, uid: str) -> Place:
        return self._place.get(uid, ABSENT)

    def story(self, uid: str) -> list[Transition]:
        """Return the recorded changes of place of a pod, oldest first."""
        return self._log.story(uid)

    def flows(self, seconds: float) -> Counter[tuple[Place, Place]]:
        """Count the changes of place in the last seconds, by source and target."""
        return self._log.flows(self._now() - seconds)

    def statistics(self) -> Statistics:
        return Statistics(
            active=len(self._active),
            backoff=len(self._backoff),
            unschedulable=len(self._unschedulable),
            gated=len(self._gated),
            in_flight=len(self._in_flight),
            in_flight_events=self._in_flight.event_count,
            nominated=len(self.nominator),
        )

    def in_flight_events(self) -> Counter[str]:
        """Count the events recorded for pods in flight, by label."""
        return self._in_flight.events_by_label()

    def pending_pods(self) -> dict[Place, Iterator[QueuedPodInfo]]:
        """Iterate over all pods by place, in pop order; pods may come and go meanwhile."""
        return {
            ACTIVE: iter(self._active),
            BACKOFF: iter(self._backoff),
            UNSCHEDULABLE: iter(self._unschedulable),
            GATED: iter(self._gated),
            IN_FLIGHT: (attempt.queued for attempt in self._in_flight.attempts()),
        }

    def rejections(self) -> Counter[tuple[str, str]]:
        """Count waiting pods by rejecting plugin and profile."""
        return self._rejections.by_plugin()

    # -- pauses ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let ``pop`` return no pod until ``resume``; the attempt of the last one may go on."""
        self._resumed = self._resumed or asyncio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    # -- transitions ------------------------------------------------------------------------------

    def _move(self, queued: QueuedPodInfo, target: Place, cause: str, detail: str = "") -> None:
        """Move a pod; no other method does. kube-scheduler: moveToActiveQ, moveToBackoffQ."""
        uid = queued.uid
        source = self._place.get(uid, ABSENT)
        if (source, target) not in ALLOWED:
            raise InvalidTransition(queued.key, source, target, self.story(uid))
        is_rejected = queued.unschedulable_plugins or queued.pending_plugins
        if source is not ABSENT:
            self._containers[source].remove(uid)
            if is_rejected and source is not IN_FLIGHT:
                self._rejections.remove(queued)
            if target is not ACTIVE and uid in self._scouts.ready:
                self._scouts.left(queued)
                self._ready.set()
        now = self._now()
        if target is ABSENT:
            del self._pods[uid], self._place[uid]
        else:
            self._pods[uid] = queued
            self._place[uid] = target
            self._containers[target].add(queued)
            if is_rejected and target is not IN_FLIGHT:
                self._rejections.add(queued)
            if target is ACTIVE or target is BACKOFF:
                self._ready.set()
                if queued.initial_attempt_timestamp is None and target is ACTIVE:
                    queued.initial_attempt_timestamp = now
        self._log.append(Transition(now, uid, source, target, cause, detail))
        if self._observer is not None:
            self._observer.moved(cause, source, target)

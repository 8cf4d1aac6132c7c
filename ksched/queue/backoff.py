"""Pods that are retried after a backoff, and the duration of that backoff.

There are four heaps: pods that were rejected, in two heaps, those of them that are ahead of their
schedule (``owed_until``), and pods whose attempt ended in an error. A rejection
only cost a cycle, so when no other pod is ready, its pod may be popped before the backoff is over.
An error often means trouble of the API server or an extender, so its backoff is never shortened.

An early attempt is an advance on the backoff it cuts short. If it fails, the next backoff begins
where that one would have ended, and until then the pod gets no further early attempt. A pod is thus
never more than one attempt ahead of its backoff schedule, however many events wake it: with default
settings attempts are at 0, 0, 1, 3, 7, 15, 25, 35 ... seconds at the earliest, where the backoff
alone would allow 0, 1, 3, 7, 15, 25, 35 ...

Of the rejected pods those that a group on nodes lacks (``completes_group``) are popped early first,
and their backoff does not grow: room that comes should find them ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain
from math import floor
from typing import Any

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.keyed_heap import KeyedHeap

_NEVER_BACKED_OFF = float("-inf")
_MAX_DOUBLINGS = 60


class BackoffQueue:
    """The backoff heaps, by expiration.

    Expirations are rounded down to whole seconds, and pods that expire in the same second are in
    queue-sort order (backend/queue/backoff_queue.go: getBackoffTime, isPodBackingoff, v1.36).
    """

    def __init__(
        self,
        sort_key: Callable[[QueuedPodInfo], Any],
        initial_seconds: float,
        max_seconds: float,
    ) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds

        def key(queued: QueuedPodInfo) -> Any:
            return self.expiration(queued), sort_key(queued)

        self._rejected: KeyedHeap[QueuedPodInfo] = KeyedHeap(key)
        self._completing: KeyedHeap[QueuedPodInfo] = KeyedHeap(key)
        self._ahead: KeyedHeap[QueuedPodInfo] = KeyedHeap(lambda queued: queued.owed_until)
        """Rejected pods that had an early attempt, by when they may have the next."""
        self._errors: KeyedHeap[QueuedPodInfo] = KeyedHeap(self.expiration)

    def set_durations(self, initial_seconds: float, max_seconds: float) -> None:
        """Set the backoff of later failures; a pod that backs off already keeps its own."""
        self._initial_seconds, self._max_seconds = initial_seconds, max_seconds

    def duration_seconds(self, queued: QueuedPodInfo) -> float:
        """Return the backoff after a pod's last failure: 1, 2, 4, 8, 10, 10 ... seconds.

        kube-scheduler: calculateBackoffDuration.
        """
        failures = queued.consecutive_errors_count or queued.unschedulable_count
        if not failures:
            return 0.0
        if queued.completes_group:
            failures = 1
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        return min(self._initial_seconds * 2.0**doublings, self._max_seconds)

    def expiration(self, queued: QueuedPodInfo) -> float:
        """Return the end of the backoff, counted from the last failure or from ``owed_until``.

        kube-scheduler: getBackoffTime, alignToWindow.
        """
        if queued.backoff_expiration is None:
            duration = self.duration_seconds(queued)
            start = queued.timestamp
            if not queued.consecutive_errors_count:
                start = max(start, queued.owed_until)
            queued.backoff_expiration = (
                float(floor(start + duration)) if duration else _NEVER_BACKED_OFF
            )
        return queued.backoff_expiration

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Whether the backoff has not expired; true during the whole second in which it ends.

        kube-scheduler: isPodBackingoff.
        """
        return self.expiration(queued) >= floor(now)

    def first_completed(self, now: float) -> QueuedPodInfo | None:
        """Return a pod whose backoff is over. kube-scheduler: popAllBackoffCompleted,
        popAllBackoffCompletedWithQueue."""
        self._let_catch_up(now)
        for heap in (self._completing, self._rejected, self._errors):
            queued = heap.peek()
            if queued is not None and not self.is_backing_off(queued, now):
                return queued
        return None

    def first_early(self, now: float) -> QueuedPodInfo | None:
        """Return the pod that may be popped before its backoff is over.

        kube-scheduler: popBackoff.
        """
        self._let_catch_up(now)
        return self._completing.peek() or self._rejected.peek()

    def cut_short(self, queued: QueuedPodInfo) -> None:
        """Record that a pod is popped before its backoff is over."""
        queued.owed_until = self.expiration(queued)

    def add(self, queued: QueuedPodInfo) -> None:
        if not queued.rejector_plugins:
            self._errors.add(queued)
        elif queued.owed_until >= floor(queued.timestamp):
            self._ahead.add(queued)
        else:
            self._heap_of_rejected(queued).add(queued)

    def update(self, queued: QueuedPodInfo) -> None:
        for heap in (self._rejected, self._completing, self._ahead, self._errors):
            if queued.uid in heap:
                heap.update(queued)

    def remove(self, uid: str) -> None:
        for heap in (self._rejected, self._completing, self._ahead, self._errors):
            if heap.remove(uid):
                return

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Iterate by expiration, errors last; pods may come and go meanwhile."""
        ahead = sorted(self._ahead, key=self.expiration)
        rejected = merge(self._completing, self._rejected, ahead, key=self.expiration)
        return chain(rejected, self._errors)

    def _let_catch_up(self, now: float) -> None:
        while (queued := self._ahead.peek()) is not None and queued.owed_until < floor(now):
            self._ahead.remove(queued.uid)
            self._heap_of_rejected(queued).add(queued)

    def _heap_of_rejected(self, queued: QueuedPodInfo) -> KeyedHeap[QueuedPodInfo]:
        return self._completing if queued.completes_group else self._rejected

    def __len__(self) -> int:
        rejected = len(self._rejected) + len(self._completing)
        return rejected + len(self._ahead) + len(self._errors)

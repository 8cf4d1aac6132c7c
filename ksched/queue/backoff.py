"""Pods that may try again after a pause, and how long the pause is.

Rejected pods and pods that met an error wait apart. A rejection wasted a cycle, nothing more: when
nobody else is ready its pod may try before the pause is over. An error often means that the API
server or an extender is in trouble, so its pause is always kept.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.keyed_heap import KeyedHeap

_NEVER_BACKED_OFF = float("-inf")
_MAX_DOUBLINGS = 60


class BackoffQueue:
    """The two backoff heaps, by end of the pause.

    Ends are rounded down to whole seconds and pods that end in the same second are in queue-sort
    order (backend/queue/backoff_queue.go: getBackoffTime, isPodBackingoff, v1.36).
    """

    def __init__(
        self,
        sort_key: Callable[[QueuedPodInfo], Any],
        initial_seconds: float,
        max_seconds: float,
    ) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._rejected: KeyedHeap[QueuedPodInfo] = KeyedHeap(
            lambda queued: (self.expiration(queued), sort_key(queued))
        )
        self._errors: KeyedHeap[QueuedPodInfo] = KeyedHeap(self.expiration)

    def duration_seconds(self, queued: QueuedPodInfo) -> float:
        """Return the pause a pod owes after its last failure: 1, 2, 4, 8, 10, 10 ... seconds."""
        failures = queued.consecutive_errors_count or queued.unschedulable_count
        if not failures:
            return 0.0
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        return min(self._initial_seconds * 2.0**doublings, self._max_seconds)

    def expiration(self, queued: QueuedPodInfo) -> float:
        """Return when the pause is over, counted from the last failure."""
        if queued.backoff_expiration is None:
            duration = self.duration_seconds(queued)
            queued.backoff_expiration = (
                float(floor(queued.timestamp + duration)) if duration else _NEVER_BACKED_OFF
            )
        return queued.backoff_expiration

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Say whether the pause still runs; it does during the whole second in which it ends."""
        return self.expiration(queued) >= floor(now)

    def first_completed(self, now: float) -> QueuedPodInfo | None:
        """Return a pod whose pause is over."""
        for heap in (self._rejected, self._errors):
            queued = heap.peek()
            if queued is not None and not self.is_backing_off(queued, now):
                return queued
        return None

    def first_rejected(self) -> QueuedPodInfo | None:
        """Return the pod that may be popped before its pause is over."""
        return self._rejected.peek()

    def add(self, queued: QueuedPodInfo) -> None:
        self._heap_of(queued).add(queued)

    def update(self, queued: QueuedPodInfo) -> None:
        self._heap_of(queued).update(queued)

    def remove(self, uid: str) -> None:
        if not self._rejected.remove(uid):
            self._errors.remove(uid)

    def in_order(self) -> list[QueuedPodInfo]:
        return [*self._rejected.in_order(), *self._errors.in_order()]

    def _heap_of(self, queued: QueuedPodInfo) -> KeyedHeap[QueuedPodInfo]:
        return self._rejected if queued.rejector_plugins else self._errors

    def __len__(self) -> int:
        return len(self._rejected) + len(self._errors)

"""Popped pods and what happened since each was popped.

An attempt decides on a snapshot. What changes meanwhile may be just what the pod lacked, so events
are kept while any pod is in flight and replayed when a rejected pod comes back. An event is
dropped as soon as every pod popped before it has come back or is done.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from itertools import islice
from typing import Any, NamedTuple

from ksched.framework.cluster_events import WILDCARD, ClusterEvent
from ksched.framework.queued_pod import QueuedPodInfo

MAX_EVENTS = 10_000
"""A pod may be held at Permit for a quarter of an hour; beyond this many events the oldest are
dropped and their pods are treated as woken, so memory is bounded and no wake-up is lost."""


class SeenEvent(NamedTuple):
    """An event with the object before and after; ``only`` limits it to one pod's UID."""

    event: ClusterEvent
    old: Any
    new: Any
    only: str | None = None


class Attempt:
    """A pod in flight."""

    __slots__ = ("is_deleted", "latest", "queued", "start")

    def __init__(self, queued: QueuedPodInfo, start: int) -> None:
        self.queued = queued
        self.start = start
        """Number of the first event after the pop."""
        self.latest = queued.pod
        """The newest version of the pod; the attempt goes on with the one it was popped with."""
        self.is_deleted = False


class InFlight:
    """The pods in flight, oldest first, and the events since the oldest was popped."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._max_events = max_events
        self._attempts: OrderedDict[str, Attempt] = OrderedDict()
        self._events: deque[SeenEvent] = deque()
        self._dropped = 0
        """Events that left at the head so far: the number of the first one still here."""

    def add(self, queued: QueuedPodInfo) -> None:
        end = self._dropped + len(self._events)
        self._attempts[queued.uid] = Attempt(queued, end)

    def remove(self, uid: str) -> None:
        del self._attempts[uid]
        if not self._events:
            return
        if not self._attempts:
            self._dropped += len(self._events)
            self._events.clear()
            return
        oldest = next(iter(self._attempts.values()))
        while self._events and self._dropped < oldest.start:
            self._drop_first()

    def get(self, uid: str) -> Attempt | None:
        return self._attempts.get(uid)

    def record(self, seen: SeenEvent) -> None:
        """Keep an event for the pods in flight; without any, forget it."""
        if not self._attempts:
            return
        self._events.append(seen)
        if len(self._events) > self._max_events:
            self._drop_first()

    def events_since(self, attempt: Attempt) -> list[SeenEvent]:
        """Return the events since a pod was popped that may concern it, oldest first."""
        count = self._dropped + len(self._events) - attempt.start
        if not count:
            return []
        # Counted from the end: an old pod at Permit must not make the others walk past its events.
        events = [
            seen
            for seen in islice(reversed(self._events), count)
            if seen.only is None or seen.only == attempt.queued.uid
        ]
        if attempt.start < self._dropped:
            events.append(SeenEvent(WILDCARD, None, None))
        events.reverse()
        return events

    def attempts(self) -> list[Attempt]:
        return list(self._attempts.values())

    @property
    def event_count(self) -> int:
        return len(self._events)

    def events_by_label(self) -> Counter[str]:
        return Counter(seen.event.label for seen in self._events)

    def _drop_first(self) -> None:
        self._events.popleft()
        self._dropped += 1

    def __len__(self) -> int:
        return len(self._attempts)

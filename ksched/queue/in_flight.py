"""Popped pods and the events since each was popped.

An attempt decides on a snapshot. A change that arrives meanwhile may be just what the pod lacked,
so events are recorded while any pod is in flight and replayed when a rejected pod returns. An event
is dropped as soon as every pod popped before it has returned or is done.

Pods held at Permit stay in flight for minutes. When thousands of them return at once, each must not
scan all events since its pop: beyond a few, only those that its rejecting plugins registered for
are read, and of these at most ``MAX_REPLAYED``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from ksched.framework.cluster_events import WILDCARD, ClusterEvent
from ksched.framework.queued_pod import QueuedPodInfo

MAX_EVENTS = 10_000
"""A pod may be held at Permit for a quarter of an hour; beyond this many events the oldest are
dropped and pods popped before them count as woken: memory is bounded and no wake-up is lost."""


MAX_REPLAYED = 1_000
"""How many events are replayed for one pod, newest first; with more it counts as woken. A hint
takes microseconds, and nothing else runs meanwhile."""

_WORTH_AN_INDEX = 64


class SeenEvent(NamedTuple):
    """An event with the object before and after; ``only`` limits it to one pod's UID."""

    event: ClusterEvent
    old: Any
    new: Any
    only: str | None = None


class Attempt:
    """A pod in flight."""

    __slots__ = ("is_deleted", "queued", "start")

    def __init__(self, queued: QueuedPodInfo, start: int) -> None:
        self.queued = queued
        self.start = start
        """Sequence number of the first event after the pop."""
        self.is_deleted = False


_Numbered = tuple[int, SeenEvent]


class _Index:
    """Events by kind, and those of single pods by UID; built lazily up to ``end``."""

    def __init__(self) -> None:
        self.end = 0
        """Sequence number of the first event that is not indexed."""
        self._shared: dict[ClusterEvent, deque[_Numbered]] = {}
        self._own: dict[str, deque[_Numbered]] = {}

    def add(self, number: int, seen: SeenEvent) -> None:
        if seen.only is None:
            series = self._shared.setdefault(seen.event, deque())
        else:
            series = self._own.setdefault(seen.only, deque())
        series.append((number, seen))
        self.end = number + 1

    def drop_first_of(self, seen: SeenEvent) -> None:
        """Remove the oldest event of all."""
        if seen.only is None:
            self._shared[seen.event].popleft()
            return
        series = self._own[seen.only]
        series.popleft()
        if not series:
            del self._own[seen.only]

    def clear(self, end: int) -> None:
        self._shared.clear()
        self._own.clear()
        self.end = end

    def find(
        self, start: int, uid: str, is_relevant: Callable[[ClusterEvent], bool]
    ) -> list[SeenEvent]:
        """Return matching events from ``start`` on, newest first, up to one above the limit."""
        matching = [series for event, series in self._shared.items() if is_relevant(event)]
        matching.append(self._own.get(uid, deque()))
        found = [
            numbered
            for series in matching
            for numbered in islice(reversed(series), MAX_REPLAYED + 1)
            if numbered[0] >= start
        ]
        found.sort(key=itemgetter(0), reverse=True)
        return [seen for _, seen in found[: MAX_REPLAYED + 1]]


class InFlight:
    """The pods in flight, oldest first, and the events since the oldest was popped."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._max_events = max_events
        self._attempts: OrderedDict[str, Attempt] = OrderedDict()
        self._events: deque[SeenEvent] = deque()
        self._dropped = 0
        """Events dropped so far: the sequence number of the first one still recorded."""
        self._index = _Index()

    def add(self, queued: QueuedPodInfo) -> None:
        """kube-scheduler: movePodToInFlight, unlockedMovePodToInFlight."""
        end = self._dropped + len(self._events)
        self._attempts[queued.uid] = Attempt(queued, end)

    def remove(self, uid: str) -> None:
        """kube-scheduler: unlockedDone."""
        del self._attempts[uid]
        if not self._events:
            return
        if not self._attempts:
            self._dropped += len(self._events)
            self._events.clear()
            self._index.clear(self._dropped)
            return
        oldest = next(iter(self._attempts.values()))
        while self._events and self._dropped < oldest.start:
            self._drop_first()

    def get(self, uid: str) -> Attempt | None:
        return self._attempts.get(uid)

    def record(self, seen: SeenEvent) -> None:
        """Record an event for the pods in flight; a no-op without any.

        kube-scheduler: addEventIfAnyInFlight, addEventsIfPodInFlight.
        """
        if not self._attempts:
            return
        self._events.append(seen)
        if len(self._events) > self._max_events:
            self._drop_first()

    def events_since(
        self, attempt: Attempt, is_relevant: Callable[[ClusterEvent], bool]
    ) -> list[SeenEvent]:
        """Return the events since a pod's pop that may concern it, oldest first.

        ``is_relevant`` selects event kinds that can change the outcome; others may be included.

        kube-scheduler: clusterEventsForPod.
        """
        count = self._dropped + len(self._events) - attempt.start
        if not count:
            return []
        uid, is_woken = attempt.queued.uid, attempt.start < self._dropped
        if count <= _WORTH_AN_INDEX:
            # Counted from the end, so that old pods in flight do not slow down recent ones.
            latest = islice(reversed(self._events), count)
            events = [seen for seen in latest if seen.only is None or seen.only == uid]
        else:
            self._fill_index()
            events = self._index.find(attempt.start, uid, is_relevant)
            if len(events) > MAX_REPLAYED:
                is_woken = True
                events.pop()
        if is_woken:
            events.append(SeenEvent(WILDCARD, None, None))
        events.reverse()
        return events

    def _fill_index(self) -> None:
        end = self._dropped + len(self._events)
        begin = max(self._index.end, self._dropped)
        missing = list(islice(reversed(self._events), end - begin))
        for number, seen in enumerate(reversed(missing), begin):
            self._index.add(number, seen)

    def attempts(self) -> list[Attempt]:
        """kube-scheduler: listInFlightPods."""
        return list(self._attempts.values())

    @property
    def event_count(self) -> int:
        return len(self._events)

    def events_by_label(self) -> Counter[str]:
        """kube-scheduler: listInFlightEvents, ObserveInFlightEventsAsync."""
        return Counter(seen.event.label for seen in self._events)

    def _drop_first(self) -> None:
        seen = self._events.popleft()
        if self._dropped < self._index.end:
            self._index.drop_first_of(seen)
        self._dropped += 1

    def __len__(self) -> int:
        return len(self._attempts)

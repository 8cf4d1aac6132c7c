"""The most recent decisions: who went where, and why not.

Observers (metrics, live views) are told of each decision as it is made; ``async for decision in
log`` reads them as they come.

Does not belong here: anything that decides.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct

log = logging.getLogger(__name__)

DECISIONS_KEPT = 1024
UNREAD_DECISIONS = 10_000
"""How far a reader may be behind before it misses the oldest."""


class Result(Enum):
    """How an attempt ended; the values are kube-scheduler's metric label values."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Decision(Struct, frozen=True):
    """The outcome of one attempt to schedule one pod."""

    at: float
    pod: str
    uid: str
    profile: str
    result: Result
    node_name: str
    message: str
    attempts: int
    evaluated_nodes: int
    feasible_nodes: int
    duration_seconds: float
    """From pop to the decision; for a scheduled pod, to the end of its binding."""
    algorithm_seconds: float
    """What choosing the node took, or finding that there is none."""
    waited_seconds: float
    """Since the pod was first ready to be tried."""


class DecisionStream:
    """The decisions since it was made, for one reader; ends when the scheduler stops scheduling.

    ``missed`` counts those that were dropped because the reader was ``UNREAD_DECISIONS`` behind.
    """

    def __init__(self) -> None:
        self._unread: deque[Decision] = deque()
        self._wake = asyncio.Event()
        self._is_ended = False
        self.missed = 0

    def put(self, decision: Decision) -> None:
        if len(self._unread) == UNREAD_DECISIONS:
            self._unread.popleft()
            if not self.missed:
                log.warning("decisions are read too slowly, the oldest are dropped")
            self.missed += 1
        self._unread.append(decision)
        self._wake.set()

    def end(self) -> None:
        self._is_ended = True
        self._wake.set()

    def __aiter__(self) -> DecisionStream:
        return self

    async def __anext__(self) -> Decision:
        while not self._unread:
            if self._is_ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._unread.popleft()


class DecisionLog:
    """A ring of decisions with observers and readers."""

    def __init__(self, length: int = DECISIONS_KEPT) -> None:
        self._ring: deque[Decision] = deque(maxlen=length)
        self._observers: list[Callable[[Decision], None]] = []
        # A reader that breaks out of its loop says nothing: it is garbage then.
        self._streams: list[weakref.ref[DecisionStream]] = []
        self._is_open = True

    def observe(self, observer: Callable[[Decision], None]) -> None:
        """Call ``observer`` with every decision from now on; it must be quick and not raise."""
        self._observers.append(observer)

    def record(self, decision: Decision) -> None:
        self._ring.append(decision)
        for observer in self._observers:
            observer(decision)
        for reference in self._streams:
            stream = reference()
            if stream is not None:
                stream.put(decision)

    def __aiter__(self) -> DecisionStream:
        """Read the decisions from now on; several readers each get all of them."""
        stream = DecisionStream()
        if self._is_open:
            self._streams.append(weakref.ref(stream, self._drop))
        else:
            stream.end()
        return stream

    def open(self) -> None:
        """There will be decisions; so it is from the beginning, and anew after ``close``."""
        self._is_open = True

    def close(self) -> None:
        """There will be no more: readers end when they have read what there is."""
        self._is_open = False
        streams, self._streams = self._streams, []
        for reference in streams:
            stream = reference()
            if stream is not None:
                stream.end()

    def _drop(self, reference: weakref.ref[DecisionStream]) -> None:
        self._streams = [one for one in self._streams if one is not reference]

    def of(self, pod: str) -> list[Decision]:
        """The remembered decisions about a pod (``namespace/name``), oldest first."""
        return [decision for decision in self._ring if decision.pod == pod]

    def __iter__(self) -> Iterator[Decision]:
        return iter(list(self._ring))

    def __len__(self) -> int:
        return len(self._ring)

"""A log of the most recent scheduling decisions: pod, node, or the reasons against all nodes.

Observers (metrics, live views) are called with each decision as it is made; ``async for decision in
log`` reads them as a stream.

Does not belong here: anything that influences a decision.
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
"""How far a reader may fall behind before it misses the oldest decisions."""


class Result(Enum):
    """Outcome of an attempt; the values are kube-scheduler's metric label values."""

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
    """Time of choosing the node, or of finding that none fits."""
    waited_seconds: float
    """Time since the pod was first ready for an attempt."""


class DecisionStream:
    """The decisions since its creation, for one reader; ends when the scheduler stops scheduling.

    ``missed`` counts decisions dropped because the reader was ``UNREAD_DECISIONS`` behind.
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
    """A ring of decisions with observers and streams."""

    def __init__(self, length: int = DECISIONS_KEPT) -> None:
        self._ring: deque[Decision] = deque(maxlen=length)
        self._observers: list[Callable[[Decision], None]] = []
        # A reader that breaks out of its loop does not unsubscribe; its stream is garbage then.
        self._streams: list[weakref.ref[DecisionStream]] = []
        self._is_open = True

    def observe(self, observer: Callable[[Decision], None]) -> None:
        """Call ``observer`` with every further decision; it must be quick and not raise."""
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
        """Stream the decisions from now on; each of several readers gets all of them."""
        stream = DecisionStream()
        if self._is_open:
            self._streams.append(weakref.ref(stream, self._drop))
        else:
            stream.end()
        return stream

    def open(self) -> None:
        """Accept new streams (initially, and again after ``close``)."""
        self._is_open = True

    def close(self) -> None:
        """End every stream after the decisions it has not read yet."""
        self._is_open = False
        streams, self._streams = self._streams, []
        for reference in streams:
            stream = reference()
            if stream is not None:
                stream.end()

    def _drop(self, reference: weakref.ref[DecisionStream]) -> None:
        self._streams = [one for one in self._streams if one is not reference]

    def of(self, pod: str) -> list[Decision]:
        """Return the logged decisions about a pod (``namespace/name``), oldest first."""
        return [decision for decision in self._ring if decision.pod == pod]

    def __iter__(self) -> Iterator[Decision]:
        return iter(list(self._ring))

    def __len__(self) -> int:
        return len(self._ring)

"""The most recent decisions: who went where, and why not.

Does not belong here: anything that decides. Observers (metrics, live views) are told of each
decision as it is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct

DECISIONS_KEPT = 1024


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


class DecisionLog:
    """A ring of decisions with observers."""

    def __init__(self, length: int = DECISIONS_KEPT) -> None:
        self._ring: deque[Decision] = deque(maxlen=length)
        self._observers: list[Callable[[Decision], None]] = []

    def observe(self, observer: Callable[[Decision], None]) -> None:
        """Call ``observer`` with every decision from now on; it must be quick and not raise."""
        self._observers.append(observer)

    def record(self, decision: Decision) -> None:
        self._ring.append(decision)
        for observer in self._observers:
            observer(decision)

    def of(self, pod: str) -> list[Decision]:
        """The remembered decisions about a pod (``namespace/name``), oldest first."""
        return [decision for decision in self._ring if decision.pod == pod]

    def __iter__(self) -> Iterator[Decision]:
        return iter(list(self._ring))

    def __len__(self) -> int:
        return len(self._ring)

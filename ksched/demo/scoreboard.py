"""What has happened so far, counted as it happens; the views read it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from ksched.clock import Clock
from ksched.queue.places import ACTIVE, BACKOFF, GATED, UNSCHEDULABLE, Place
from ksched.scheduling.decisions import Decision, Result

RATE_SECONDS: Final = 40
"""How far back the curve of binds per second reaches."""

NOTICE_SECONDS: Final = 8.0

_DECISIONS_SHOWN: Final = 120
_LATENCIES_KEPT: Final = 1000
_RATE_WINDOW_SECONDS: Final = 3.0


class Entry(NamedTuple):
    """A decision, when it was made on the demo's clock, and how often in a row."""

    at: float
    decision: Decision
    times: int


class Latency(NamedTuple):
    p50_seconds: float
    p99_seconds: float


class Scoreboard:
    """Counts decisions and wake-ups; an observer of the queue and of the decisions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started = clock.now()
        self.caption = ""
        self._notice = ("", clock.now())
        self.results: Counter[Result] = Counter()
        self.wake_ups: Counter[str] = Counter()
        self.recent: deque[Entry] = deque(maxlen=_DECISIONS_SHOWN)
        self.landed: dict[str, float] = {}
        """When a pod was last placed on a node."""
        self.messages: dict[str, str] = {}
        """The last message about a waiting pod, by UID."""
        self._latencies: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self._binds: deque[float] = deque()
        self._captions: list[Callable[[str], None]] = []
        self._notices: list[Callable[[str], None]] = []

    @property
    def elapsed_seconds(self) -> float:
        return self._clock.now() - self.started

    @property
    def decisions(self) -> int:
        return sum(self.results.values())

    @property
    def notice(self) -> str:
        """The last warning, for a while."""
        text, since = self._notice
        return text if self._clock.now() - since < NOTICE_SECONDS else ""

    def observe(self, captions: Callable[[str], None], notices: Callable[[str], None]) -> None:
        """Hand on every sentence of the story and every warning from now on."""
        self._captions.append(captions)
        self._notices.append(notices)

    def say(self, caption: str) -> None:
        self.caption = caption
        for observer in self._captions:
            observer(caption)

    def warn(self, notice: str) -> None:
        self._notice = (notice, self._clock.now())
        for observer in self._notices:
            observer(notice)

    def moved(self, cause: str, source: Place, target: Place) -> None:
        """Note what ended a wait (``queue.scheduling_queue.Observer``)."""
        if source in (UNSCHEDULABLE, GATED) and target in (ACTIVE, BACKOFF):
            self.wake_ups[cause] += 1

    def decided(self, decision: Decision) -> None:
        now = self._clock.now()
        self.results[decision.result] += 1
        self._latencies.append(decision.algorithm_seconds)
        self._list(now, decision)
        if decision.result is Result.SCHEDULED:
            self._binds.append(now)
            self.landed[decision.node_name] = now
            self.messages.pop(decision.uid, None)
            while self._binds[0] < now - RATE_SECONDS:
                self._binds.popleft()
        else:
            self.messages[decision.uid] = decision.message

    def _list(self, now: float, decision: Decision) -> None:
        """Add to the recent decisions; the same one again is listed once."""
        times = 1
        if self.messages.get(decision.uid) == decision.message:
            for entry in self.recent:
                if entry.decision.uid == decision.uid:
                    times += entry.times
                    self.recent.remove(entry)
                    break
        self.recent.append(Entry(now, decision, times))

    def latency(self) -> Latency:
        """How long choosing a node took, over the last thousand decisions."""
        ordered = sorted(self._latencies)
        if not ordered:
            return Latency(0.0, 0.0)
        return Latency(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])

    def binds_per_second(self) -> float:
        since = self._clock.now() - _RATE_WINDOW_SECONDS
        return sum(1 for at in self._binds if at > since) / _RATE_WINDOW_SECONDS

    def bind_curve(self, seconds: int = RATE_SECONDS) -> list[int]:
        """Binds in each of the last seconds, oldest first."""
        now = self._clock.now()
        counts = [0] * seconds
        for at in self._binds:
            ago = int(now - at)
            if ago < seconds:
                counts[seconds - 1 - ago] += 1
        return counts

"""The only place that asks for time.

Durations and deadlines use ``now`` (monotonic, the event loop's own clock, so that virtual time in
tests moves everything at once); ``wall`` is for timestamps that other people read. ``stopwatch``
measures work: uvloop's clock counts in milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

stopwatch = time.perf_counter
"""Seconds on a fine clock; only differences mean something. Not for deadlines."""


class Clock(Protocol):
    """A monotonic clock, a wall clock and a way to wait."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for timestamps only."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class LoopClock:
    """The clock of the event loop it is first asked in, and the machine's wall clock."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> float:
        # Asking for the running loop each time would cost a system call, getpid.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def rfc3339(wall_seconds: float) -> str:
    """Format a wall time as Kubernetes' ``metav1.Time`` (whole seconds, UTC)."""
    return datetime.fromtimestamp(int(wall_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(wall_seconds: float) -> str:
    """Format a wall time as Kubernetes' ``metav1.MicroTime`` (microseconds, UTC)."""
    return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

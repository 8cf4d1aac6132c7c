"""The only source of time.

Durations and deadlines use ``now`` (monotonic, the event loop's own clock, so that virtual time in
tests moves everything at once); ``wall`` is for timestamps shown to others. ``stopwatch`` measures
work: uvloop's clock has millisecond resolution.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

stopwatch = time.perf_counter
"""Seconds on a high-resolution clock; only differences are meaningful. Not for deadlines."""


cpu_seconds = time.thread_time
"""Seconds that this thread has computed; a busy machine does not make them longer."""


class Clock(Protocol):
    """A monotonic clock, a wall clock and a way to sleep."""

    def now(self) -> float:
        """Return seconds on a monotonic clock."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch, for timestamps only."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class LoopClock:
    """The clock of the event loop in which it is made or first used, and the wall clock."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self) -> None:
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is not None and type(self) is LoopClock:
            # Read twenty times for a pod. A derived clock may have a method of its own.
            self.__dict__["now"] = self._loop.time

    def now(self) -> float:
        # ``get_running_loop`` on every call would cost a system call, getpid.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_ZONE = -len("+00:00")
"""Of ISO format. ``strftime`` would look for the local time zone, with a system call."""


def rfc3339(wall_seconds: float) -> str:
    """Format a wall time as Kubernetes' ``metav1.Time`` (whole seconds, UTC)."""
    return f"{datetime.fromtimestamp(int(wall_seconds), UTC).isoformat()[:_ZONE]}Z"


def rfc3339_micro(wall_seconds: float) -> str:
    """Format a wall time as Kubernetes' ``metav1.MicroTime`` (microseconds, UTC)."""
    text = datetime.fromtimestamp(wall_seconds, UTC).isoformat(timespec="microseconds")
    return f"{text[:_ZONE]}Z"

"""An event loop on virtual time.

When every task waits for a timer, the clock jumps to the next timer instead of sleeping, so five
minutes of backoff cost nothing and happen at exact, repeatable seconds. A loop that waits without a
timer is a deadlock and raises instead of hanging. Sockets and threads need real time: use the
in-process API server with this loop.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ksched.clock import LoopClock

T = TypeVar("T")

EPOCH = 1_700_000_000.0
"""Wall-clock second at which every virtual loop starts."""


class VirtualSelector(selectors.DefaultSelector):
    """Advances ``now`` instead of sleeping when no file descriptor is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.idle_waiters: list[asyncio.Future[None]] = []

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout == 0:
            # Descriptors have their turn when no task is ready: a system call for every turn of the
            # loop would cost more than most turns.
            return []
        ready = super().select(0)
        if ready:
            return ready
        if self.idle_waiters:
            for waiter in self.idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self.idle_waiters.clear()
            return []
        if timeout is None:
            raise AssertionError("deadlock: every task waits and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector event loop on virtual time; ``time()`` starts at 0."""

    def __init__(self, selector: VirtualSelector | None = None) -> None:
        self._virtual = selector or VirtualSelector()
        super().__init__(self._virtual)

    @property
    def _clock_resolution(self) -> float:
        """How early asyncio may fire a timer: not at all.

        Code that wakes slightly before its deadline waits again. On a real loop that takes a
        moment; here the clock does not move while any task is busy, so two such tasks would be busy
        for ever.
        """
        return math.ulp(self._virtual.now)

    @_clock_resolution.setter
    def _clock_resolution(self, ignored: float) -> None:
        """The base class sets what the machine's clock has."""

    def time(self) -> float:
        return self._virtual.now

    def keep_busy(self, seconds: float) -> None:
        """Let time pass while no task may run, like a frozen process or a blocking call."""
        self._virtual.now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do the work at once: a thread takes real time, for which virtual time does not wait."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    async def idle(self) -> None:
        """Wait until nothing more can happen at this virtual instant; the clock stays."""
        waiter = self.create_future()
        self._virtual.idle_waiters.append(waiter)
        await waiter


class VirtualClock(LoopClock):
    """The ``Clock`` of code that runs on a ``VirtualLoop``."""

    def wall(self) -> float:
        return EPOCH + super().now()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

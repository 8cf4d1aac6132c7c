"""One of several simulated processes on an event loop stops, as after SIGSTOP, and goes on later.

A process is the tasks that were created with ``context_of`` its name, and theirs. While it is
frozen none of them takes a step, and time passes. Then everything that became ready meanwhile
happens at once, timers that are overdue last: the order of an event loop that finds both.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

_PROCESS: ContextVar[str] = ContextVar("process", default="")


def context_of(process: str) -> Context:
    """The context for the first task of a process."""
    context = copy_context()
    context.run(_PROCESS.set, process)
    return context


class Freezer:
    """Freezes and thaws the processes of a loop, whose own queues it edits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        self._call_soon = loop.call_soon
        self._ready: dict[str, list[asyncio.Handle]] = {}
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}

    def freeze(self, process: str) -> None:
        """Let no task of a process run; none of them may be the caller."""
        if process in self._ready:
            return
        loop = self._loop
        ready = self._ready[process] = []
        # The loop counts the handles of a turn before it runs them: those taken away leave a gap.
        gap = asyncio.Handle(_nothing, (), loop)
        gap.cancel()
        for _ in range(len(loop._ready)):
            handle = loop._ready.popleft()
            if _owner(handle) == process:
                ready.append(handle)
                handle = gap
            loop._ready.append(handle)
        self._timers[process] = [
            timer for timer in loop._scheduled if _owner(timer) == process and not timer.cancelled()
        ]
        mine = set(map(id, self._timers[process]))
        loop._scheduled[:] = [timer for timer in loop._scheduled if id(timer) not in mine]
        heapq.heapify(loop._scheduled)
        loop.call_soon = self._call_soon_unless_frozen

    def thaw(self, process: str) -> None:
        """Let a process go on, if it is frozen."""
        loop = self._loop
        loop._ready.extend(self._ready.pop(process, ()))
        for timer in self._timers.pop(process, ()):
            heapq.heappush(loop._scheduled, timer)
        if not self._ready:
            loop.call_soon = self._call_soon

    def _call_soon_unless_frozen(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        ready = self._ready.get(context.get(_PROCESS, ""))
        if ready is None:
            return self._call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self._loop, context)
        ready.append(handle)
        return handle


def _owner(handle: Any) -> str:
    owner: str = handle._context.get(_PROCESS, "")
    return owner


def _nothing() -> None:
    pass

"""The task group of the binding cycles."""

from __future__ import annotations

import asyncio
from types import TracebackType

import anyio


class BindingTasks(asyncio.TaskGroup):
    """An asyncio task group that shuts down properly inside anyio's cancel scopes.

    A task per pod: asyncio's group costs a tenth of anyio's. But anyio repeats a cancellation in
    every iteration of the event loop until the task leaves the scope, and asyncio's group keeps
    waiting for its children after each. Combined, they spin for as long as one plugin needs to
    clean up. So the wait for cancelled children is shielded.
    """

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is None:
            try:
                while self._tasks:
                    await asyncio.wait(self._tasks)
            except asyncio.CancelledError as cancelled:
                kind, problem, trace = type(cancelled), cancelled, cancelled.__traceback__
        with anyio.CancelScope(shield=True):
            await super().__aexit__(kind, problem, trace)
        if isinstance(problem, asyncio.CancelledError):
            raise problem

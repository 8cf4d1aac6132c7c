"""The task group of the binding cycles."""

from __future__ import annotations

import asyncio
from types import TracebackType

import anyio


class BindingTasks(asyncio.TaskGroup):
    """An asyncio task group that ends well inside anyio's scopes.

    A task per pod: asyncio's group costs a tenth of anyio's. But anyio cancels a task again with
    every turn of the event loop until it leaves the scope, and asyncio's group waits on for its
    children whatever happens. Together they are a busy loop for as long as one plugin needs to
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

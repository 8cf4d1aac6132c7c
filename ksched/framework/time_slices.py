"""Long computations in slices, with yields to the event loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ksched.errors import TookTooLong
from ksched.steps import Steps as Steps
from ksched.steps import at_once as at_once

T = TypeVar("T")


SLICE_SECONDS = 0.005
"""How long a computation may run before it yields to the event loop."""

ATTEMPT_SECONDS = 0.03
"""Limit per attempt for work whose length depends only on its own pod's spec: other pods wait
meanwhile. Enough for two thousand affinity terms, and not noticeable for the pods behind."""

FEW_STEPS = 8
"""So few that the clock need not be read."""


class TimeSlice:
    """The time since the last yield to the event loop; create one where the work begins."""

    __slots__ = ("_began", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()

    @property
    def is_over(self) -> bool:
        return self._now() - self._began > SLICE_SECONDS

    async def give_way(self) -> None:
        """Yield to the event loop; call it between two pieces of work when the slice is over."""
        await asyncio.sleep(0)
        self._began = self._now()

    async def give_way_if_over(self) -> None:
        """The same in one call, where work is in few large pieces."""
        if self.is_over:
            await self.give_way()


def in_slices(steps: Steps[T], now: Callable[[], float]) -> T | Coroutine[Any, Any, T]:
    """Run a computation: returns the result if one slice suffices, otherwise an awaitable."""
    try:
        for _ in range(FEW_STEPS):
            next(steps)
        turn = TimeSlice(now)
        while not turn.is_over:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return _go_on(steps, turn)


async def _go_on(steps: Steps[T], turn: TimeSlice) -> T:
    while True:
        if turn.is_over:
            await turn.give_way()
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def resuming(kept: dict[Any, Any], key: object, begin: Callable[[], Steps[T]]) -> Steps[T]:
    """Run a computation that is kept while it lasts: interrupted and restarted, it resumes."""
    steps: Steps[T] | None = kept.get(key)
    if steps is None:
        steps = kept[key] = begin()
    while True:
        try:
            next(steps)
        except BaseException as end:
            del kept[key]
            if isinstance(end, StopIteration):
                result: T = end.value
                return result
            raise
        yield


def within_budget(steps: Steps[T], now: Callable[[], float]) -> Steps[T]:
    """Limit a computation: ``TookTooLong`` at the first pause after ``ATTEMPT_SECONDS``.

    Only for work that resumes where it stopped when it is started again.
    """
    spent, taken = 0.0, 0
    while True:
        is_long = taken >= FEW_STEPS
        began = now() if is_long else 0.0
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        taken += 1
        if is_long:
            spent += now() - began
            if spent > ATTEMPT_SECONDS:
                raise TookTooLong(ATTEMPT_SECONDS)
        yield

"""Long work in small pieces, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from ksched.errors import TookTooLong

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that pauses now and then, and what comes of it."""

SLICE_SECONDS = 0.005
"""How long work may go on before the event loop gets its turn."""

ATTEMPT_SECONDS = 0.1
"""How much of its time an attempt may spend on what only its own pod's spec makes long: other pods
wait meanwhile. Enough for ten thousand affinity terms, and hardly noticed by those who wait."""

FEW_STEPS = 8
"""So few that time need not be asked for."""


class TimeSlice:
    """The time since the event loop had its turn; make one where the work begins."""

    __slots__ = ("_began", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()

    @property
    def is_over(self) -> bool:
        return self._now() - self._began > SLICE_SECONDS

    async def give_way(self) -> None:
        """Let the event loop run; call it between two pieces of work when the slice is over."""
        await asyncio.sleep(0)
        self._began = self._now()


def in_slices(steps: Steps[T], now: Callable[[], float]) -> T | Coroutine[Any, Any, T]:
    """Do some work: the result if a slice is enough, otherwise what to await for it."""
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


def at_once(steps: Steps[T]) -> T:
    """Do some work without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def within_budget(steps: Steps[T], now: Callable[[], float]) -> Steps[T]:
    """The same work; raises ``TookTooLong`` at a pause after more than ``ATTEMPT_SECONDS`` of it.

    Only for work that goes on where it stopped when it is begun again.
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

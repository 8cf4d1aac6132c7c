"""One timer for many entries with the same timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """Calls ``expire`` with every entry added ``seconds`` ago and not removed since.

    Ten thousand pods at Permit would otherwise need ten thousand timers.
    """

    __slots__ = ("_expire", "_seconds", "_timer", "_until")

    def __init__(self, seconds: float, expire: Callable[[T], None]) -> None:
        self._seconds, self._expire = seconds, expire
        self._until: dict[T, float] = {}
        """Oldest first, so that the first expires first."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: T) -> None:
        loop = asyncio.get_running_loop()
        self._until[one] = until = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(until, self._look)

    def remove(self, one: T) -> None:
        self._until.pop(one, None)
        if not self._until and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def span(self, one: T) -> tuple[float, float]:
        """Return when an entry was added and when it expires; ``KeyError`` if it is absent."""
        until = self._until[one]
        return until - self._seconds, until

    def pop_first(self) -> T | None:
        first = next(iter(self._until), None)
        if first is not None:
            self.remove(first)
        return first

    def __len__(self) -> int:
        return len(self._until)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._until:
            first, until = next(iter(self._until.items()))
            if until > loop.time():
                self._timer = loop.call_at(until, self._look)
                return
            del self._until[first]
            self._expire(first)

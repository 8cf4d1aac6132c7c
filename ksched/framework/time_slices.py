"""Long work in small pieces, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLICE_SECONDS = 0.005
"""How long work may go on before the event loop gets its turn."""


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

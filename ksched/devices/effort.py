"""How long one search for devices may take."""

from __future__ import annotations

from ksched.clock import cpu_seconds, stopwatch

STEPS_PER_LOOK = 200
"""Steps of a search (about half a millisecond) between two readings of the clock."""


class SearchIsLong(Exception):
    """The search, or a selector that it evaluates, belongs in a thread."""


class SearchTimedOut(Exception):
    """The search exceeded its time."""


class Effort:
    """The time limit of a search: short on an event loop, as configured in a thread."""

    __slots__ = ("_began", "_is_in_thread", "_now", "_seconds", "_steps", "is_stopped")

    def __init__(self, seconds: float, *, is_in_thread: bool = False) -> None:
        self._seconds = seconds
        self._is_in_thread = is_in_thread
        self._now = stopwatch if is_in_thread else cpu_seconds
        self._began = self._now()
        self._steps = STEPS_PER_LOOK
        self.is_stopped = False
        """Set by another thread: the search is to end."""

    def restart(self) -> None:
        self._began = self._now()

    def spend(self, steps: int) -> None:
        """Count steps; raises ``SearchIsLong`` on a loop or ``SearchTimedOut`` in a thread."""
        self._steps -= steps
        if self._steps <= 0:
            self._steps = STEPS_PER_LOOK
            if self.is_stopped or self._now() - self._began > self._seconds:
                raise SearchTimedOut if self._is_in_thread else SearchIsLong

    def need_thread(self) -> None:
        """Call before work that no step is small enough for; raises ``SearchIsLong`` on a loop."""
        if not self._is_in_thread:
            raise SearchIsLong
        self.spend(STEPS_PER_LOOK)

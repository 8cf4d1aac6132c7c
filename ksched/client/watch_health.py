"""How current the watched state is, and which watches fail.

Reflectors record their last contact with the server and since when they fail; this module turns
that into a readiness reason, a gauge and a warning that is repeated while it lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ksched.api.resources import ApiResource
from ksched.clock import Clock, rfc3339

log = logging.getLogger(__name__)

STALE_SECONDS: Final = 60.0
"""How long a watch may fail before the process is not ready."""
WARN_SECONDS: Final = 60.0

_LOOK_SECONDS: Final = 5.0
_ERROR_LENGTH: Final = 300


class WatchState:
    """The state of one watch; its reflector is the only writer."""

    __slots__ = ("contact_at", "failing_since", "is_open", "problem")

    def __init__(self) -> None:
        self.contact_at: float | None = None
        """Time of the last event, bookmark or part of a list; initially of the start."""
        self.failing_since: float | None = None
        self.problem = ""
        """The last error."""
        self.is_open = False
        """Whether a watch is open now, possibly without an event so far."""

    def fail(self, now: float, problem: str) -> None:
        if self.failing_since is None:
            self.failing_since = now
        self.problem = problem

    def failing_seconds(self, now: float) -> float:
        """Return for how long nothing has been watched; 0 when a watch is open."""
        return 0.0 if self.failing_since is None or self.is_open else now - self.failing_since


class Watched(Protocol):
    """A reflector."""

    @property
    def resource(self) -> ApiResource: ...

    @property
    def state(self) -> WatchState: ...


class WatchHealth:
    """The watches of one scheduler."""

    def __init__(self, watches: Sequence[Watched], clock: Clock) -> None:
        self._watches = watches
        self._clock = clock

    def ages(self) -> dict[str, float]:
        """Return seconds since the last contact, by resource; without those not started."""
        now = self._clock.now()
        return {
            str(watch.resource): now - watch.state.contact_at
            for watch in self._watches
            if watch.state.contact_at is not None
        }

    def problem(self) -> str:
        """Describe the kinds that are out of date, since when and why; empty if none."""
        now, wall = self._clock.now(), self._clock.wall()
        problems = []
        for watch in self._watches:
            seconds = watch.state.failing_seconds(now)
            if seconds >= STALE_SECONDS:
                since, error = rfc3339(wall - seconds), watch.state.problem[:_ERROR_LENGTH]
                problems.append(
                    f"{watch.resource} not watched for {seconds:.0f} s, since {since}: {error}"
                )
        return "; ".join(problems)

    async def run(self) -> None:
        """Log a warning, until cancelled, while there is a problem."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            if problem := self.problem():
                log.warning("cluster state is out of date", extra={"err": problem})
                await self._clock.sleep(WARN_SECONDS - _LOOK_SECONDS)

"""Memory is given back: what is kept between cycles and is not used any more goes."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterable

from ksched.cache.cache import SchedulerCache
from ksched.clock import Clock
from ksched.framework.runtime.profiles import Profile
from ksched.scheduling.scheduling_cycle import SchedulingCycle

SWEEP_SECONDS = 20.0
"""What was not used between two sweeps goes with the second."""

_RETRY_SECONDS = 1.0


class Sweeper:
    """Lets go of templates, counters, columns and logs that the last pods do not need any more.

    Whatever is kept for a template, a term or a label holds for every pod to come, so it is not
    dropped with the last pod that needed it: the next may be on its way. Nor is it kept until the
    room is needed, because then a tenant could fill it once and for all.
    """

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        cycle: SchedulingCycle,
        profiles: Iterable[Profile],
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._cycle = cycle
        self._profiles = tuple(profiles)
        self._clock = clock
        self._trim = _malloc_trim()

    async def run(self) -> None:
        """Sweep until cancelled, never while a cycle waits for something."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            while self._cycle.is_running:
                await self._clock.sleep(_RETRY_SECONDS)
            self.sweep()

    def sweep(self) -> None:
        # A quiet cluster has no cycles; the snapshot would keep pods that are long gone.
        self._cache.update_snapshot().table.sweep()
        for profile in self._profiles:
            profile.pipeline.sweep()
        self._trim()


def _malloc_trim() -> Callable[[], object]:
    """The C library's way to give free pages back to the system, where it has one."""
    try:
        trim = ctypes.CDLL(ctypes.util.find_library("c")).malloc_trim
    except (AttributeError, OSError):
        return lambda: None
    return lambda: trim(0)

"""Periodic eviction of state cached between cycles that is no longer used."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Collection

from ksched.cache.cache import SchedulerCache
from ksched.clock import Clock
from ksched.framework.memoizing import forget_memoized
from ksched.framework.runtime.profiles import Profile
from ksched.scheduling.scheduling_cycle import SNAPSHOT_SLICE, SchedulingCycle

SWEEP_SECONDS = 20.0
"""State unused since the previous sweep is evicted."""

_RETRY_SECONDS = 1.0


class Sweeper:
    """Evicts templates, counters, columns and logs that no recent pod used.

    State cached for a template, term or label is valid for later pods too, so it is not dropped
    with the last pod that used it: a similar pod may follow. Nor does it stay until a limit is
    reached, because one tenant could then fill the caches for good.

    ``profiles`` may change in between, as the values of a dictionary do.
    """

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        cycle: SchedulingCycle,
        profiles: Collection[Profile],
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._cycle = cycle
        self._profiles = profiles
        self._clock = clock
        self._trim = _malloc_trim()

    async def run(self) -> None:
        """Sweep until cancelled, never during a cycle."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            await self._publish()
            self.sweep()

    async def _publish(self) -> None:
        """Publish most of what changed, a slice at a time, whenever there is no cycle."""
        while self._cycle.is_running or len(self._cache.changed_nodes) > SNAPSHOT_SLICE:
            if self._cycle.is_running:
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                self._cache.update_snapshot(SNAPSHOT_SLICE)
                await asyncio.sleep(0)

    def sweep(self) -> None:
        # Without cycles the snapshot would retain pods that are long gone.
        self._cache.update_snapshot().table.sweep()
        self._cache.sweep()
        for profile in self._profiles:
            profile.pipeline.sweep()
        forget_memoized()
        self._trim()


def _malloc_trim() -> Callable[[], object]:
    """Return the C library's function that releases free pages, or a no-op."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return lambda: None
    return lambda: trim(0)

"""What becomes due with time alone: pauses that end, waits that were too long, lost assumptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import anyio

from ksched.cache.cache import SchedulerCache
from ksched.clock import Clock
from ksched.queue.pending_pods import PendingPods
from ksched.queue.scheduling_queue import (
    BACKOFF_FLUSH_SECONDS,
    UNSCHEDULABLE_FLUSH_SECONDS,
    SchedulingQueue,
)
from ksched.scheduling.event_handlers import PodHandler

EXPIRY_CHECK_SECONDS: Final = 1.0


class Flusher:
    """Moves pods whose time has come; ``expires_assumed`` if assumed pods can expire."""

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        pods: PodHandler,
        pending: PendingPods,
        cache: SchedulerCache,
        clock: Clock,
        expires_assumed: bool,
    ) -> None:
        self._queue = queue
        self._pods = pods
        self._pending = pending
        self._cache = cache
        self._clock = clock
        self._expires_assumed = expires_assumed

    async def run(self) -> None:
        """Flush until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._flush_backoff, name="flush backoff")
            tasks.start_soon(self._flush_unschedulable, name="flush unschedulable")
            if self._expires_assumed:
                tasks.start_soon(self._expire_assumed, name="expire assumed")

    async def _flush_backoff(self) -> None:
        """kube-scheduler: flushBackoffQCompleted."""
        while True:
            await self._clock.sleep(BACKOFF_FLUSH_SECONDS)
            await _in_slices(self._queue.flush_backoff_completed)
            self._pods.end_quarantines()

    async def _flush_unschedulable(self) -> None:
        """kube-scheduler: flushUnschedulablePodsLeftover."""
        while True:
            await self._clock.sleep(UNSCHEDULABLE_FLUSH_SECONDS)
            await _in_slices(self._queue.flush_unschedulable_leftover)

    async def _expire_assumed(self) -> None:
        while True:
            await self._clock.sleep(EXPIRY_CHECK_SECONDS)
            for pod in self._cache.expire_assumed():
                latest = self._pending.get(pod.uid)
                if latest is not None:
                    self._queue.add(latest)


async def _in_slices(flush: Callable[[], bool]) -> None:
    while flush():  # noqa: ASYNC110 - gives way between slices
        await asyncio.sleep(0)

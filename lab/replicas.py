"""A scheduler that leads and one that watches, in virtual time; the leader may be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ksched.apiserver.in_process import InProcessTransport
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import Cluster

USER = "system:kube-scheduler"


class Replicas:
    """``c.scheduler`` is always the one that leads, or will."""

    def __init__(self, c: Cluster, tasks: asyncio.TaskGroup) -> None:
        self._cluster, self._tasks = c, tasks
        self._number = 0
        self._leader: list[asyncio.Task[None]] = []
        self._follow(c.scheduler)
        self._standby, self._watching = self._new()

    @classmethod
    @asynccontextmanager
    async def running(cls, c: Cluster) -> AsyncIterator[Replicas]:
        """Start both; ``c`` was made with ``start=False``."""
        problem: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            replicas = cls(c, tasks)
            replicas._lead()
            await c.scheduler.wait_synced()
            try:
                yield replicas
            except Exception as raised:  # noqa: BLE001 - raised again below, not in a group
                problem = raised
            replicas.kill()
            replicas._watching.cancel()
        if problem is not None:
            raise problem

    def kill(self) -> None:
        """End the leader between two steps of the event loop; what it has sent has been sent."""
        for task in self._leader:
            task.cancel()
        self._leader = []

    def take_over(self, *, is_warm: bool) -> None:
        """Let the next one lead: the one that watches, or one that has just started."""
        if not is_warm:
            self._watching.cancel()
            self._standby, self._watching = self._new()
        self._cluster.scheduler = self._standby
        self._leader = [self._watching]
        self._lead()
        self._standby, self._watching = self._new()

    def _follow(self, scheduler: Scheduler) -> asyncio.Task[None]:
        watching = self._tasks.create_task(scheduler.watch())
        if scheduler is self._cluster.scheduler:
            self._leader.append(watching)
        return watching

    def _lead(self) -> None:
        self._leader.append(self._tasks.create_task(self._cluster.scheduler.schedule()))

    def _new(self) -> tuple[Scheduler, asyncio.Task[None]]:
        c = self._cluster
        self._number += 1
        scheduler = Scheduler(
            InProcessTransport(c.server, USER, c.faults),
            c.scheduler.configuration,
            clock=c.clock,
            seed=self._number,
        )
        return scheduler, self._follow(scheduler)

"""A scheduler that schedules nothing: one plugin, built as in a profile, and a cluster to see."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from ksched.cache.pod_info import PodInfo
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.pipeline import Pipeline
from ksched.framework.untrusted_values import is_interrupt
from ksched.scheduling.scheduler import Scheduler
from ksched.testing.conformance.random_cluster import RandomCluster
from ksched.testing.conformance.target import Target
from ksched.testing.harness import Cluster, beside, cluster
from ksched.testing.virtual_time import VirtualLoop, VirtualSelector

T = TypeVar("T")

PROFILE: Final = "default-scheduler"
PATIENCE_SECONDS: Final = 0.2
"""How long the virtual clock waits for a socket. A refused connection is reported at once; a
service that responds later counts as one that does not."""


class Trial:
    """The parts of a scheduler that the checks use."""

    def __init__(self, target: Target, scheduler: Scheduler, pods: list[PodInfo]) -> None:
        profile = scheduler.profiles[PROFILE]
        self.name = target.name
        self.scheduler = scheduler
        self.framework: Framework = profile.framework
        self.pipeline: Pipeline = profile.pipeline
        self.plugin: Any = self.framework.plugins[target.name]
        self.snapshot = scheduler.cache.update_snapshot()
        self.pods = pods
        """Pods to be scheduled."""


@asynccontextmanager
async def watched(target: Target, content: RandomCluster) -> AsyncIterator[Trial]:
    """A trial whose cache and listers are filled by watches, as in a running scheduler."""
    async with _idle(target, content) as c, beside(c.scheduler.watch):
        await c.create(*content.priority_classes, *content.nodes)
        await c.create(*content.running, *content.pending)
        await c.scheduler.wait_synced()
        await c.settle()
        pending = c.scheduler.pending
        uids = [c.uid(pod.to_dict()["metadata"]["name"]) for pod in content.pending]
        yield Trial(target, c.scheduler, [pod for uid in uids if (pod := pending.get(uid))])


@asynccontextmanager
async def filled(target: Target, content: RandomCluster) -> AsyncIterator[Trial]:
    """A trial whose cache is filled directly: large clusters at once; listers are empty."""
    async with _idle(target, content) as c:
        cache = c.scheduler.cache
        for node in content.nodes:
            cache.add_node(node.obj())
        for pod in content.running:
            cache.add_pod(cache.pod_info(pod.obj()))
        yield Trial(target, c.scheduler, [cache.pod_info(pod.obj()) for pod in content.pending])


@asynccontextmanager
async def _idle(target: Target, content: RandomCluster) -> AsyncIterator[Cluster]:
    async with cluster(
        config=target.config(),
        plugins=target.plugins,
        seed=content.seed,
        start=False,
        check_declarations=False,
    ) as c:
        lives = c.scheduler.plugin_lives
        try:
            await lives.start()
            yield c
        finally:
            await lives.stop()


class _PatientSelector(VirtualSelector):
    """Lets sockets have a moment of real time before the clock jumps."""

    def select(self, timeout: float | None = None) -> list[Any]:
        # One descriptor is the loop's own.
        if timeout != 0 and len(self.get_map()) > 1:
            ready = selectors.DefaultSelector.select(self, min(timeout or 1.0, PATIENCE_SECONDS))
            if ready:
                return ready
        return super().select(timeout)


class PatientLoop(VirtualLoop):
    """Virtual time for plugins that may talk to the world."""

    def __init__(self) -> None:
        super().__init__(_PatientSelector())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a check on a fresh loop; tasks that do not end when they are cancelled are dropped."""
    loop = PatientLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(_end_tasks())
        # asyncio would log what was dropped.
        loop.set_exception_handler(lambda loop, context: None)
        loop.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=1.0)
    for task in left:
        coroutine = task.get_coro()
        if not task.done() and isinstance(coroutine, Coroutine):
            try:
                coroutine.close()
            except BaseException as problem:
                if is_interrupt(problem):
                    raise

"""Drain: nodes and pending pods are there, one scheduler starts; how it works them off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from bench.devices import clear_devices, create_devices, create_pods
from bench.load_generator import LoadGenerator
from bench.process_usage import usage
from bench.schedulers import Start
from lab.child_process import ChildProcess

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Drain:
    """The figures of one drain.

    ``pods_per_second`` counts from the first to the last bind and ``cpu_ms_per_pod`` from the first
    bind on: starting up is in ``first_bind_seconds``.
    """

    bound: int
    asked: int
    pods_per_second: float
    first_bind_seconds: float
    cpu_ms_per_pod: float
    peak_rss_mb: float


@dataclass
class _Progress:
    """What the watch has seen and what the samples of the process said."""

    first: float | None = None
    last: float = 0.0
    names: set[str] = field(default_factory=set)
    cpu_at_first: float | None = None
    cpu: float = 0.0
    peak_rss_bytes: int = 0


async def drain(
    load: LoadGenerator, start: Start, workload: str, pods: int, timeout_seconds: float
) -> Drain:
    """Create the pods, start the scheduler, and wait until all are bound or time is up."""
    await load.clear_pods()
    await clear_devices(load)
    await create_devices(load, workload, pods)
    await create_pods(load, workload, pods)
    version = await load.resource_version()
    progress = _Progress()

    async def watch() -> None:
        async for name in load.bound_pods(version):
            if name in progress.names:
                continue
            progress.names.add(name)
            progress.last = monotonic()
            progress.first = progress.first or progress.last
            if len(progress.names) == pods:
                return

    started = monotonic()
    with start() as scheduler:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            deadline = started + timeout_seconds
            while not watching.done() and scheduler.exit_code is None and monotonic() < deadline:
                await asyncio.wait([watching], timeout=SAMPLE_SECONDS)
                _sample(scheduler, progress)
            watching.cancel()
        scheduler.must_run(0)
    return _figures(progress, pods, started)


def _sample(scheduler: ChildProcess, progress: _Progress) -> None:
    now = usage(scheduler.pid)
    progress.cpu = now.cpu_seconds
    progress.peak_rss_bytes = max(progress.peak_rss_bytes, now.rss_bytes)
    if progress.cpu_at_first is None and progress.names:
        progress.cpu_at_first = now.cpu_seconds


def _figures(progress: _Progress, pods: int, started: float) -> Drain:
    bound, nothing = len(progress.names), float("nan")
    first = nothing if progress.first is None else progress.first
    span = progress.last - first
    cpu = progress.cpu - (progress.cpu_at_first or 0.0)
    return Drain(
        bound=bound,
        asked=pods,
        pods_per_second=bound / span if span else nothing,
        first_bind_seconds=first - started,
        cpu_ms_per_pod=1000 * cpu / bound if bound else nothing,
        peak_rss_mb=progress.peak_rss_bytes / 2**20,
    )

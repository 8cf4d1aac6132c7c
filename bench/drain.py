"""Drain: nodes and pending pods are there, one scheduler starts; how it works them off."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from bench.devices import (
    clear_devices,
    create_devices,
    create_pod,
    create_pods,
    delete_pod,
    republish,
)
from bench.load_generator import LoadGenerator
from bench.process_usage import MachineTime, Usage, machine_time, usage
from bench.schedulers import Start
from ksched.testing.device_workloads import DEVICE_WORKLOADS
from lab.child_process import ChildProcess

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Drain:
    """The figures of one drain.

    ``pods_per_second`` counts from the first to the last bind and ``cpu_ms_per_pod`` from the first
    bind on: starting up is in ``first_bind_seconds``. ``server_ms_per_pod`` is the CPU time of the
    API server and etcd, and ``idle_share`` that of the machine's time in which nothing ran.
    """

    bound: int
    asked: int
    pods_per_second: float
    first_bind_seconds: float
    cpu_ms_per_pod: float
    peak_rss_mb: float
    server_ms_per_pod: float = math.nan
    idle_share: float = math.nan


class _Sample(NamedTuple):
    scheduler: Usage
    server_cpu_seconds: float
    machine: MachineTime


@dataclass
class _Progress:
    """What the watch has seen and what the samples of the process said."""

    first: float | None = None
    last: float = 0.0
    names: set[str] = field(default_factory=set)
    at_first: _Sample | None = None
    at_last: _Sample | None = None
    peak_rss_bytes: int = 0


async def drain(
    load: LoadGenerator,
    start: Start,
    workload: str,
    pods: int,
    timeout_seconds: float,
    server_pids: Sequence[int],
) -> Drain:
    """Create the pods, start the scheduler, and wait until all are bound or time is up.

    In a steady cluster a bound pod makes room for the next.
    """
    shape = DEVICE_WORKLOADS.get(workload)
    at_once = (0 if shape is None else shape.at_once) or pods
    await load.clear_pods()
    await clear_devices(load)
    await create_devices(load, workload, pods)
    await create_pods(load, workload, min(at_once, pods))
    version = await load.resource_version()
    progress = _Progress()

    async def watch(turnover: asyncio.TaskGroup) -> None:
        async for name in load.bound_pods(version):
            if name in progress.names:
                continue
            progress.names.add(name)
            progress.last = monotonic()
            progress.first = progress.first or progress.last
            if len(progress.names) == pods:
                return
            if at_once < pods:
                following = at_once + len(progress.names) - 1
                turnover.create_task(_turn_over(load, workload, name, following, pods))

    started = monotonic()
    with start(config=None if shape is None else shape.configuration) as scheduler:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch(tasks))
            publishing = tasks.create_task(republish(load, workload))
            deadline = started + timeout_seconds
            while not watching.done() and scheduler.exit_code is None and monotonic() < deadline:
                await asyncio.wait([watching], timeout=SAMPLE_SECONDS)
                _sample(scheduler, server_pids, progress)
            watching.cancel()
            publishing.cancel()
        scheduler.must_run(0)
    return _figures(progress, pods, started)


async def _turn_over(
    load: LoadGenerator, workload: str, bound: str, following: int, pods: int
) -> None:
    await delete_pod(load, bound)
    if following < pods:
        await create_pod(load, workload, following)


def _sample(scheduler: ChildProcess, server_pids: Sequence[int], progress: _Progress) -> None:
    server = sum(usage(pid).cpu_seconds for pid in server_pids)
    now = _Sample(usage(scheduler.pid), server, machine_time())
    progress.at_last = now
    progress.peak_rss_bytes = max(progress.peak_rss_bytes, now.scheduler.rss_bytes)
    if progress.at_first is None and progress.names:
        progress.at_first = now


def _figures(progress: _Progress, pods: int, started: float) -> Drain:
    bound, peak_rss_mb = len(progress.names), progress.peak_rss_bytes / 2**20
    before, after = progress.at_first, progress.at_last
    if progress.first is None or before is None or after is None:
        return Drain(bound, pods, math.nan, math.nan, math.nan, peak_rss_mb)
    span = progress.last - progress.first
    cpu = after.scheduler.cpu_seconds - before.scheduler.cpu_seconds
    server = after.server_cpu_seconds - before.server_cpu_seconds
    machine = after.machine.seconds - before.machine.seconds
    idle = after.machine.idle_seconds - before.machine.idle_seconds
    return Drain(
        bound=bound,
        asked=pods,
        pods_per_second=bound / span if span else math.nan,
        first_bind_seconds=progress.first - started,
        cpu_ms_per_pod=1000 * cpu / bound,
        peak_rss_mb=peak_rss_mb,
        server_ms_per_pod=1000 * server / bound,
        idle_share=idle / machine if machine else math.nan,
    )

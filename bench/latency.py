"""Latency: pods arrive at a fixed rate, whatever the scheduler does; how long each one waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from bench.load_generator import LoadGenerator
from bench.process_usage import usage
from bench.schedulers import Start
from bench.workloads import Object, pod, stuck_pod
from lab.child_process import ChildProcess

WORKLOAD = "basic"
SETTLE_SECONDS = 6.0
GRACE_SECONDS = 60.0


@dataclass(frozen=True)
class Latency:
    """The figures of one open-loop run; the waits are from created to seen bound."""

    bound: int
    asked: int
    p50_ms: float
    p99_ms: float
    cpu_ms_per_pod: float
    rss_mb: float


async def latency(
    load: LoadGenerator, start: Start, rate: float, seconds: float, stuck: int
) -> Latency:
    """Send ``rate`` pods a second, beside ``stuck`` pods that fit nowhere and came before."""
    await load.clear_pods()
    await load.create_pods(stuck_pod(index) for index in range(stuck))
    with start() as scheduler:
        await asyncio.sleep(SETTLE_SECONDS)
        bodies = [pod(index, WORKLOAD) for index in range(int(rate * seconds))]
        return await open_loop(load, scheduler, rate, bodies)


async def open_loop(
    load: LoadGenerator, scheduler: ChildProcess, rate: float, bodies: Sequence[Object]
) -> Latency:
    """Send ``rate`` pods a second to a scheduler that runs."""
    scheduler.must_run(0)
    before = usage(scheduler.pid)
    sent, waits = await arrivals(load, rate, bodies)
    scheduler.must_run(0)
    after = usage(scheduler.pid)
    in_order = sorted(1000 * wait for wait in waits.values())
    return Latency(
        bound=len(waits),
        asked=len(sent),
        p50_ms=quantile(in_order, 0.5),
        p99_ms=quantile(in_order, 0.99),
        cpu_ms_per_pod=1000 * (after.cpu_seconds - before.cpu_seconds) / len(sent),
        rss_mb=after.rss_bytes / 2**20,
    )


async def arrivals(
    load: LoadGenerator, rate: float, bodies: Sequence[Object]
) -> tuple[dict[str, float], dict[str, float]]:
    """Create pods on time; return when each was sent and how many seconds each bound one took."""
    sent: dict[str, float] = {}
    waits: dict[str, float] = {}
    version = await load.resource_version()

    async def watch() -> None:
        async for name in load.bound_pods(version):
            if name in sent and name not in waits:
                waits[name] = monotonic() - sent[name]
                if len(waits) == len(bodies):
                    return

    async with asyncio.TaskGroup() as watchers:
        watching = watchers.create_task(watch())
        started = monotonic()
        async with asyncio.TaskGroup() as creations:
            for index, body in enumerate(bodies):
                await asyncio.sleep(started + index / rate - monotonic())
                sent[body["metadata"]["name"]] = monotonic()
                creations.create_task(load.create_pod(body))
        await asyncio.wait([watching], timeout=GRACE_SECONDS)
        watching.cancel()
    return sent, waits


def quantile(in_order: list[float], fraction: float) -> float:
    """The value below which ``fraction`` of the values lie; nan without any."""
    if not in_order:
        return float("nan")
    return in_order[min(len(in_order) - 1, int(len(in_order) * fraction))]

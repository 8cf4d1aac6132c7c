"""A journal of many decisions: what it costs, and all of them made again.

    python -m lab.journal --nodes 500 --pods 10000

A scheduler in this process; an API server and whoever creates the pods in two others. Pods come in
rounds, every other one without a journal, so that both are measured in one run: CPU seconds of this
process and of its event loop per pod, from the first pod until the last record is on disk. The
state, with which a file begins, is written before. Then the journal is replayed, once as it is and
once with another weight of one plugin.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import msgspec
import uvloop

from bench.workloads import pod
from ksched.api.resources import PODS
from ksched.client.connecting import connect
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.configuration import load_config
from ksched.configuration.model import ClientConnection, SchedulerConfiguration
from ksched.daemon.garbage_collection import freeze_existing_objects
from ksched.journal.reading import JournalFile, journal_paths
from ksched.journal.replay_rendering import render
from ksched.journal.replay_report import ReplaySummary
from ksched.journal.replaying import Replayer
from ksched.journal.writing import FLUSH_SECONDS, Journal
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import Scheduler
from lab.embedded_process import embedded_server
from lab.shadow import CREATORS, Load

ROUND: Final = 1000
READY_TURNS: Final = 600
"""Tenths of a second that the state may take."""
LIMIT_BYTES: Final = 512 << 20
OTHER_WEIGHT: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    score:
      enabled: [{name: NodeResourcesBalancedAllocation, weight: 5}]
"""


class Usage(NamedTuple):
    """CPU seconds of one round."""

    process: float
    event_loop: float


class Costs:
    """What the rounds used, by whether the journal was written."""

    def __init__(self) -> None:
        self.rounds: dict[bool, list[Usage]] = {True: [], False: []}

    @property
    def journaled_pods(self) -> int:
        return ROUND * len(self.rounds[True])

    def lines(self) -> Iterator[str]:
        """Without the first two rounds, which fill caches."""
        for place, name in enumerate(Usage._fields):
            off, on = (
                1e6 / ROUND * statistics.median(usage[place] for usage in self.rounds[is_on][1:])
                for is_on in (False, True)
            )
            yield (
                f"CPU of the {name.replace('_', ' ')} per pod, median round: {off:.0f} us without, "
                f"{on:.0f} us with a journal: {on - off:+.1f} us, {on / off - 1:+.1%}"
            )


class Creator:
    """A process that creates pods when told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def create(self, first: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{first}\n".encode())
        await self._process.stdout.readline()


@asynccontextmanager
async def creating(kubeconfig: str, workload: str) -> AsyncIterator[Creator]:
    """Start the process that creates pods; it ends with the block."""
    command = [sys.executable, "-m", "lab.journal", f"--create-on={kubeconfig}"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, f"--workload={workload}", stdin=pipe, stdout=pipe
    )
    try:
        yield Creator(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def create_as_told(kubeconfig: str, workload: str) -> None:
    """Create a round of pods for each number that is read, until there are no more."""
    async with connect(kubeconfig) as transport:
        client = ApiClient(transport, LoopClock())
        while line := await asyncio.to_thread(sys.stdin.readline):
            numbers = iter(range(int(line), int(line) + ROUND))
            async with asyncio.TaskGroup() as tasks:
                for _ in range(CREATORS):
                    tasks.create_task(create_pods(client, numbers, workload))
            print("created", flush=True)


async def create_pods(client: ApiClient, numbers: Iterator[int], workload: str) -> None:
    for number in numbers:
        await client.create(PODS, "default", msgspec.json.encode(pod(number, workload)))


async def record(kubeconfig: str, folder: Path, options: argparse.Namespace) -> Costs:
    """Schedule so many pods with a journal, and as many without."""
    costs, clock = Costs(), LoopClock()
    configuration = SchedulerConfiguration(client_connection=ClientConnection(qps=-1.0))
    async with connect(kubeconfig) as transport, creating(kubeconfig, options.workload) as creator:
        await Load(ApiClient(transport, clock), options.nodes).create_nodes()
        scheduler = Scheduler(transport, configuration, seed=options.seed)
        journal = Journal(folder, LIMIT_BYTES, clock, Metrics(), "lab")
        journal.attach(scheduler)
        async with scheduler:
            freeze_existing_objects()
            for number in count():
                if costs.journaled_pods >= options.pods:
                    return costs
                is_on = number % 2 == 1
                around = journaling(journal) if is_on else without_hooks(scheduler)
                async with around:
                    costs.rounds[is_on].append(await round_of(scheduler, creator, number * ROUND))
    raise AssertionError("the rounds ended")


@asynccontextmanager
async def journaling(journal: Journal) -> AsyncIterator[None]:
    """Write the journal; the state is on disk when the block begins."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.run)
        for _ in range(READY_TURNS):
            if journal.is_ready:
                break
            await anyio.sleep(0.1)
        await anyio.sleep(2 * FLUSH_SECONDS)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def without_hooks(scheduler: Scheduler) -> AsyncIterator[None]:
    """As if there were no journal: cycle and cache do not even look whether it is written."""
    hooks = scheduler.cycle.observer, scheduler.cache.listener
    scheduler.cycle.observer = scheduler.cache.listener = None
    try:
        yield
    finally:
        scheduler.cycle.observer, scheduler.cache.listener = hooks


async def round_of(scheduler: Scheduler, creator: Creator, first: int) -> Usage:
    """Have pods created, wait until they are decided, and return what that took."""
    process, event_loop = time.process_time(), time.thread_time()
    await creator.create(first)
    await settled(scheduler)
    await anyio.sleep(2 * FLUSH_SECONDS)
    return Usage(time.process_time() - process, time.thread_time() - event_loop)


async def settled(scheduler: Scheduler) -> None:
    """Wait until no pod is on its way."""
    quiet = 0
    while quiet < 3:
        await anyio.sleep(0.05)
        sizes, cached = scheduler.queue.statistics(), scheduler.cache.statistics()
        is_busy = sizes.active or sizes.in_flight or cached.assumed_pods
        quiet = 0 if is_busy else quiet + 1


async def replay(
    folder: Path, configuration: SchedulerConfiguration | None
) -> tuple[ReplaySummary, float]:
    began, replayer = time.perf_counter(), Replayer(configuration)
    for path in journal_paths([str(folder)]):
        await replayer.run(JournalFile(path))
    return replayer.report.summary(), time.perf_counter() - began


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.journal", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--create-on", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.create_on:
        uvloop.run(create_as_told(options.create_on, options.workload))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with embedded_server(folder, 0) as server:
            costs = uvloop.run(record(server.kubeconfig, folder / "journal", options))
        print("\n".join(costs.lines()))
        paths = journal_paths([str(folder / "journal")])
        size = sum(path.stat().st_size for path in paths)
        print(f"journal: {len(paths)} files, {size / costs.journaled_pods:.0f} bytes per pod")
        for configuration in (None, load_config(OTHER_WEIGHT)):
            summary, seconds = uvloop.run(replay(folder / "journal", configuration))
            print(f"\nreplayed in {seconds:.1f} s:\n{render(summary)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

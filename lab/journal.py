"""A journal of many decisions: what it costs, and all of them made again.

    python -m lab.journal --nodes 500 --pods 10000

A scheduler in this process, an API server in another. Pods come in rounds, every other one without
a journal, so that both are measured in one run: CPU seconds of this process per pod. Then the
journal is replayed, once as it is and once with another weight of one plugin.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
from ksched.journal.reading import JournalFile, journal_paths
from ksched.journal.replay_rendering import render
from ksched.journal.replay_report import ReplaySummary
from ksched.journal.replaying import Replayer
from ksched.journal.writing import Journal
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import Scheduler
from lab.embedded_process import embedded_server
from lab.shadow import Load

ROUND: Final = 1000
LIMIT_BYTES: Final = 512 << 20
OTHER_WEIGHT: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    score:
      enabled: [{name: NodeResourcesBalancedAllocation, weight: 5}]
"""


class Costs:
    """CPU seconds of this process and pods, by whether the journal was written."""

    def __init__(self) -> None:
        self.seconds = {True: 0.0, False: 0.0}
        self.pods = {True: 0, False: 0}

    def per_pod_us(self, is_on: bool) -> float:
        return 1e6 * self.seconds[is_on] / max(self.pods[is_on], 1)


async def record(kubeconfig: str, folder: Path, options: argparse.Namespace) -> Costs:
    """Schedule so many pods with a journal, and as many without."""
    costs, clock = Costs(), LoopClock()
    configuration = SchedulerConfiguration(client_connection=ClientConnection(qps=-1.0))
    async with connect(kubeconfig) as transport, connect(kubeconfig) as other:
        load = Load(ApiClient(other, clock), options.nodes)
        await load.create_nodes()
        scheduler = Scheduler(transport, configuration, seed=options.seed)
        journal = Journal(folder, LIMIT_BYTES, clock, Metrics(), "lab")
        journal.attach(scheduler)
        async with scheduler:
            created = 0
            while costs.pods[True] < options.pods:
                is_on = created // ROUND % 2 == 1
                bodies = [
                    msgspec.json.encode(pod(number, options.workload))
                    for number in range(created, created + ROUND)
                ]
                created += ROUND
                async with anyio.create_task_group() as tasks:
                    if is_on:
                        tasks.start_soon(journal.run)
                        await anyio.sleep(1.0)
                    # They are created by this process too: that is the same with and without.
                    began, decided = time.process_time(), len_of(scheduler)
                    for body in bodies:
                        await load.client.create(PODS, "default", body)
                    await settled(scheduler)
                    # The last records are written half a second later.
                    await anyio.sleep(1.0)
                    costs.seconds[is_on] += time.process_time() - began
                    costs.pods[is_on] += ROUND
                    assert len_of(scheduler) >= decided
                    tasks.cancel_scope.cancel()
    return costs


def len_of(scheduler: Scheduler) -> int:
    return scheduler.cache.statistics().pods


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
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with embedded_server(folder, 0) as server:
            costs = uvloop.run(record(server.kubeconfig, folder / "journal", options))
        off, on = costs.per_pod_us(False), costs.per_pod_us(True)
        print(f"CPU per pod: {off:.0f} us without, {on:.0f} us with a journal: {on / off - 1:+.1%}")
        paths = journal_paths([str(folder / "journal")])
        size = sum(path.stat().st_size for path in paths)
        print(f"journal: {len(paths)} files, {size / costs.pods[True]:.0f} bytes per pod")
        for configuration in (None, load_config(OTHER_WEIGHT)):
            summary, seconds = uvloop.run(replay(folder / "journal", configuration))
            print(f"\nreplayed in {seconds:.1f} s:\n{render(summary)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

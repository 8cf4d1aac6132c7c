"""python -m bench.lease: is the lease renewed on time while the event loop schedules all it can?

Scheduler, elector and an embedded API server share one event loop, which is worse than any real
deployment. Shown per workload: how late a renewal began, and how late any sleeping task was woken.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise

import uvloop

from bench.loop_steps import LoopSteps
from bench.workloads import WORKLOADS, Object, in_gang, node, pod
from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock, stopwatch
from ksched.configuration.model import LeaderElection
from ksched.daemon.garbage_collection import freeze_existing_objects
from ksched.election import Elector, make_lock
from ksched.testing.harness import Cluster, cluster
from lab.gangs import configured

LEASE_USER = "lease"
GANG = "gang"
"""All pods in one group."""
PROBE_SECONDS = 0.01
RETRY_SECONDS = 0.25
"""Renewed more often than in a cluster, to have more renewals to look at."""


class Lags:
    """How much later than asked for something happened."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def render(self) -> str:
        if not self.seconds:
            return "-"
        ordered = sorted(self.seconds)
        p99 = ordered[int(len(ordered) * 0.99)]
        return f"{1000 * p99:.1f} / {1000 * ordered[-1]:.1f} ms"


async def probe(lags: Lags) -> None:
    while True:
        began = stopwatch()
        await asyncio.sleep(PROBE_SECONDS)
        lags.seconds.append(max(stopwatch() - began - PROBE_SECONDS, 0.0))


@asynccontextmanager
async def leading(c: Cluster) -> AsyncIterator[None]:
    """Hold a lease on the cluster's own server beside the block; losing it ends the block."""
    clock = LoopClock()
    config = LeaderElection(retry_period_seconds=RETRY_SECONDS)
    client = ApiClient(InProcessTransport(c.server, LEASE_USER), clock)
    elector = Elector(make_lock(config, client, clock, LEASE_USER, "bench"), config, clock)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(elector.run(asyncio.Event().wait))  # type: ignore[arg-type]
        yield
        task.cancel()


def make_pod(index: int, workload: str, pods: int) -> Object:
    return in_gang(pod(index, "basic"), GANG, pods) if workload == GANG else pod(index, workload)


async def measure(workload: str, nodes: int, pods: int, steps: LoopSteps | None = None) -> str:
    loop_lags, renewals = Lags(), Lags()
    fleet = [node(index) for index in range(nodes)]
    config = configured("annotations") if workload == GANG else None
    async with cluster(fleet, config=config, check_declarations=False) as c:
        await c.settle()
        # As in the daemon.
        freeze_existing_objects()
        async with leading(c), asyncio.TaskGroup() as tasks:
            recorded = nullcontext() if steps is None else steps.recorded()
            probing = tasks.create_task(probe(loop_lags))
            began = stopwatch()
            with recorded:
                for index in range(pods):
                    await c.create(make_pod(index, workload, pods))
                while len(c.scheduler.pending):
                    # Nothing else tells that a decision of thousands is still being made.
                    await c.settle()
            seconds = stopwatch() - began
            probing.cancel()
        times = [one.at for one in c.requests if (one.user, one.verb) == (LEASE_USER, "update")]
    gaps = [after - before for before, after in pairwise(times)]
    renewals.seconds = [max(gap - RETRY_SECONDS, 0.0) for gap in gaps[:-1]]
    return (
        f"{workload:14} {pods / seconds:7.0f} {len(renewals.seconds):9} "
        f"{renewals.render():>20} {loop_lags.render():>20}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lease", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=3000)
    known = (*WORKLOADS, GANG)
    parser.add_argument("--workloads", nargs="*", choices=known, default=list(known))
    parser.add_argument(
        "--steps", type=int, default=0, metavar="LINES", help="show the longest steps of the loop"
    )
    options = parser.parse_args()
    titles = ("pods/s", "renewals", "late p99 / max", "loop lag p99 / max")
    print(f"{'workload':14} {titles[0]:>7} {titles[1]:>9} {titles[2]:>20} {titles[3]:>20}")
    for workload in options.workloads:
        steps = LoopSteps() if options.steps else None
        work = measure(workload, options.nodes, options.pods, steps)
        print(uvloop.run(work) if steps is None else asyncio.run(work), flush=True)
        if steps is not None:
            print(steps.render(options.steps), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

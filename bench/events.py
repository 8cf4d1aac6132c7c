"""python -m bench.events: what preemptions, gated pods and node updates cost, in one process.

A whole scheduler on an embedded API server and virtual time, so waiting costs nothing. CPU includes
the API server's share; the counted work is the scheduler's alone and the same on every machine. The
cases have the shape of PreemptionBasic, SchedulingWhileGated and EventHandlingNodeUpdate of
kube-scheduler's scheduler_perf.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

from msgspec import Struct

from ksched.testing import Cluster, cluster, make_node, make_pod
from ksched.testing.builders import PodBuilder
from ksched.testing.virtual_time import run

LOW, HIGH = "low", "high"
GRACE_SECONDS = 60


class Work(Struct, frozen=True):
    """What a scheduler has done so far."""

    cpu_seconds: float
    attempts: int
    pre_enqueue_calls: int
    hint_calls: int
    rows: int

    def since(self, before: Work) -> Work:
        mine, theirs = self.__struct_fields__, before
        return Work(*(getattr(self, name) - getattr(theirs, name) for name in mine))


def work_of(c: Cluster) -> Work:
    pipelines = [profile.pipeline for profile in c.scheduler.profiles.values()]
    queue = c.scheduler.queue.work
    return Work(
        cpu_seconds=time.process_time(),
        attempts=sum(one.work.cycles for one in pipelines),
        pre_enqueue_calls=queue.pre_enqueue_calls,
        hint_calls=queue.hint_calls,
        rows=sum(one.work.rows for one in pipelines),
    )


def light(name: str) -> PodBuilder:
    """A pod that requests nothing and is gone as soon as it is deleted."""
    return make_pod(name).merge({"spec": {"terminationGracePeriodSeconds": 0}})


def of_class(name: str, priority_class: str, cpu: str) -> PodBuilder:
    spec = {"priorityClassName": priority_class, "terminationGracePeriodSeconds": 0}
    return make_pod(name).req(cpu=cpu, memory="500Mi").merge({"spec": spec})


async def until_bound(c: Cluster, names: Sequence[str]) -> None:
    for _ in range(GRACE_SECONDS):
        await c.settle()
        if all(map(c.bound, names)):
            return
        await c.clock.sleep(1)
    raise RuntimeError(f"{sum(not c.bound(one) for one in names)} of {len(names)} pods not bound")


async def preemption(c: Cluster, size: int) -> Callable[[], Awaitable[None]]:
    """As many preemptors as nodes, each of which evicts three of the four pods of a node."""
    for name, value in {LOW: 1, HIGH: 10}.items():
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        await c.create({**kind, "metadata": {"name": name}})
    await c.add_nodes(
        make_node(f"n{number}").capacity(cpu="4", pods="110") for number in range(size)
    )
    pods = (of_class(f"low{number}", LOW, "900m") for number in range(4 * size))
    await c.create(*(pod.node(f"n{number % size}") for number, pod in enumerate(pods)))

    async def measured() -> None:
        names = [f"high{number}" for number in range(size)]
        await c.create(*(of_class(name, HIGH, "3") for name in names))
        await until_bound(c, names)

    return measured


async def gated(c: Cluster, size: int) -> Callable[[], Awaitable[None]]:
    """One node takes every pod; as many are gated, and as many are deleted meanwhile."""
    await c.add_nodes([make_node("n0").capacity(cpu="4", pods="90000")])
    await c.create(*(make_pod(f"gated{number}").gate("hold") for number in range(size)))
    await c.create(*(light(f"old{number}").node("n0") for number in range(2 * size)))

    async def measured() -> None:
        names = [f"new{number}" for number in range(size)]
        for number, name in enumerate(names):
            await c.create(light(name))
            await c.delete(f"old{number}")
            await c.settle()
        await until_bound(c, names)

    return measured


async def node_updates(c: Cluster, size: int) -> Callable[[], Awaitable[None]]:
    """Ten pods for every node wait until its capacity grows; the nodes' grows one by one."""
    for number in range(size):
        await c.add_nodes([make_node(f"n{number}").capacity(cpu="1m", pods="3000")])
    names = [f"waiting{number}" for number in range(10 * size)]
    await c.create(*(make_pod(name).req(cpu="350m") for name in names))
    await c.settle()
    # Until their backoff is over.
    await c.clock.sleep(5)

    async def measured() -> None:
        for number in range(size):
            grown = {"cpu": "4", "pods": "3000"}
            status = {"status": {"capacity": grown, "allocatable": grown}}
            await c.patch_node(f"n{number}", status, subresource="status")
            await c.clock.sleep(0.01)
        await until_bound(c, names)

    return measured


CASES: dict[str, tuple[Callable[[Cluster, int], Awaitable[Callable[[], Awaitable[None]]]], int]] = {
    "preemption": (preemption, 1),
    "gated": (gated, 1),
    "nodeupdates": (node_updates, 10),
}
"""How a case is set up, and how many pods it measures for each of its size."""


async def measure(case: str, size: int, profile: cProfile.Profile | None = None) -> Work:
    """Set a case up, and return the work of the measured part."""
    set_up, _ = CASES[case]
    async with cluster(check_declarations=False) as c:
        measured = await set_up(c, size)
        await c.settle()
        gc.collect()
        gc.freeze()
        before = work_of(c)
        with profile if profile is not None else nullcontext():
            await measured()
        gc.unfreeze()
        return work_of(c).since(before)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.events", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[125, 500])
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--profile", action="store_true", help="print what took the time")
    options = parser.parse_args()
    print("per pod:       size  CPU ms  attempts PreEnqueue    hints      rows")
    for case in options.cases:
        for size in options.sizes:
            profile = cProfile.Profile() if options.profile else None
            work = run(measure(case, size, profile))
            pods = size * CASES[case][1]
            cpu_ms = 1000 * work.cpu_seconds / pods
            calls = (work.attempts, work.pre_enqueue_calls, work.hint_calls, work.rows)
            each = " ".join(f"{number / pods:9.2f}" for number in calls)
            print(f"{case:12} {size:6} {cpu_ms:7.2f} {each}", flush=True)
            if profile is not None:
                pstats.Stats(profile).sort_stats("cumulative").print_stats(70)
    return 0


if __name__ == "__main__":
    sys.exit(main())

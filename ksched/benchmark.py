"""Scheduling throughput without a network: queue, cycle, assume and confirm in one process.

The pods of a workload are queued; each is popped, scheduled and assumed, and the watch event that
confirms it goes through the event handler, as in the daemon. Nothing is decoded, bound or recorded:
this measures the core. Against a real control plane: ``python -m bench``.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ksched.api.objects import Node, Pod
from ksched.clock import stopwatch
from ksched.daemon.garbage_collection import freeze_existing_objects
from ksched.scheduling.scheduler import Scheduler
from ksched.scheduling.scheduling_cycle import Placed, SchedulingCycle
from ksched.testing.builders import PodBuilder, make_node, make_pod

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
ZONES: Final = 10
ANTI_AFFINITY_GROUP: Final = 200
SLICE: Final = 1000
"""Size of the slices of decisions at the beginning and at the end that are compared."""

_IN_ZONES: Final = (ZONE, "In", ("zone-1", "zone-2", "zone-3"))

Shape = Callable[[PodBuilder, int, dict[str, str]], PodBuilder]


class Figures(Struct, frozen=True):
    """The measurements of one workload."""

    workload: str
    nodes: int
    pods: int
    placed: int
    decisions_per_second: float
    cpu_micros_per_decision: float
    rows_per_decision: float
    """Nodes passed to plugins, all plugins together."""
    first_micros: float
    """CPU per decision in the first slice, which fills the caches, ..."""
    last_micros: float
    """... and in the last, which shows growth."""
    peak_rss_mb: float


def _spread(when_unsatisfiable: str) -> Shape:
    return lambda pod, number, app: pod.spread(
        ZONE, app, max_skew=5, when_unsatisfiable=when_unsatisfiable
    )


def _anti_affinity(pod: PodBuilder, number: int, app: dict[str, str]) -> PodBuilder:
    group = {"grp": f"g{number // ANTI_AFFINITY_GROUP}"}
    return pod.label(group).pod_anti_affinity(HOSTNAME, group)


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "basic": lambda pod, number, app: pod,
        "spread": _spread("DoNotSchedule"),
        "prefspread": _spread("ScheduleAnyway"),
        "affinity": lambda pod, number, app: pod.pod_affinity(REGION, app),
        "prefaffinity": lambda pod, number, app: pod.pod_affinity(ZONE, app, weight=10),
        "antiaffinity": _anti_affinity,
        "nodeaffinity": lambda pod, number, app: pod.required_node_affinity(_IN_ZONES),
    }
)
MIXED: Final = ("basic", "spread", "affinity", "nodeaffinity", "prefaffinity")
WORKLOADS: Final = (*SHAPES, "mixed")


def make_workload_pod(number: int, workload: str) -> PodBuilder:
    """Build pod ``number`` of a workload: 100m and 500Mi, and what the workload is about."""
    shape = MIXED[number % len(MIXED)] if workload == "mixed" else workload
    pod = make_pod(f"p-{shape}-{number:06d}").req(cpu="100m", memory="500Mi")
    pod = pod.label(app=shape, color=f"c{number % 5}")
    return SHAPES[shape](pod, number, {"app": shape})


def make_workload_node(number: int) -> Node:
    """Build node ``number``: 32 cores; every second has an SSD, every third some images."""
    node = make_node(f"node-{number:05d}").capacity(cpu="32", memory="256Gi", pods="110")
    labels = {ZONE: f"zone-{number % ZONES}", REGION: "r0", "disk": ("hdd", "ssd")[number % 2]}
    node = node.label(labels)
    if number % 3 == 0:
        for image in range(3):
            node = node.image(f"bench.example/img-{image}:v1", 50_000_000 * (image + 1))
    return node.obj()


async def measure(workload: str, nodes: int, pods: int, seed: int = 0) -> Figures:
    """Schedule a workload on an empty cluster of its own."""
    bench = _Bench(nodes, seed)
    waiting = [make_workload_pod(number, workload).obj() for number in range(pods)]
    for pod in waiting:
        bench.scheduler.pods.added(pod)
    # As in the daemon: existing objects are frozen, so that collections skip them.
    before = gc.get_threshold()
    freeze_existing_objects()
    part = min(SLICE, max(1, pods // 2))
    began, marks = stopwatch(), {0: time.process_time()}
    for number in range(1, pods + 1):
        await bench.schedule_one()
        if number in (part, pods - part, pods):
            marks[number] = time.process_time()
    seconds = stopwatch() - began
    gc.unfreeze()
    gc.set_threshold(*before)
    return Figures(
        workload=workload,
        nodes=nodes,
        pods=pods,
        placed=bench.placed,
        decisions_per_second=pods / seconds,
        cpu_micros_per_decision=(marks[pods] - marks[0]) / pods * 1e6,
        rows_per_decision=bench.rows_asked() / pods,
        first_micros=(marks[part] - marks[0]) / part * 1e6,
        last_micros=(marks[pods] - marks[pods - part]) / part * 1e6,
        peak_rss_mb=_peak_rss_mb(),
    )


class _Bench:
    """A scheduler for which the benchmark itself plays the API server."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.scheduler = Scheduler(_NoTransport(), seed=seed)
        self.placed = 0
        self._cycle = SchedulingCycle(
            cache=self.scheduler.cache,
            profiles=self.scheduler.profiles,
            nominator=self.scheduler.nominator,
            waiting=self.scheduler.waiting,
            permit_calls=self.scheduler.permit_calls,
            rng=random.Random(seed),
            unexpected_errors=self.scheduler.unexpected_errors,
        )
        for number in range(nodes):
            self.scheduler.nodes.added(make_workload_node(number))
        self.scheduler.cache.update_snapshot()

    async def schedule_one(self) -> None:
        queue = self.scheduler.queue
        queued = await queue.pop()
        assert queued is not None
        outcome = await self._cycle.run(queued)
        if isinstance(outcome, Placed):
            self.placed += 1
            queue.done(queued.uid)
            before = queued.pod.pod
            self.scheduler.pods.modified(before, _bound(before, outcome.node_name))
        else:
            plugins = outcome.diagnosis.unschedulable_plugins if outcome.diagnosis else None
            queue.add_unschedulable_if_not_present(queued, plugins or frozenset())

    def rows_asked(self) -> int:
        return sum(profile.pipeline.work.rows for profile in self.scheduler.profiles.values())


class _NoTransport:
    """There is no API server."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotImplementedError(f"the benchmark has no API server to {name}")


def _bound(pod: Pod, node_name: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node_name))


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / (1 << 10)

"""python -m bench.scale: how the core grows with the cluster, in process.

The objects of a cluster are read from JSON as lists deliver them; then pods are scheduled, single
nodes change, and everything is listed again. Each size has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from typing import Any

import msgspec
import uvloop

from bench.process_usage import usage
from bench.workloads import Object, node, plain_pod
from ksched.benchmark import SHAPES, CoreBench, make_workload_pod
from ksched.client.watch_store import Store
from ksched.daemon.garbage_collection import freeze_existing_objects

SIZES = (5_000, 15_000, 50_000, 100_000)
WORKLOADS = (*SHAPES, "mixed")
UPDATES = 200
LISTED_VERSION = 1_000_000_000
"""Of a list; the objects in it have lower versions."""


@dataclass(frozen=True)
class Scale:
    """The measurements of one size; CPU times."""

    nodes: int
    bound: int
    """Pods on these nodes."""
    nodes_seconds: float
    """Reading the first list of nodes, ..."""
    pods_seconds: float
    """... that of pods, ..."""
    first_decision_seconds: float
    """... and the first decision, which builds the columns."""
    rss_mb: float
    micros: dict[str, float]
    """Per decision, by workload."""
    heartbeat_micros: float
    """A node's status with another time."""
    update_micros: float
    """A node with another amount of memory, and the snapshot brought up to date."""
    relist_seconds: float
    """All lists again, without a change."""


class Cluster:
    """Objects as an API server stores them, and a scheduler that reads them."""

    def __init__(self, nodes: int, bound_per_node: int) -> None:
        self.bench = CoreBench(0, seed=0)
        self._nodes, self._bound = nodes, nodes * bound_per_node
        scheduler = self.bench.scheduler
        self._node_store = Store("Node", scheduler.extenders.node_decoder(), scheduler.nodes)
        decode_pod = scheduler.extenders.pod_decoder(scheduler.profiles)
        self._pod_store = Store("Pod", decode_pod, scheduler.pods)
        self._version = LISTED_VERSION
        self._created = 0

    def list_nodes(self) -> float:
        """Deliver the list of nodes; return the CPU seconds that reading it took."""
        return _list(self._node_store, (_stored(node(i), i) for i in range(self._nodes)))

    def list_pods(self) -> float:
        return _list(self._pod_store, (self._bound_pod(i) for i in range(self._bound)))

    def update_node(self, number: int, change: Callable[[Object], None]) -> float:
        """Deliver a change of one node; return the CPU seconds until decisions can go on."""
        body = node(number)
        change(body)
        self._version += 1
        raw = _stored(body, self._version)
        began = time.process_time()
        decoded = self._node_store.decoded(raw)
        assert decoded is not None
        self._node_store.put(decoded)
        self.bench.scheduler.cache.update_snapshot()
        return time.process_time() - began

    async def decide(self, workload: str, pods: int) -> float:
        """Schedule pods; return the CPU seconds for each."""
        first, self._created = self._created, self._created + pods
        for number in range(first, self._created):
            self.bench.scheduler.pods.added(make_workload_pod(number, workload).obj())
        began = time.process_time()
        for _ in range(pods):
            await self.bench.schedule_one()
        return (time.process_time() - began) / pods

    def _bound_pod(self, number: int) -> msgspec.Raw:
        body = plain_pod(number, f"bound-{number % 100}")
        body["spec"]["nodeName"] = f"node-{number % self._nodes:05d}"
        body["status"] = {"phase": "Running"}
        return _stored(body, number)


def _list(store: Store[Any], items: Iterator[msgspec.Raw]) -> float:
    store.begin_list()
    seconds = 0.0
    for raw in items:
        began = time.process_time()
        store.list_item(raw, store.decoded(raw))
        seconds += time.process_time() - began
    began = time.process_time()
    store.end_list(str(LISTED_VERSION))
    return seconds + time.process_time() - began


def _stored(body: Object, version: int) -> msgspec.Raw:
    metadata = body["metadata"]
    metadata["uid"] = f"uid-{metadata['name']}"
    metadata["resourceVersion"] = str(version + 1)
    return msgspec.Raw(msgspec.json.encode(body))


def _heartbeat(body: Object) -> None:
    body["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-02T00:00:00Z"


def _less_memory(body: Object) -> None:
    body["status"]["allocatable"] = {**body["status"]["allocatable"], "memory": "255Gi"}


async def measure(nodes: int, bound_per_node: int, pods: int) -> Scale:
    """Measure one size."""
    cluster = Cluster(nodes, bound_per_node)
    # As the daemon does while it reads the first lists.
    gc.disable()
    nodes_seconds, pods_seconds = cluster.list_nodes(), cluster.list_pods()
    gc.enable()
    freeze_existing_objects()
    first = await cluster.decide("basic", 1)
    micros = {each: 1e6 * await cluster.decide(each, pods) for each in WORKLOADS}
    step = max(1, nodes // UPDATES)
    heartbeats = [cluster.update_node(i, _heartbeat) for i in range(0, nodes, step)]
    updates = [cluster.update_node(i, _less_memory) for i in range(0, nodes, step)]
    rss_mb = usage(os.getpid()).rss_bytes / (1 << 20)
    return Scale(
        nodes=nodes,
        bound=nodes * bound_per_node,
        nodes_seconds=nodes_seconds,
        pods_seconds=pods_seconds,
        first_decision_seconds=first,
        rss_mb=rss_mb,
        micros=micros,
        heartbeat_micros=1e6 * median(heartbeats),
        update_micros=1e6 * median(updates),
        relist_seconds=cluster.list_nodes() + cluster.list_pods(),
    )


def _measured(nodes: int, bound_per_node: int, pods: int) -> Scale:
    return uvloop.run(measure(nodes, bound_per_node, pods))


def rows(results: list[Scale]) -> Iterator[str]:
    """The table, a column for each size."""
    yield _row("nodes", [f"{one.nodes:,}" for one in results])
    yield _row("bound pods", [f"{one.bound:,}" for one in results])
    yield _row("reading nodes, s", [f"{one.nodes_seconds:.2f}" for one in results])
    yield _row("reading pods, s", [f"{one.pods_seconds:.1f}" for one in results])
    yield _row("first decision, s", [f"{one.first_decision_seconds:.2f}" for one in results])
    yield _row("RSS, MB", [f"{one.rss_mb:,.0f}" for one in results])
    for workload in WORKLOADS:
        yield _row(f"{workload}, µs", [f"{one.micros[workload]:,.0f}" for one in results])
    yield _row("heartbeat, µs", [f"{one.heartbeat_micros:,.0f}" for one in results])
    yield _row("node update, µs", [f"{one.update_micros:,.0f}" for one in results])
    yield _row("relist, s", [f"{one.relist_seconds:.1f}" for one in results])


def _row(heading: str, cells: list[str]) -> str:
    return f"| {heading:<18} | " + " | ".join(f"{cell:>9}" for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument("--bound", type=int, default=10, metavar="N", help="pods on each node")
    parser.add_argument("--pods", type=int, default=1000, metavar="N", help="of each workload")
    arguments = parser.parse_args()
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes:
        calls = [
            processes.submit(_measured, nodes, arguments.bound, arguments.pods)
            for nodes in arguments.nodes
        ]
        results = [call.result() for call in calls]
    print("\n".join(rows(results)))


if __name__ == "__main__":
    main()

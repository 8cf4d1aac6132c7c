"""python -m bench.perf: kube-scheduler and ksched in turns at what events cost.

The cases have the shape of scheduler_perf's PreemptionBasic (``preemption``), SchedulingWhileGated
(``gated``), EventHandlingNodeUpdate (``nodeupdates``) and SchedulingCSIPVs (``volumes``), outside
the process and on a real control plane. Pods that a case needs at the start are created bound, so
that no scheduler places them.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

import uvloop

from bench.latency import SETTLE_SECONDS, arrivals, quantile
from bench.load_generator import CREATORS, PODS, LoadGenerator, share_out
from bench.process_usage import usage
from bench.schedulers import RBAC, Start, add_schedulers, starters
from bench.table import BindLimit, Figures, render
from bench.workloads import NAMESPACE, Object, node, plain_pod
from ksched.errors import KschedError
from lab.assets import Assets
from lab.control_plane import ControlPlane

BEFORE = "ksched before"
CLASSES = {"bench-low": 1, "bench-high": 10}
BURST = 1000.0
DELETIONS_A_SECOND = 50.0
UPDATES_A_SECOND = 100.0
UPDATE_GRACE_SECONDS = 60.0
DRIVER = "ebs.csi.aws.com"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"

Waits = dict[str, tuple[float, float]]
"""When each bound pod was sent, or could be bound, and when it was seen bound."""


def sized_node(index: int, **resources: str) -> Object:
    body = node(index)
    body["status"]["images"] = []
    for field in ("capacity", "allocatable"):
        body["status"][field] = {**body["status"][field], **resources}
    return body


def pod_of(name: str, requests: Object, **spec: object) -> Object:
    body = plain_pod(0, "perf")
    body["metadata"]["name"] = name
    body["spec"] = {**body["spec"], **spec}
    body["spec"]["containers"][0]["resources"] = {"requests": requests}
    return body


def node_name(index: int) -> str:
    name: str = node(index)["metadata"]["name"]
    return name


async def create_nodes(load: LoadGenerator, nodes: Iterable[Object]) -> None:
    await share_out(nodes, CREATORS, lambda body: load.post("/api/v1/nodes", body))


class Case(Protocol):
    pods_each: int
    """How many pods are measured for each of the size."""

    async def prepare(self, load: LoadGenerator, size: int) -> None:
        """Create what is there before the scheduler starts."""
        ...

    async def measured(self, load: LoadGenerator, size: int) -> Waits:
        """Let happen what is measured."""
        ...


class Preemption:
    """As many preemptors as nodes; each evicts three of the four pods of a node."""

    pods_each = 1

    async def prepare(self, load: LoadGenerator, size: int) -> None:
        await create_nodes(load, (sized_node(index, cpu="4") for index in range(size)))
        requests, low = {"cpu": "900m", "memory": "500Mi"}, {"priorityClassName": "bench-low"}
        await load.create_pods(
            pod_of(f"p-low-{index}", requests, nodeName=node_name(index % size), **low)
            for index in range(4 * size)
        )

    async def measured(self, load: LoadGenerator, size: int) -> Waits:
        return in_time(*await arrivals(load, BURST, self.preemptors(size)))

    def preemptors(self, size: int) -> list[Object]:
        requests, high = {"cpu": "3", "memory": "500Mi"}, {"priorityClassName": "bench-high"}
        return [pod_of(f"p-high-{index}", requests, **high) for index in range(size)]


class Gated:
    """One node takes every pod; five times as many are gated, and others are being deleted."""

    pods_each = 1

    async def prepare(self, load: LoadGenerator, size: int) -> None:
        await create_nodes(load, [sized_node(0, cpu="4", pods="90000")])
        gates = [{"name": "bench.example/hold"}]
        gated = (pod_of(f"p-gated-{n}", {}, schedulingGates=gates) for n in range(5 * size))
        await load.create_pods(gated)
        old = (pod_of(f"p-old-{n}", {}, nodeName=node_name(0)) for n in range(10 * size))
        await load.create_pods(old)

    async def measured(self, load: LoadGenerator, size: int) -> Waits:
        async def delete() -> None:
            began = monotonic()
            for index in range(10 * size):
                await asyncio.sleep(began + index / DELETIONS_A_SECOND - monotonic())
                await load.delete(f"{PODS}/p-old-{index}")

        async with asyncio.TaskGroup() as tasks:
            deleting = tasks.create_task(delete())
            bodies = [pod_of(f"p-new-{index}", {}) for index in range(size)]
            found = await arrivals(load, BURST, bodies)
            deleting.cancel()
        return in_time(*found)


class NodeUpdates:
    """Ten pods for every node wait for its capacity, which grows one node after the other."""

    pods_each = 10

    async def prepare(self, load: LoadGenerator, size: int) -> None:
        await create_nodes(load, (sized_node(index, cpu="1m") for index in range(size)))
        requests = {"cpu": "350m", "memory": "300Mi"}
        await load.create_pods(pod_of(f"p-waiting-{n}", requests) for n in range(10 * size))

    async def measured(self, load: LoadGenerator, size: int) -> Waits:
        waits: Waits = {}
        version, began = await load.resource_version(), monotonic()

        async def watch() -> None:
            async for name in load.bound_pods(version):
                waits.setdefault(name, (began, monotonic()))
                if len(waits) == 10 * size:
                    return

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            for index in range(size):
                await asyncio.sleep(began + index / UPDATES_A_SECOND - monotonic())
                grown = sized_node(index, cpu="4")["status"]
                amounts = {name: grown[name] for name in ("capacity", "allocatable")}
                await load.merge(f"/api/v1/nodes/{node_name(index)}/status", {"status": amounts})
            await asyncio.wait([watching], timeout=UPDATE_GRACE_SECONDS)
            watching.cancel()
        return waits


class Volumes:
    """Every pod has a claim of its own, bound to a CSI volume; twice as many nodes."""

    pods_each = 1

    async def prepare(self, load: LoadGenerator, size: int) -> None:
        await create_nodes(load, (sized_node(index) for index in range(10 * size)))
        if len(await load.names(CLAIMS)) >= size:
            # Claims and volumes are protected by finalizers: they stay for the next scheduler.
            return
        drivers = [{"name": DRIVER, "nodeID": "id", "allocatable": {"count": 39}}]
        for path, bodies in (
            (CSI_NODES, (csi_node(index, drivers) for index in range(2 * size))),
            (VOLUMES, map(bound_volume, range(size))),
            (CLAIMS, map(bound_claim, range(size))),
        ):
            await share_out(bodies, CREATORS, partial(load.post, path))

    async def measured(self, load: LoadGenerator, size: int) -> Waits:
        requests = {"cpu": "100m", "memory": "500Mi"}
        bodies = [
            pod_of(f"p-claiming-{index}", requests, volumes=[claim_volume(index)])
            for index in range(size)
        ]
        return in_time(*await arrivals(load, BURST, bodies))


def csi_node(index: int, drivers: list[Object]) -> Object:
    return {"metadata": {"name": node_name(index)}, "spec": {"drivers": drivers}}


def bound_volume(index: int) -> Object:
    claim = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": f"claim-{index}"}
    spec = {
        "accessModes": ["ReadOnlyMany"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": DRIVER, "volumeHandle": f"volume-{index}"},
        "claimRef": claim,
    }
    return {"metadata": {"name": f"volume-{index}"}, "spec": spec}


def bound_claim(index: int) -> Object:
    spec = {
        "accessModes": ["ReadOnlyMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
        "volumeName": f"volume-{index}",
    }
    marks = {"pv.kubernetes.io/bind-completed": "true"}
    return {"metadata": {"name": f"claim-{index}", "annotations": marks}, "spec": spec}


def claim_volume(index: int) -> Object:
    return {"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{index}"}}


CASES: dict[str, type[Case]] = {
    "preemption": Preemption,
    "gated": Gated,
    "nodeupdates": NodeUpdates,
    "volumes": Volumes,
}


def in_time(sent: dict[str, float], waits: dict[str, float]) -> Waits:
    return {name: (sent[name], sent[name] + seconds) for name, seconds in waits.items()}


async def measure(load: LoadGenerator, start: Start, name: str, size: int) -> Figures:
    case = CASES[name]()
    await load.clear_pods()
    await load.delete("/api/v1/nodes")
    await case.prepare(load, size)
    with start() as scheduler:
        await asyncio.sleep(SETTLE_SECONDS)
        scheduler.must_run(0)
        before = usage(scheduler.pid)
        waits = await case.measured(load, size)
        scheduler.must_run(0)
        after = usage(scheduler.pid)
    times = list(waits.values())
    in_order = sorted(1000 * (bound - sent) for sent, bound in times)
    span = max(bound for _, bound in times) - min(sent for sent, _ in times) if times else math.nan
    asked = size * case.pods_each
    return Figures(
        bound=len(times),
        asked=asked,
        pods_per_second=len(times) / span,
        cpu_ms_per_pod=1000 * (after.cpu_seconds - before.cpu_seconds) / asked,
        rss_mb=after.rss_bytes / 2**20,
        p50_ms=quantile(in_order, 0.5),
        p99_ms=quantile(in_order, 0.99),
    )


async def compare(plane: ControlPlane, options: argparse.Namespace) -> str:
    turns = starters(plane, [one for one in options.schedulers if one != BEFORE])
    if options.before is not None:
        plane.kubectl("apply", "-f", str(RBAC))
        turns[BEFORE] = lambda: plane.ksched("ksched-before", program=options.before)
    found: dict[str, dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    async with LoadGenerator.connected(plane) as load:
        for name, value in CLASSES.items():
            body = {"metadata": {"name": name}, "value": value}
            await load.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for number in range(options.rounds):
            for case in options.cases:
                for name, start in list(turns.items())[:: -1 if number % 2 else 1]:
                    figures = await measure(load, start, case, options.size)
                    found[case][name].append(figures)
                    text = f"{figures.pods_per_second:.0f} pods/s, {figures.cpu_ms_per_pod:.2f} ms"
                    print(f"{case}: {name} {text}", file=sys.stderr, flush=True)
    medians = {
        case: {name: Figures.median_of(by_name[name]) for name in turns}
        for case, by_name in found.items()
    }
    return render(medians, BindLimit(math.nan, math.nan))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.perf", description=__doc__)
    parser.add_argument("--size", type=int, default=500, help="preemptors, measured pods or nodes")
    parser.add_argument("--rounds", type=int, default=1, help="the table shows medians")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--before", type=Path, help="another ksched, to be compared with")
    add_schedulers(parser)
    options = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find()) as plane,
        ):
            table = uvloop.run(compare(plane, options))
    except KschedError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m bench.sharing: several ksched, each with a name and a lease of its own, share nodes.

Pods come at a fixed rate and name the schedulers in turn, until the nodes are full to a given
share. A scheduler learns of the others' binds by its watch; until then it may give the same room
away again. A kubelet would refuse the pods for which a node has no room: they are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.latency import SETTLE_SECONDS, arrivals, quantile
from bench.load_generator import PODS, LoadGenerator
from bench.process_usage import usage
from bench.schedulers import RBAC
from bench.workloads import Object, node, plain_pod
from ksched.errors import KschedError
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

PODS_PER_NODE = 4
LEASES = ("--verb=get,list,watch,create,update", "--resource=leases.coordination.k8s.io")

BINDING = ("--clusterrole=leases", "--serviceaccount=kube-system:ksched")


@dataclass(frozen=True)
class Shared:
    """The measurements of one run."""

    schedulers: int
    full: float
    rate: float
    bound: int
    asked: int
    refused: int
    """Pods beyond what their nodes have."""
    p50_ms: float
    p99_ms: float
    cpu_ms_per_pod: float
    """Of all schedulers together."""
    rss_mb: float


def small_node(index: int) -> Object:
    """A node with room for few pods."""
    body = node(index)
    amounts = {**body["status"]["capacity"], "cpu": str(PODS_PER_NODE)}
    body["status"] |= {"capacity": amounts, "allocatable": amounts}
    return body


def shared_pod(index: int, schedulers: int) -> Object:
    body = plain_pod(index, "basic")
    body["spec"]["schedulerName"] = _name(index % schedulers)
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return body


def refused(nodes_of_pods: Iterator[str]) -> int:
    """How many pods a kubelet would refuse for want of room."""
    counts = Counter(nodes_of_pods)
    return sum(max(0, count - PODS_PER_NODE) for count in counts.values())


async def measure(plane: ControlPlane, options: argparse.Namespace) -> list[Shared]:
    """Every number of schedulers at every degree of filling."""
    results = []
    async with LoadGenerator.connected(plane) as load:
        await load.create_nodes(options.nodes, small_node)
        for schedulers in options.schedulers:
            for percent in options.full:
                await load.clear_pods()
                result = await _run(plane, load, schedulers, percent / 100, options)
                print(_row(result), flush=True)
                results.append(result)
    return results


async def _run(
    plane: ControlPlane,
    load: LoadGenerator,
    schedulers: int,
    full: float,
    options: argparse.Namespace,
) -> Shared:
    pods = int(options.nodes * PODS_PER_NODE * full)
    with ExitStack() as stack:
        running = [stack.enter_context(_start(plane, number)) for number in range(schedulers)]
        await asyncio.sleep(SETTLE_SECONDS)
        before = [usage(each.pid) for each in running]
        bodies = [shared_pod(index, schedulers) for index in range(pods)]
        sent, waits = await arrivals(load, options.rate, bodies)
        for each in running:
            each.must_run(0)
        after = [usage(each.pid) for each in running]
    in_order = sorted(1000 * wait for wait in waits.values())
    spent = sum(new.cpu_seconds - old.cpu_seconds for old, new in zip(before, after, strict=True))
    items = (await load.get(PODS))["items"]
    return Shared(
        schedulers=schedulers,
        full=full,
        rate=options.rate,
        bound=len(waits),
        asked=len(sent),
        refused=refused(each["spec"]["nodeName"] for each in items if "nodeName" in each["spec"]),
        p50_ms=quantile(in_order, 0.5),
        p99_ms=quantile(in_order, 0.99),
        cpu_ms_per_pod=1000 * spent / len(sent),
        rss_mb=sum(each.rss_bytes for each in after) / 2**20,
    )


def _start(plane: ControlPlane, number: int) -> ChildProcess:
    name = _name(number)
    config = {"leaderElection": {"leaderElect": True, "resourceName": name}}
    return plane.ksched(name, scheduler_name=name, config=config)


def _name(number: int) -> str:
    return f"ksched-{number}"


def _row(one: Shared) -> str:
    return (
        f"| {one.schedulers} | {one.full:.0%} | {one.rate:g} | {one.bound} of {one.asked} | "
        f"{one.refused} | {one.p50_ms:.0f} | {one.p99_ms:.0f} | {one.cpu_ms_per_pod:.2f} | "
        f"{one.rss_mb:.0f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500, metavar="N")
    parser.add_argument("--schedulers", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument(
        "--full", type=int, nargs="+", default=[50, 90, 99], metavar="PERCENT", help="at the end"
    )
    parser.add_argument("--rate", type=float, default=100, help="pods a second, all together")
    options = parser.parse_args()
    print("| ksched | full | pods/s | bound | refused | p50 ms | p99 ms | CPU ms/pod | RSS MB |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find()) as plane,
        ):
            plane.kubectl("apply", "-f", str(RBAC))
            plane.kubectl("create", "clusterrole", "leases", *LEASES)
            plane.kubectl("create", "clusterrolebinding", "leases", *BINDING)
            uvloop.run(measure(plane, options))
    except KschedError as error:
        print(f"bench.sharing: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

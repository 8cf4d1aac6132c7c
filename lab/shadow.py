"""``ksched shadow`` beside a real kube-scheduler through the mixed workload.

    python -m lab.shadow --nodes 90 --pods 3000
    python -m lab.shadow --nodes 1000 --pods 3000
    python -m lab.shadow --nodes 90 --pods 100 --live MostAllocated

Pods are created as fast as the API server takes them, so that the scheduler has a backlog and binds
overlap, or at most ``--per-second``; meanwhile pods are deleted and nodes cordoned and uncordoned.
The shadow reads as a user who may do nothing else. ``--live`` gives kube-scheduler another
configuration than the shadow's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import anyio
import msgspec
import uvloop

from bench.workloads import node, pod
from ksched.api.resources import NODES, PODS
from ksched.client.connecting import connect
from ksched.client.rest import ApiClient
from ksched.client.retry import REPEATABLE
from ksched.clock import LoopClock
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import NotFound
from ksched.explain.read_only import ReadOnlyTransport
from ksched.shadow.rendering import render
from ksched.shadow.report import Summary
from ksched.shadow.shadowing import Shadow
from ksched.testing.builders import Json
from ksched.transport import MERGE_PATCH
from lab.assets import Assets
from lab.control_plane import ControlPlane

RBAC: Final = Path(__file__).parents[1] / "config" / "rbac-read-only.yaml"
CREATORS: Final = 6
CHURN_EVERY: Final = 25
"""Pods between two other changes of the cluster."""


def _strategy(kind: str) -> Json:
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    strategy = {"type": kind, "resources": resources}
    return {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]}


def _without(plugin: str) -> Json:
    return {"plugins": {"multiPoint": {"disabled": [{"name": plugin}]}}}


PLANTED: Final[Mapping[str, Json]] = {
    "MostAllocated": _strategy("MostAllocated"),
    "without PodTopologySpread": _without("PodTopologySpread"),
    "without NodeAffinity": _without("NodeAffinity"),
    "without InterPodAffinity": _without("InterPodAffinity"),
    "without NodeResourcesBalancedAllocation": _without("NodeResourcesBalancedAllocation"),
}
"""Configurations that the live scheduler may have and the shadow does not know of."""


class Load:
    """Creates nodes and pods, and changes something now and then."""

    def __init__(
        self, client: ApiClient, nodes: int, *, seed: int = 0, per_second: float = inf
    ) -> None:
        self.client, self._nodes = client, nodes
        self._per_second = per_second
        self._random = Random(seed)
        self._numbers = count()
        self._created: list[str] = []
        self._cordoned = ""

    async def create_nodes(self) -> None:
        names = iter(range(self._nodes))

        async def some() -> None:
            for number in names:
                body = msgspec.json.encode(node(number))
                await self.client.create(NODES, "", body)

        await self._at_once(some)

    async def create_pods(self, pods: int, workload: str, *, churn: bool = True) -> None:
        began = monotonic()

        async def some() -> None:
            for number in self._numbers:
                if number >= pods:
                    return
                await asyncio.sleep(began + number / self._per_second - monotonic())
                body = pod(number, workload)
                await self.client.create(PODS, "default", msgspec.json.encode(body))
                self._created.append(body["metadata"]["name"])
                if churn and number % CHURN_EVERY == CHURN_EVERY - 1:
                    await self._change()

        await self._at_once(some)

    async def _at_once(self, work: Any) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(CREATORS):
                tasks.start_soon(work)

    async def _change(self) -> None:
        if self._random.random() < 0.5:
            name = self._created.pop(self._random.randrange(len(self._created)))
            try:
                path = f"{PODS.path('default', name)}?gracePeriodSeconds=0"
                await self.client.request("DELETE", path, retry=REPEATABLE)
            except NotFound:
                pass
            return
        was, self._cordoned = self._cordoned, f"node-{self._random.randrange(self._nodes):05d}"
        await self._cordon(self._cordoned, True)
        if was:
            await self._cordon(was, False)

    async def _cordon(self, name: str, value: bool) -> None:
        body = msgspec.json.encode({"spec": {"unschedulable": value}})
        await self.client.patch(NODES, "", name, body, content_type=MERGE_PATCH)


@asynccontextmanager
async def shadow_of(
    plane: ControlPlane, configuration: SchedulerConfiguration | None = None
) -> AsyncIterator[Shadow]:
    """A shadow that runs, and has listed everything, as the user who may only read."""
    clock = LoopClock()
    async with connect(str(plane.kubeconfig("reader"))) as transport:
        client = ApiClient(ReadOnlyTransport(transport), clock)
        shadow = Shadow(client, configuration or SchedulerConfiguration(), clock)
        await shadow.check_access()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shadow.run)
            await shadow.wait_following()
            yield shadow
            tasks.cancel_scope.cancel()


async def compare(plane: ControlPlane, options: argparse.Namespace) -> Summary:
    """Run the load beside kube-scheduler and return what the shadow has found."""
    live = PLANTED[options.live] if options.live else {}
    config = {"profiles": [{"schedulerName": "default-scheduler", **live}]}
    clock = LoopClock()
    async with connect(str(plane.kubeconfig("admin"))) as transport:
        client = ApiClient(transport, clock)
        load = Load(client, options.nodes, seed=options.seed, per_second=options.per_second)
        await load.create_nodes()
        with plane.kube_scheduler(config=config):
            async with shadow_of(plane) as shadow:
                await load.create_pods(options.pods, options.workload)
                with anyio.move_on_after(options.patience):
                    await _until_quiet(shadow, options.pods - options.pods // CHURN_EVERY)
                return shadow.summary()


async def _until_quiet(shadow: Shadow, decisions: int) -> None:
    """Wait until so many were judged, and no more follow."""
    judged = -1
    while judged < decisions or judged != shadow.report.decisions:
        judged = shadow.report.decisions
        await asyncio.sleep(3)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.shadow", description=__doc__)
    parser.add_argument("--nodes", type=int, default=90)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--live", choices=sorted(PLANTED), default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per-second", type=float, default=inf, help="pods created")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane.running(Path(folder), Assets.find()) as plane,
    ):
        plane.kubectl("apply", "-f", str(RBAC))
        summary = uvloop.run(compare(plane, options))
    print(render(summary))
    return 3 if summary.is_different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The script of the demo: a day in the life of a cluster, in a minute and a half.

Each chapter says in a sentence what it does, does it through the API server as any user could, and
gives the reader time to look. It never speaks to the scheduler. Beside the chapters runs the
traffic of the web shop, which comes and goes and makes its deployment breathe.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from ksched.demo import fleet
from ksched.demo.demo_workloads import (
    BULK,
    CRITICAL,
    NAMESPACES,
    PRIORITIES,
    Manifest,
    asks_for,
    claim_template,
    deployment,
    device_class,
    in_group,
    job,
    namespace,
    pod,
    pod_group,
    priority_class,
    runs_for,
    with_device,
    with_priority,
)
from ksched.demo.gang_permit import FABRIC_SECONDS, GANG, SIZE
from ksched.errors import ApiError
from ksched.testing.harness import Cluster
from ksched.transport import MERGE_PATCH

log = logging.getLogger(__name__)

BURST_PODS: Final = 200
GATE: Final = "demo.ksched.dev/budget-approved"

_PATHS: Final = {
    "Pod": "/api/v1/namespaces/{}/pods/{}",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
}
_STEP_SECONDS: Final = 0.1
_SCALE_SECONDS: Final = 0.25
_TRAFFIC_SECONDS: Final = 1.0
_TIDE_SECONDS: Final = 24.0
_TIDE: Final = 0.25
"""How much of the web deployment comes and goes with the traffic."""
_LARGEST_POD_MILLIS: Final = 4000
_BURST_RUN_SECONDS: Final = 25.0


class Story:
    """Tells the story once; can be paused, and takes the reader's own ideas.

    ``say`` gets each sentence as it becomes true. ``speed`` 2 runs it in half the time.
    """

    def __init__(
        self,
        cluster: Cluster,
        say: Callable[[str], None],
        *,
        nodes: int,
        pods: int,
        speed: float = 1.0,
    ) -> None:
        self._cluster = cluster
        self._say = say
        self._speed = speed
        self._nodes, self._pods = nodes, pods
        self._nodes_made = 0
        self._bursts = 0
        self._web_replicas = 0
        self._go = asyncio.Event()
        self._go.set()
        self.is_over = False
        self.chapter = 0
        self.chapters: tuple[Callable[[], Awaitable[None]], ...] = (
            self._nodes_register,
            self._deployments_roll_in,
            self._affinities,
            self._taints,
            self._extended_resources,
            self._devices,
            self._gates,
            self._gang,
            self._pod_group,
            self._too_big,
            self._flood,
            self._drain,
            self._failure,
            self._rolling_update,
        )

    async def tell(self) -> None:
        """Tell all chapters."""
        for number, chapter in enumerate(self.chapters, 1):
            self.chapter = number
            await self.attempt(chapter)
        self.is_over = True

    async def traffic(self) -> None:
        """Let the web deployment follow the number of visitors until cancelled."""
        while True:
            await self._rest(_TRAFFIC_SECONDS)
            if self._web_replicas:
                await self.attempt(self._follow_tide)

    async def _follow_tide(self) -> None:
        tide = math.sin(self._cluster.clock.now() / _TIDE_SECONDS * 2 * math.pi)
        await self._scale("shop", "web", round(self._web_replicas * (1 + _TIDE * tide)))

    async def low_tide(self) -> None:
        """Bring the web deployment back to its usual size."""
        await self._scale("shop", "web", self._web_replicas)

    async def attempt(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do something that a reader with kubectl may have made impossible by now."""
        try:
            await act()
        except ApiError as error:
            log.warning("the story stumbled", extra={"err": str(error)})

    # -- the reader's ideas ---------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return not self._go.is_set()

    def pause(self) -> None:
        """Stop telling, or go on; what was begun goes on in any case."""
        if self.is_paused:
            self._go.set()
        else:
            self._go.clear()

    async def add_node(self, pool: str = "") -> str:
        """Add one more node, by default of the kind whose turn it is."""
        node = fleet.make(self._nodes_made, pool)
        self._nodes_made += 1
        [created] = await self._cluster.create(node)
        name: str = created["metadata"]["name"]
        return name

    async def burst(self, count: int = BURST_PODS) -> None:
        """Throw many small pods at the scheduler; they end by themselves."""
        self._bursts += 1
        small = runs_for(pod("burst", "default", 50), _BURST_RUN_SECONDS)
        name = f"burst-{self._bursts}"
        await self._cluster.create(
            *(small.merge({"metadata": {"name": f"{name}-{n:03}"}}) for n in range(count))
        )

    # -- chapters -------------------------------------------------------------------------------

    async def _nodes_register(self) -> None:
        self._say(f"{self._nodes} nodes in three zones register with the API server.")
        await self._cluster.create(*(namespace(name) for name in NAMESPACES))
        await self._cluster.create(*(priority_class(*one) for one in PRIORITIES.items()))
        for _ in range(self._nodes):
            await self.add_node()
            await self._rest(2.5 / self._nodes)
        await self._rest(1)

    async def _deployments_roll_in(self) -> None:
        replicas = self._share(0.22)
        self._say(f"A deployment rolls in: {replicas} web pods, spread evenly over the zones.")
        web = pod("web", "shop", self._millis(0.16, replicas))
        labels = {"app": "web"}
        web = web.spread(fleet.ZONE, labels, max_skew=2, when_unsatisfiable="ScheduleAnyway")
        await self._roll_in(deployment(web, replicas), 3)
        self._web_replicas = replicas
        await self._rest(4)

    async def _affinities(self) -> None:
        replicas = self._share(0.14)
        self._say(
            f"{replicas} api pods prefer nodes with an SSD; "
            "database pods insist on one, and on different nodes."
        )
        ssd = ("disk", "In", ["ssd"])
        api = pod("api", "shop", self._millis(0.16, replicas)).preferred_node_affinity(50, ssd)
        copies = max(1, min(fleet.pools(self._nodes).count("large") - 1, self._share(0.03)))
        database = pod("database", "data", self._millis(0.08, copies), 5.0)
        database = database.required_node_affinity(ssd)
        database = database.pod_anti_affinity("kubernetes.io/hostname", {"app": "database"})
        await self._cluster.create(deployment(database, copies))
        await self._roll_in(deployment(api, replicas), 3)
        await self._rest(4)

    async def _taints(self) -> None:
        pods = self._share(0.08)
        self._say(f"Spot nodes are tainted: only these {pods} batch pods tolerate that.")
        batch = pod("batch", "data", 600, 1.0).toleration(fleet.SPOT, "true")
        batch = runs_for(batch.node_selector({fleet.POOL: "spot"}), 20 / self._speed)
        await self._roll_in(job(batch, pods), 2)
        await self._rest(4)

    async def _extended_resources(self) -> None:
        replicas = max(1, fleet.gpus(self._nodes) * 2 // 3)
        self._say(f"{replicas} inference pods request {fleet.GPU}: 1 and get the GPU nodes.")
        inference = asks_for(pod("inference", "ml", 1000, 4.0), fleet.GPU, 1)
        inference = inference.toleration(fleet.GPU)
        await self._roll_in(deployment(inference, replicas), 2)
        await self._rest(4)

    async def _devices(self) -> None:
        pods = fleet.accelerators(self._nodes) + 2
        self._say(
            f"{pods} encoder pods claim an accelerator each: a driver has published "
            f"{pods - 2} of them, two pods wait for one that is given back."
        )
        encoder = with_device(pod("encoder", "ml", 200), "accelerator")
        await self._cluster.create(
            device_class(fleet.ACCELERATOR),
            claim_template("accelerator", "ml", fleet.ACCELERATOR),
        )
        await self._roll_in(job(runs_for(encoder, 6 / self._speed), pods), 2)
        await self._rest(6)

    async def _gates(self) -> None:
        self._say("payroll waits behind a scheduling gate, however much room there is.")
        await self._cluster.create(pod("payroll", "data", 500).gate(GATE))
        await self._rest(5)
        self._say("The budget is approved, the gate goes, and payroll is scheduled at once.")
        ungated = {"spec": {"schedulingGates": None}}
        await self._patch(_PATHS["Pod"].format("data", "payroll"), ungated)
        await self._rest(4)

    async def _gang(self) -> None:
        size, early = 8, 5
        self._say(
            f"A gang of {size}: the first {early} trainers get a node each, "
            "and GangPermit holds them at Permit."
        )
        labels = {GANG: "training", SIZE: str(size)}
        trainer = pod("trainer", "ml", 1500).label(labels)
        members = [
            trainer.merge({"metadata": {"name": f"trainer-{number}"}}) for number in range(size)
        ]
        await self._cluster.create(*members[:early])
        await self._rest(6)
        self._say("The last three arrive: all eight go on together, others pass them meanwhile.")
        await self._cluster.create(*members[early:])
        await self._rest(FABRIC_SECONDS + 4)

    async def _pod_group(self) -> None:
        size, early = 8, 5
        self._say(
            f"A training job of {size} comes as a PodGroup: {early} workers exist, "
            "and wait without holding a node."
        )
        worker = runs_for(in_group(pod("worker", "ml", 500), "training"), 6 / self._speed)
        workers = [
            worker.merge({"metadata": {"name": f"worker-{number}"}}) for number in range(size)
        ]
        await self._cluster.create(pod_group("training", "ml", size), *workers[:early])
        await self._rest(5)
        self._say("The last three arrive: all eight are placed in one decision, or none would be.")
        await self._cluster.create(*workers[early:])
        await self._rest(4)

    async def _too_big(self) -> None:
        self._say("warehouse requests 48 cores: no node has them. archive requests a tape drive.")
        warehouse = pod("warehouse", "data", 48_000, 3.0)
        archive = pod("archive", "data", 100).node_selector(disk="tape")
        await self._cluster.create(warehouse, archive)
        await self._rest(6)
        name = await self.add_node("giant")
        self._say(
            f"{name} joins with 64 cores: that event wakes warehouse; archive goes on waiting."
        )
        await self._rest(5)

    async def _flood(self) -> None:
        pods = self._share(0.4)
        self._say(f"{pods} report pods flood the cluster; what does not fit waits, with a reason.")
        report = pod("report", "data", self._millis(0.8, pods), 1.5)
        report = runs_for(with_priority(report, BULK), 9 / self._speed)
        await self._roll_in(job(report, pods), 3)
        await self._rest(3)
        self._say("checkout is critical and comes last: reports are preempted to make room.")
        checkout = with_priority(pod("checkout", "shop", 1500), CRITICAL)
        await self._cluster.create(deployment(checkout, 6))
        await self._rest(12)

    async def _drain(self) -> None:
        name = self._busiest_node("general")
        if not name:
            return
        self._say(f"{name} is cordoned and drained: its pods find other nodes.")
        await self._cluster.patch_node(name, {"spec": {"unschedulable": True}})
        await self._rest(1)
        for key in self._pods_on(name):
            await self._evict(key)
        await self._rest(5)
        self._say(f"{name} is back in service.")
        await self._cluster.patch_node(name, {"spec": {"unschedulable": None}})
        await self._rest(2)

    async def _failure(self) -> None:
        name = self._busiest_node("large")
        if not name:
            return
        self._say(f"{name} fails: the node is gone, its deployments replace what ran there.")
        lost = self._pods_on(name)
        await self._cluster.delete_node(name)
        await self._rest(1)
        for key in lost:
            await self._cluster.delete(key, grace_seconds=0)
        await self._rest(6)

    async def _rolling_update(self) -> None:
        self._say("A new version of web: a rolling update replaces pod after pod.")
        change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        await self._patch(_PATHS["Deployment"].format("shop", "web"), change)
        await self._rest(8)

    # -- how ------------------------------------------------------------------------------------

    async def _rest(self, seconds: float) -> None:
        """Give the reader time; a pause lasts until the reader has seen enough."""
        left = seconds / self._speed
        while left > 0:
            await self._go.wait()
            step = min(left, _STEP_SECONDS)
            await self._cluster.clock.sleep(step)
            left -= step

    async def _roll_in(self, manifest: Manifest, seconds: float) -> None:
        """Create a deployment or job and let it grow to its size, so that one can watch."""
        size_field = "replicas" if manifest["kind"] == "Deployment" else "parallelism"
        size = manifest["spec"][size_field]
        metadata = manifest["metadata"]
        steps = max(1, min(size, round(seconds / _SCALE_SECONDS)))
        await self._cluster.create({**manifest, "spec": {**manifest["spec"], size_field: 0}})
        for step in range(1, steps + 1):
            await self._scale(
                metadata["namespace"], metadata["name"], size * step // steps, manifest["kind"]
            )
            await self._rest(seconds / steps)

    async def _scale(self, space: str, name: str, size: int, kind: str = "Deployment") -> None:
        field = "replicas" if kind == "Deployment" else "parallelism"
        await self._patch(_PATHS[kind].format(space, name), {"spec": {field: size}})

    def _share(self, part: float) -> int:
        return max(1, round(self._pods * part))

    def _millis(self, part: float, pods: int) -> int:
        """A request that makes so many pods take a part of the open nodes."""
        fair = fleet.open_cpus(self._nodes) * 1000 * part / pods
        return max(10, min(_LARGEST_POD_MILLIS, round(fair / 10) * 10))

    def _busiest_node(self, pool: str) -> str:
        """The node of a pool with most pods, all of which have a controller to replace them."""
        pools = {
            node["metadata"]["name"]: node["metadata"]["labels"].get(fleet.POOL)
            for node in self._cluster.nodes()
        }
        owned, alone = Counter[str](), set[str]()
        for one in self._running():
            name = one["spec"]["nodeName"]
            if pools.get(name) == pool:
                owned[name] += 1
                if "ownerReferences" not in one["metadata"]:
                    alone.add(name)
        candidates = [name for name, _ in owned.most_common() if name not in alone]
        return candidates[0] if candidates else ""

    def _pods_on(self, node_name: str) -> list[str]:
        return [_key(one) for one in self._running() if one["spec"]["nodeName"] == node_name]

    def _running(self) -> Iterable[dict[str, Any]]:
        for one in self._cluster.pods():
            phase = one["status"].get("phase")
            if one["spec"].get("nodeName") and phase not in ("Succeeded", "Failed"):
                yield one

    async def _evict(self, key: str) -> None:
        space, _, name = key.partition("/")
        body = {"apiVersion": "policy/v1", "kind": "Eviction"}
        metadata = {"name": name, "namespace": space}
        path = _PATHS["Pod"].format(space, name) + "/eviction"
        eviction = msgspec.json.encode({**body, "metadata": metadata})
        try:
            await self._cluster.client.request("POST", path, eviction)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _patch(self, path: str, change: dict[str, Any]) -> None:
        body = msgspec.json.encode(change)
        await self._cluster.client.request("PATCH", path, body, content_type=MERGE_PATCH)


def _key(one: dict[str, Any]) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"

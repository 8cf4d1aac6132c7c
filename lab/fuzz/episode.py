"""One small cluster's life among hostile objects."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw

from ksched.api.decoding import decode_pod
from ksched.errors import ApiError
from ksched.testing.builders import make_node
from ksched.testing.checkers import Checkers
from ksched.testing.harness import Cluster, cluster
from lab.fuzz.cluster_objects import CLASSES, ClusterFuzzer
from lab.fuzz.pods import PodFuzzer
from lab.fuzz.stalls import StallMeter, WorkingLoop, measured_steps
from lab.fuzz.twin import World, disagreement
from lab.fuzz.values import JsonObject

DRIVER = "fuzz driver"
CUT_SHORT = "the attempt was cut short"
MOST_ATTEMPTS = 60
LARGEST_BYTES = 1536 * 1024
"""What etcd takes by default; the embedded API server would take any size."""


class Find(Exception):
    """The scheduler did something that no admissible object may make it do."""


class _Errors(logging.Handler):
    """Whatever the scheduler logs as an error: admissible objects are no reason for one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        problem = getattr(record, "err", "")
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        self.found.append(f"{record.getMessage()}: {problem} {trace}".strip())


class Episode:
    """From a seed: some nodes, then steps, each followed by a look at everything.

    ``plain_nodes`` more nodes are of the usual kind; with many of them decisions are not compared,
    only the length of steps is.
    """

    def __init__(
        self, seed: int, steps: int = 40, plain_nodes: int = 0, largest: int = 4000
    ) -> None:
        self.seed, self.steps = seed, steps
        self.plain_nodes = plain_nodes
        self.meter = StallMeter({DRIVER})
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._pods = PodFuzzer(self._random)
        self._objects = ClusterFuzzer(self._random)
        self._pods.largest = self._objects.largest = largest
        self._names: dict[str, list[str]] = {"Node": [], "PersistentVolume": []}
        self._claims: list[str] = []
        self._made = 0
        self.history: list[JsonObject] = []
        """Objects that were admitted, oldest first."""

    def run(self) -> None:
        """Raises ``Find``."""
        errors = _Errors()
        logger = logging.getLogger("ksched")
        logger.addHandler(errors)
        try:
            with (
                measured_steps(self.meter),
                asyncio.Runner(loop_factory=WorkingLoop) as runner,
            ):
                runner.run(self._run(errors))
        finally:
            logger.removeHandler(errors)

    async def _run(self, errors: _Errors) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(DRIVER)
        plain = [make_node(f"plain{number}") for number in range(self.plain_nodes)]
        async with cluster(plain, seed=self.seed) as c:
            checkers = Checkers(c)
            await self._begin(c)
            actions = self._actions()
            for _ in range(self.steps):
                [action] = self._random.choices(list(actions), list(actions.values()))
                await action(c)
                await c.settle()
                self._look(c, checkers, errors)

    async def _begin(self, c: Cluster) -> None:
        await c.settle()
        await self._create(c, self._objects.namespace("tenant"))
        for name in CLASSES:
            await self._create(c, self._objects.storage_class(name))
        for name in ("low", "high"):
            await self._create(c, self._objects.priority_class(name))
        for _ in range(self._random.randint(1, 6)):
            await self._add_node(c)
        await c.settle()

    def _actions(self) -> dict[Callable[[Cluster], Awaitable[None]], int]:
        return {
            self._add_pod: 60,
            self._remove_pod: 10,
            self._change_pod: 8,
            self._add_node: 5,
            self._change_node: 8,
            self._remove_node: 2,
            self._add_storage: 8,
            self._add_other: 3,
            self._let_time_pass: 4,
        }

    def _look(self, c: Cluster, checkers: Checkers, errors: _Errors) -> None:
        if errors.found:
            raise Find(f"logged an error: {errors.found[0]}")
        checkers.check_books()

    # -- steps ----------------------------------------------------------------------------------

    async def _add_pod(self, c: Cluster) -> None:
        fresh = self._pods.pod(self._name("p"), self._names["Node"], self._claims)
        is_comparable = not self.plain_nodes and self._is_at_rest(c)
        world = World(c) if is_comparable else None
        created = await self._create(c, fresh)
        if created is None or world is None or world.nominated or not world.nodes:
            return
        pod = decode_pod(Raw(msgspec.json.encode(created)))
        if pod.spec.node_name or pod.spec.scheduling_gates:
            return
        await c.settle()
        await self._finish_attempts(c, pod.metadata.key)
        self.counts["compared"] += 1
        assumed = c.scheduler.cache.get_pod(pod.metadata.uid)
        message = c.message(pod.metadata.key) if c.exists(pod.metadata.key) else ""
        node_name = "" if assumed is None else assumed.node_name
        problem = disagreement(world.decide(pod), node_name, message)
        if problem:
            raise Find(f"{pod.metadata.key}: {problem}")

    async def _finish_attempts(self, c: Cluster, key: str) -> None:
        """A large spec may take several attempts; each goes on where the last one stopped."""
        for _ in range(MOST_ATTEMPTS):
            if not c.exists(key) or CUT_SHORT not in c.message(key) or c.bound(key):
                return
            await c.advance(11.0)
        raise Find(f"{key}: still cut short after {MOST_ATTEMPTS} attempts")

    def _is_at_rest(self, c: Cluster) -> bool:
        """Whether no other pod can come between the next one and the state that is seen now."""
        places = c.scheduler.queue.statistics()
        return not places.active and not places.backoff

    async def _remove_pod(self, c: Cluster) -> None:
        names = c.pod_names()
        if names:
            await self._attempt(c.delete(self._random.choice(names), grace_seconds=0))

    async def _change_pod(self, c: Cluster) -> None:
        names = c.pod_names()
        if not names:
            return
        pods = self._pods
        changes: list[tuple[JsonObject, str]] = [
            ({"metadata": {"labels": pods.labels()}}, ""),
            ({"spec": {"schedulingGates": None}}, ""),
            ({"metadata": {"annotations": {"note": "changed"}}}, ""),
        ]
        name = self._random.choice(names)
        if c.bound(name):
            changes.append(({"status": self._kubelet_status()}, "status"))
        patch, subresource = self._random.choice(changes)
        await self._attempt(c.patch(name, patch, subresource=subresource))

    def _kubelet_status(self) -> JsonObject:
        container: JsonObject = {
            "name": "c0",
            "image": "a:1",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "allocatedResources": self._pods.quantities(1),
            "resources": {"requests": self._pods.quantities(1)},
        }
        return {"phase": "Running", "containerStatuses": [container]}

    async def _add_node(self, c: Cluster) -> None:
        name = self._name("n")
        if await self._create(c, self._objects.node(name)) is not None:
            self._names["Node"].append(name)

    async def _change_node(self, c: Cluster) -> None:
        if not self._names["Node"]:
            return
        name = self._random.choice(self._names["Node"])
        fresh = self._objects.node(name)
        labels = {"labels": fresh["metadata"]["labels"]}
        await self._attempt(c.patch_node(name, {"metadata": labels, "spec": fresh["spec"]}))
        await c.settle()
        await self._attempt(c.patch_node(name, {"status": fresh["status"]}, subresource="status"))

    async def _remove_node(self, c: Cluster) -> None:
        if len(self._names["Node"]) > 1:
            name = self._names["Node"].pop(self._random.randrange(len(self._names["Node"])))
            await self._attempt(c.delete_node(name))

    async def _add_storage(self, c: Cluster) -> None:
        kind = self._random.randrange(3)
        if kind == 0:
            name = self._name("v")
            volume = self._objects.volume(name, self._names["Node"])
            if await self._create(c, volume) is not None:
                self._names["PersistentVolume"].append(name)
        elif kind == 1:
            name = self._name("c")
            claim = self._objects.claim(name, self._names["PersistentVolume"])
            if await self._create(c, claim) is not None:
                self._claims.append(name)
        elif self._names["Node"]:
            await self._create(c, self._objects.csi_node(self._random.choice(self._names["Node"])))

    async def _add_other(self, c: Cluster) -> None:
        if self._random.random() < 0.5:
            await self._create(c, self._objects.namespace(self._name("ns")))
        else:
            await self._create(c, self._objects.disruption_budget(self._name("b")))

    async def _let_time_pass(self, c: Cluster) -> None:
        await c.advance(self._random.choice((1.0, 15.0, 90.0)))

    # -- requests -------------------------------------------------------------------------------

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    async def _create(self, c: Cluster, obj: JsonObject) -> JsonObject | None:
        if len(msgspec.json.encode(obj)) > LARGEST_BYTES:
            self.counts["refused"] += 1
            return None
        try:
            [created] = await c.create(obj)
        except ApiError:
            self.counts["refused"] += 1
            return None
        self.counts["admitted"] += 1
        self.history.append(obj)
        return created

    async def _attempt(self, request: Awaitable[Any]) -> None:
        try:
            await request
        except ApiError:
            self.counts["refused"] += 1
        else:
            self.counts["changed"] += 1

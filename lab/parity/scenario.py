"""A seed played: a random cluster, random pods, and changes of the cluster in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from ksched.api.resources import (
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    ApiResource,
)
from ksched.errors import Conflict
from lab.parity.arena import Arena
from lab.parity.manifests import NEVER_PREEMPTING, Json, RandomManifests
from lab.parity.tally import Tally
from lab.parity.verdicts import Decision, difference

DECISIONS = 20
PRIORITY_CLASSES = ApiResource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)

_NODES, _RUNNING_PODS_PER_NODE = (6, 16), (1, 5)


@dataclass
class Report:
    """How often the two agreed on the pods of one seed, and where they did not."""

    seed: int
    bound: int = 0
    rejected: int = 0
    disagreements: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    """Why pods were rejected, in kube-scheduler's words."""

    def add(self, number: int, pod: Json, decision: Decision) -> bool:
        """Take a decision down; whether the two agree."""
        if decision.theirs.node:
            self.bound += 1
        else:
            self.rejected += 1
            self.messages.append(decision.theirs.message)
        text = difference(f"seed {self.seed}, decision {number}", pod, decision)
        if text:
            self.disagreements.append(text)
        return not text

    @property
    def decisions(self) -> int:
        return self.bound + self.rejected


class Scenario:
    """The cluster of one seed."""

    def __init__(self, arena: Arena, seed: int) -> None:
        self._arena, self._seed = arena, seed
        self._source = RandomManifests(Random(seed))
        self._nodes: dict[str, Json] = {}
        self._running: dict[str, Json] = {}
        self._made: list[tuple[ApiResource, Json]] = []
        self._numbers = 0

    @classmethod
    async def play(
        cls, arena: Arena, seed: int, tally: Tally, decisions: int = DECISIONS
    ) -> Report:
        """Build the seed's cluster, have its pods decided, and take everything away again."""
        report = Report(seed)
        async with cls(arena, seed)._standing() as scenario:
            for number in range(decisions):
                if number and scenario._source.sometimes(60):
                    await scenario._change()
                pod = scenario._source.pod(f"pod-{seed}-{number}")
                decision = await arena.decide(pod)
                agree = report.add(number, pod, decision)
                tally.add(decision.influences, differs=not agree)
        return report

    @asynccontextmanager
    async def _standing(self) -> AsyncIterator[Scenario]:
        try:
            await self._build()
            yield self
        finally:
            for resource, obj in reversed(self._made):
                metadata = obj["metadata"]
                namespace = metadata.get("namespace", "")
                await self._arena.delete(resource, namespace, metadata["name"])

    async def _build(self) -> None:
        source = self._source
        never = {"metadata": {"name": NEVER_PREEMPTING}, "value": 0, "preemptionPolicy": "Never"}
        await self._make(PRIORITY_CLASSES, never)
        for namespace in source.namespaces():
            await self._make_namespace(namespace)
        for service in source.services():
            await self._make(SERVICES, service)
        for replica_set in source.replica_sets():
            await self._make(REPLICA_SETS, replica_set)
        nodes = source.random.randint(*_NODES)
        for _ in range(nodes):
            await self._add_node()
        await self._arena.settle(self._nodes)
        for _ in range(nodes * source.random.randint(*_RUNNING_PODS_PER_NODE)):
            await self._add_running_pod()

    async def _make(self, resource: ApiResource, obj: Json) -> None:
        self._made.append((resource, obj))
        await self._arena.create(resource, obj)

    async def _make_namespace(self, namespace: Json) -> None:
        """Namespaces stay: without a controller that empties them none can be deleted."""
        try:
            await self._arena.create(NAMESPACES, namespace)
        except Conflict:
            await self._arena.update(NAMESPACES, namespace)

    def _new_name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}-{self._seed}-{self._numbers}"

    # -- changes --------------------------------------------------------------------------------

    async def _change(self) -> None:
        """Change the cluster in one to three ways."""
        source = self._source
        changes: list[Callable[[], Awaitable[None]]] = [
            self._add_running_pod,
            self._add_running_pod,
            self._remove_running_pod,
            self._end_running_pod,
            self._relabel_running_pod,
            self._change_node,
            self._change_node,
            self._add_node,
            self._remove_node,
            self._relabel_namespace,
        ]
        for _ in range(source.random.randint(1, 3)):
            await source.one_of(changes)()
        await self._arena.settle(self._nodes)

    async def _add_node(self) -> None:
        node = self._source.node(self._new_name("node"))
        self._nodes[node["metadata"]["name"]] = node
        self._source.node_names = list(self._nodes)
        await self._make(NODES, node)

    async def _change_node(self) -> None:
        name = self._source.one_of(list(self._nodes))
        node = self._nodes[name] = self._source.changed_node(self._nodes[name])
        await self._arena.update(NODES, node)
        await self._arena.update(NODES, node, "status")

    async def _remove_node(self) -> None:
        """Remove a node, with its pods still there as long as nobody collects them."""
        if len(self._nodes) < _NODES[0]:
            return
        name = self._source.one_of(list(self._nodes))
        del self._nodes[name]
        self._source.node_names = list(self._nodes)
        await self._arena.delete(NODES, "", name)

    async def _add_running_pod(self) -> None:
        name = self._new_name("running")
        pod = self._source.running_pod(name, list(self._nodes))
        self._running[name] = pod
        await self._make(PODS, pod)
        if self._source.sometimes(20):
            await self._resize(pod)

    async def _resize(self, pod: Json) -> None:
        """Say that the kubelet has not given a pod yet what it asks for."""
        actual = {"cpu": self._source.one_of(("50m", "2")), "memory": "300Mi"}
        status = {
            "name": pod["spec"]["containers"][0]["name"],
            "image": "a:1",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "allocatedResources": actual,
            "resources": {"requests": actual},
        }
        metadata = pod["metadata"]
        patch = {"status": {"containerStatuses": [status]}}
        await self._arena.patch(PODS, metadata["namespace"], metadata["name"], patch, "status")

    async def _remove_running_pod(self) -> None:
        if self._running:
            name = self._source.one_of(list(self._running))
            namespace = self._running.pop(name)["metadata"]["namespace"]
            await self._arena.delete(PODS, namespace, name)

    async def _end_running_pod(self) -> None:
        """Mark a pod; it is there, terminating, until somebody plays its kubelet."""
        if self._running:
            name = self._source.one_of(list(self._running))
            namespace = self._running.pop(name)["metadata"]["namespace"]
            await self._arena.delete(PODS, namespace, name, grace_seconds=30)

    async def _relabel_running_pod(self) -> None:
        if self._running:
            name = self._source.one_of(list(self._running))
            labels = self._source.pod("x")["metadata"]["labels"]
            none: Json = dict.fromkeys(("app", "tier", "rev"))
            patch = {"metadata": {"labels": {**none, **labels}}}
            namespace = self._running[name]["metadata"]["namespace"]
            await self._arena.patch(PODS, namespace, name, patch)

    async def _relabel_namespace(self) -> None:
        await self._arena.update(NAMESPACES, self._source.one_of(self._source.namespaces()))

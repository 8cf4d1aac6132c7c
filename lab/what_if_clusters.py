"""Random clusters to try changes on, with controllers that make evicted pods again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from ksched.api.decoding import decode_pod
from ksched.api.objects import Pod
from ksched.api.resources import PODS
from ksched.apiserver.in_process import InProcessTransport
from ksched.cache.pod_info import PodInfo
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.configuration.model import SchedulerConfiguration
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.read_only import ReadOnlyTransport
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.node_search import Feasibility
from ksched.framework.runtime.profiles import Profile
from ksched.testing.harness import Cluster
from ksched.what_if.draining import MIRROR
from ksched.what_if.new_pods import controller_of
from ksched.what_if.subjects import workload_of
from lab.parity.manifests import Json, RandomManifests

READER: Final = "reader"
PRIORITIES: Final = {"what-if-high": 100, "what-if-middle": 10}


def priority_classes() -> list[Json]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return [{**kind, "metadata": {"name": n}, "value": v} for n, v in PRIORITIES.items()]


def owned(pod: Json, kind: str, name: str) -> Json:
    """The pod as a controller makes it; there is no kubelet to wait for when it is deleted."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": f"uid-of-{name}",
        "controller": True,
    }
    metadata = {**pod["metadata"], "ownerReferences": [owner]}
    spec = {**pod["spec"], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class WhatIfManifests(RandomManifests):
    """Pods that have a controller of their own each, so that they are recognised when they move."""

    def placed(self, number: int, nodes: list[str], *, with_priorities: bool) -> Json:
        """A pod on a node, mostly of a ReplicaSet, now and then of a kind that a drain leaves."""
        pod = self._prioritised(self.running_pod(f"r{number}", nodes), with_priorities)
        if self.sometimes(5):
            pod["metadata"].pop("ownerReferences", None)
            pod["spec"]["terminationGracePeriodSeconds"] = 0
            return {"apiVersion": "v1", "kind": "Pod", **pod}
        kind = "DaemonSet" if self.sometimes(10) else "ReplicaSet"
        return owned(pod, kind, f"own{number}")

    def pending(self, number: int, *, with_priorities: bool) -> Json:
        return owned(
            self._prioritised(self.pod(f"p{number}"), with_priorities), "ReplicaSet", f"new{number}"
        )

    def _prioritised(self, pod: Json, with_priorities: bool) -> Json:
        pod["spec"].pop("priorityClassName", None)
        if with_priorities and self.sometimes():
            pod["spec"]["priorityClassName"] = self.one_of(tuple(PRIORITIES))
        return pod


class Recreating:
    """Makes a pod again when one of a controller is deleted, at once and in that order."""

    def __init__(self, c: Cluster, manifests: Mapping[str, Json]) -> None:
        self._c, self._manifests = c, manifests
        self._deleted: asyncio.Queue[Pod] = asyncio.Queue()
        self.made = 0
        self.bound: dict[str, list[str]] = {}
        """The nodes of each workload's pods, in the order in which they were bound."""

    async def run(self) -> None:
        reflector = Reflector(self._c.client, PODS, decode_pod, self, self._c.clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            while True:
                pod = await self._deleted.get()
                self.made += 1
                manifest = self._manifests[workload_of(pod)]
                name = f"again{self.made}"
                metadata = {**manifest["metadata"], "name": name}
                spec = {key: one for key, one in manifest["spec"].items() if key != "nodeName"}
                await self._c.create({**manifest, "metadata": metadata, "spec": spec})

    def added(self, obj: Pod) -> None: ...

    def modified(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name and not old.spec.node_name:
            self.bound.setdefault(workload_of(new), []).append(new.spec.node_name)

    def deleted(self, obj: Pod) -> None:
        if controller_of(obj) is not None and MIRROR not in obj.metadata.annotations:
            self._deleted.put_nowait(obj)

    def synced(self) -> None: ...


async def copied(c: Cluster, configuration: SchedulerConfiguration | None = None) -> ClusterCopy:
    """A copy of the cluster, read through a connection that cannot write."""
    client = ApiClient(ReadOnlyTransport(InProcessTransport(c.server, READER)), c.clock)
    copy = ClusterCopy(client, configuration or SchedulerConfiguration(), c.clock)
    await copy.read()
    return copy


def follow(copy: ClusterCopy, chosen: Mapping[str, Sequence[str]]) -> None:
    """Where several nodes score best, let the copy take the one that was really chosen.

    ``chosen`` has the nodes of each workload's pods in the order in which they were bound.
    """
    next_of = {workload: list(nodes) for workload, nodes in chosen.items()}

    async def best_nodes(
        profile: Profile, state: CycleState, pod: PodInfo, fit: Feasibility
    ) -> list[str]:
        infos = copy.cache.snapshot.table.infos
        if len(fit.rows) == 1:
            return [infos[int(fit.rows[0])].name]
        rows, totals = await profile.pipeline.prioritize_nodes(state, pod, fit)
        indexes = range(len(totals)) if rows is None else rows.tolist()
        highest = totals.max()
        return [infos[i].name for i, one in zip(indexes, totals, strict=True) if one == highest]

    async def choose(profile: Profile, state: CycleState, pod: PodInfo, fit: Feasibility) -> str:
        best = await best_nodes(profile, state, pod, fit)
        wanted = next_of.get(workload_of(pod.pod))
        return wanted.pop(0) if wanted and wanted[0] in best else best[0]

    copy.cycle.choose = choose  # type: ignore[method-assign]


def random_source(seed: int) -> WhatIfManifests:
    return WhatIfManifests(Random(seed))


def states(pods: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Node and, of a pending pod, message of every pod, by workload."""
    found = {}
    for pod in pods:
        conditions = pod["status"].get("conditions") or []
        message = next(
            (c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), ""
        )
        node = pod["spec"].get("nodeName", "")
        found[_workload(pod)] = (node, "" if node else message)
    return found


def _workload(pod: Mapping[str, Any]) -> str:
    return workload_of(decode_pod(msgspec.json.encode(pod)))

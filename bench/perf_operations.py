"""Executes the operations of a test case of scheduler_perf against an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from bench.load_generator import CREATORS, NODES, LoadGenerator, share_out
from bench.perf_config import NODE_TEMPLATE, PerfCase, PerfConfigError
from bench.workloads import HOSTNAME, Object
from ksched.errors import KschedError

CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
VOLUMES = "/api/v1/persistentvolumes"
NAMESPACES = "/api/v1/namespaces"
CHURN_MILLISECONDS = 500
POLL_SECONDS = 0.05
CLUSTER_SCOPED = frozenset({"Node", "PersistentVolume", "Namespace"})


class Mark(NamedTuple):
    """A moment of the collection: when, and what the scheduler had used."""

    at: float
    cpu_seconds: float


class PodSeen(msgspec.Struct):
    """What is known of one pod."""

    namespace: str
    labels: dict[str, str]
    sent: float
    bound: float = 0.0
    is_attempted: bool = False
    is_gone: bool = False


class Executor:
    """Runs the operations of one test case, in order, and watches the pods."""

    def __init__(
        self,
        load: LoadGenerator,
        case: PerfCase,
        timeout_seconds: float,
        cpu_seconds: Callable[[], float],
    ) -> None:
        self._load, self._case, self._timeout = load, case, timeout_seconds
        self._cpu_seconds = cpu_seconds
        self._pods: dict[str, PodSeen] = {}
        self._namespaces: set[str] = set()
        self._collects: Callable[[PodSeen], bool] = lambda pod: False
        self._began: Mark | None = None
        self._ended: Mark | None = None
        self._operations: Mapping[str, Callable[[int, Object], Awaitable[None]]] = {
            "createNodes": self._create_nodes,
            "createNamespaces": self._create_namespaces,
            "createPods": self._create_pods,
            "createPodSets": self._create_pod_sets,
            "createAny": self._create_any,
            "updateAny": self._update_any,
            "deletePods": self._delete_pods,
            "churn": self._start_churn,
            "barrier": self._barrier,
            "startCollectingMetrics": self._start_collecting,
            "stopCollectingMetrics": self._stop_collecting,
        }

    # -- results --------------------------------------------------------------------------------

    @property
    def collected(self) -> tuple[Mark, Mark]:
        """When the collection began and ended."""
        if self._began is None or self._ended is None:
            raise PerfConfigError(f"{self._case.name}: collects no metrics")
        return self._began, self._ended

    @property
    def asked(self) -> int:
        """How many pods were to be scheduled during the collection."""
        return sum(1 for _ in self._measured())

    @property
    def waits(self) -> list[tuple[float, float]]:
        """When each of them that was bound was sent, and when it was seen bound."""
        return [(pod.sent, pod.bound) for pod in self._measured() if pod.bound]

    def _measured(self) -> Iterator[PodSeen]:
        began, ended = self.collected
        for pod in self._pods.values():
            if self._collects(pod) and (not pod.bound or began.at <= pod.bound <= ended.at):
                yield pod

    # -- the operations -------------------------------------------------------------------------

    async def run(self) -> None:
        """Run all operations; those in the background end with the last."""
        async with asyncio.TaskGroup() as self._tasks:
            listed = await self._load.get("/api/v1/pods?limit=1")
            version = listed["metadata"]["resourceVersion"]
            self._background = [self._tasks.create_task(self._watch(version))]
            try:
                for index, operation in enumerate(self._case.operations):
                    opcode = operation["opcode"]
                    if opcode not in self._operations:
                        raise PerfConfigError(f"{self._case.name}: cannot do {opcode}")
                    await self._operations[opcode](index, operation)
            finally:
                for task in self._background:
                    task.cancel()

    async def _create_nodes(self, index: int, operation: Object) -> None:
        count = self._case.count(operation)
        path = operation.get("nodeTemplatePath", f"../{NODE_TEMPLATE}")
        allocatable = operation.get("nodeAllocatableStrategy", {})
        labels = operation.get("labelNodePrepareStrategy")

        async def create(number: int) -> None:
            body = self._case.render(path, number, count)
            metadata = body["metadata"]
            prefix = metadata.pop("generateName", f"node-{index}-")
            name = metadata.setdefault("name", f"{prefix}{index}-{number:05d}")
            metadata.setdefault("labels", {})[HOSTNAME] = name
            if labels is not None:
                values = labels["labelValues"]
                metadata["labels"][labels["labelKey"]] = values[number % len(values)]
            body["status"]["capacity"] |= allocatable.get("nodeAllocatable", {})
            await self._load.post(NODES, body)
            if allocatable:
                await self._load.post(CSI_NODES, csi_node(name, allocatable))

        await share_out(range(count), CREATORS, create)

    async def _create_namespaces(self, index: int, operation: Object) -> None:
        path = operation.get("namespaceTemplatePath")
        for number in range(self._case.count(operation)):
            body = self._case.render(path) if path else {}
            await self._need_namespace(f"{operation['prefix']}-{number}", body)

    async def _create_pods(self, index: int, operation: Object) -> None:
        namespace = operation.get("namespace", f"namespace-{index}")
        await self._need_namespace(namespace)
        if operation.get("collectMetrics"):
            self._start(lambda pod: pod.namespace == namespace)
        count = self._case.count(operation)
        path = operation.get("podTemplatePath", self._case.pod_template)
        claims = "persistentVolumeClaimTemplatePath" in operation
        created: list[PodSeen] = []

        async def create(number: int) -> None:
            body = self._case.render(path, number, count)
            if claims:
                await self._create_volume(namespace, number, operation)
                body["spec"]["volumes"] = [claim_volume(number)]
            created.append(await self._create_pod(namespace, body))

        await share_out(range(count), CREATORS, create)
        if not operation.get("skipWaitToCompletion"):
            await self._until(lambda: all(pod.bound for pod in created), f"{count} pods are bound")
        if operation.get("collectMetrics"):
            await self._stop_collecting(index, operation)

    async def _create_pod_sets(self, index: int, operation: Object) -> None:
        for number in range(self._case.count(operation)):
            namespace = f"{operation['namespacePrefix']}-{number}"
            inner = {**operation["createPodsOp"], "namespace": namespace}
            await self._create_pods(index, inner)

    async def _create_any(self, index: int, operation: Object) -> None:
        await self._each_from_template(operation, self._load.post, collection)

    async def _update_any(self, index: int, operation: Object) -> None:
        parts = ["".join(f"/{one}" for one in operation.get("subresources", ())), "/status"]

        async def update(path: str, body: Object) -> None:
            for part in parts:
                await self._load.put(path + part, body)

        await self._each_from_template(operation, update, location)

    async def _each_from_template(
        self,
        operation: Object,
        do: Callable[[str, Object], Awaitable[object]],
        path_of: Callable[[Object, str], str],
    ) -> None:
        """Render every object of an operation and pass it on, at the operation's rate."""
        namespace = operation.get("namespace", "")
        if namespace:
            await self._need_namespace(namespace)
        count = self._case.count(operation)
        rate, began = operation.get("updatePerSecond", 0), monotonic()
        for number in range(count):
            if rate:
                await asyncio.sleep(began + (number + 1) / rate - monotonic())
            body = self._case.render(operation["templatePath"], number, count)
            await do(path_of(body, namespace), body)

    async def _delete_pods(self, index: int, operation: Object) -> None:
        namespace, wanted = operation["namespace"], operation.get("labelSelector", {})
        names = [
            name.partition("/")[2]
            for name, pod in self._pods.items()
            if pod.namespace == namespace and _matches(pod, wanted) and not pod.is_gone
        ]
        rate = operation.get("deletePodsPerSecond", 0)

        async def delete() -> None:
            began = monotonic()
            for number, name in enumerate(names):
                if rate:
                    await asyncio.sleep(began + (number + 1) / rate - monotonic())
                await self._load.delete(f"{pods_path(namespace)}/{name}")

        if operation.get("skipWaitToCompletion"):
            self._background.append(self._tasks.create_task(delete()))
        else:
            await delete()

    async def _start_churn(self, index: int, operation: Object) -> None:
        namespace = operation.get("namespace", f"namespace-{index}")
        await self._need_namespace(namespace)
        self._background.append(self._tasks.create_task(self._churn(namespace, operation)))

    async def _churn(self, namespace: str, operation: Object) -> None:
        """Create objects at intervals; with mode ``recreate`` delete them in the next rounds."""
        seconds = operation.get("intervalMilliseconds", CHURN_MILLISECONDS) / 1000
        number, is_recreated = operation.get("number", 0), operation["mode"] == "recreate"
        slots: list[list[str]] = [[] for _ in range(number if is_recreated else 1)]
        turn, began = 0, monotonic()
        while is_recreated or not number or turn < number:
            await asyncio.sleep(began + (turn + 1) * seconds - monotonic())
            slot = slots[turn % len(slots)]
            turn += 1
            if is_recreated and slot:
                for path in slot:
                    await self._load.delete(path)
                slot.clear()
                continue
            for template in operation["templatePaths"]:
                body = self._case.render(template)
                path = collection(body, namespace)
                created = await self._load.post(path, body)
                slot.append(f"{path}/{created['metadata']['name']}")

    async def _barrier(self, index: int, operation: Object) -> None:
        namespaces = operation.get("namespaces", ())
        wanted = operation.get("labelSelector", {})
        is_attempt = operation.get("stageRequirement") == "Attempted"

        def is_done() -> bool:
            return all(
                pod.bound or (is_attempt and pod.is_attempted) or pod.is_gone
                for pod in self._pods.values()
                if (not namespaces or pod.namespace in namespaces) and _matches(pod, wanted)
            )

        await self._until(is_done, "all pods are " + ("attempted" if is_attempt else "bound"))

    async def _start_collecting(self, index: int, operation: Object) -> None:
        namespaces, wanted = set(operation["namespaces"]), operation.get("labelSelector", {})
        self._start(lambda pod: pod.namespace in namespaces and _matches(pod, wanted))

    def _start(self, collects: Callable[[PodSeen], bool]) -> None:
        self._collects = collects
        self._began = Mark(monotonic(), self._cpu_seconds())

    async def _stop_collecting(self, index: int, operation: Object) -> None:
        self._ended = Mark(monotonic(), self._cpu_seconds())

    # -- objects --------------------------------------------------------------------------------

    async def _need_namespace(self, name: str, body: Object | None = None) -> None:
        if name not in self._namespaces:
            self._namespaces.add(name)
            body = body or {}
            metadata = {**body.get("metadata", {}), "name": name}
            await self._load.post(NAMESPACES, {**body, "metadata": metadata})

    async def _create_pod(self, namespace: str, body: Object) -> PodSeen:
        metadata = body["metadata"]
        prefix = metadata.pop("generateName", "")
        name = metadata.setdefault("name", f"{prefix}{len(self._pods):06d}")
        pod = PodSeen(namespace, metadata.get("labels", {}), monotonic())
        self._pods[f"{namespace}/{name}"] = pod
        await self._load.post(pods_path(namespace), body)
        return pod

    async def _create_volume(self, namespace: str, number: int, operation: Object) -> None:
        """Create a claim and a volume, bound to each other."""
        volume = self._case.render(operation["persistentVolumeTemplatePath"], number)
        claim = self._case.render(operation["persistentVolumeClaimTemplatePath"], number)
        claim_name, volume_name = f"pvc-{number}", f"{namespace}-pv-{number}"
        volume.setdefault("metadata", {})["name"] = volume_name
        if "csi" in volume["spec"]:
            volume["spec"]["csi"]["volumeHandle"] = volume_name
        volume["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": claim_name,
        }
        claim.setdefault("metadata", {})["name"] = claim_name
        claim["spec"]["volumeName"] = volume_name
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        for path, body in ((claims, claim), (VOLUMES, volume)):
            stored = await self._load.post(path, body)
            stored["status"] = {"phase": "Bound"}
            await self._load.put(f"{path}/{stored['metadata']['name']}/status", stored)

    # -- what becomes of the pods ---------------------------------------------------------------

    async def _watch(self, version: str) -> None:
        async for kind, body in self._load.changes("/api/v1/pods", version):
            metadata = body["metadata"]
            pod = self._pods.get(f"{metadata['namespace']}/{metadata['name']}")
            if pod is None:
                continue
            if kind == "DELETED":
                pod.is_gone = True
            pod.labels = metadata.get("labels", {})
            if not pod.bound and body["spec"].get("nodeName"):
                pod.bound = monotonic()
            conditions = body.get("status", {}).get("conditions", ())
            pod.is_attempted = any(one["type"] == "PodScheduled" for one in conditions)

    async def _until(self, condition: Callable[[], bool], wanted: str) -> None:
        deadline = monotonic() + self._timeout
        while not condition():
            if monotonic() > deadline:
                raise KschedError(
                    f"{self._case.name}/{self._case.workload}: after {self._timeout:g} s not true: "
                    f"{wanted}"
                )
            await asyncio.sleep(POLL_SECONDS)


def _matches(pod: PodSeen, wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= pod.labels.items()


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def collection(body: Object, namespace: str) -> str:
    """Where objects of this kind are created."""
    version, kind = body["apiVersion"], body["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = "" if kind in CLUSTER_SCOPED else f"/namespaces/{namespace}"
    return f"{root}{inside}/{kind.lower()}s"


def location(body: Object, namespace: str) -> str:
    return f"{collection(body, namespace)}/{body['metadata']['name']}"


def claim_volume(number: int) -> Object:
    return {"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{number}"}}


def csi_node(name: str, strategy: Mapping[str, Any]) -> Object:
    """The drivers of a node, each with the number of volumes it takes."""
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": limits}
        for driver, limits in strategy.get("csiNodeAllocatable", {}).items()
    ]
    migrated = ",".join(strategy.get("migratedPlugins", ()))
    marks = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"drivers": drivers}}

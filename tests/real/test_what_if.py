"""A drain of 10 of 50 nodes of a cluster that kube-scheduler runs does what was predicted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import uvloop

from ksched.client.connecting import connect
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.configuration.model import SchedulerConfiguration
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.read_only import ReadOnlyTransport
from ksched.what_if.changes import Changes
from ksched.what_if.draining import UNSCHEDULABLE
from ksched.what_if.predicting import predict
from lab.control_plane import ControlPlane
from lab.parity.manifests import HOSTNAME, ZONE, Json
from lab.what_if_clusters import follow, owned, states

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

NODES, DRAINED, WORKLOADS, REPLICAS = 50, 10, 40, 6
PODS = "/api/v1/namespaces/default/pods"
PATIENCE_SECONDS = 120.0
FLAGS = (
    # A pod like the last one would be placed by its scores.
    "--feature-gates=OpportunisticBatching=false",
    # Messages are renewed after this time even if nothing has happened that could help.
    "--pod-max-in-unschedulable-pods-duration=5s",
)
MERGE_PATCH = "application/merge-patch+json"


def node(random: Random, number: int) -> Json:
    name = f"n{number:02d}"
    labels = {HOSTNAME: name, ZONE: f"z{number % 3}", "disk": random.choice(("ssd", "hdd"))}
    taints = [{"key": "team", "value": "red", "effect": "NoSchedule"}] if number % 10 == 9 else []
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def pod(random: Random, workload: int) -> Json:
    """The template of a workload: requests, and now and then a constraint."""
    app = {"app": f"w{workload}"}
    requests = {
        "cpu": random.choice(("250m", "500m", "1", "2")),
        "memory": random.choice(("256Mi", "1Gi", "3Gi")),
    }
    spec: Json = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
    kind = workload % 5
    selector = {"matchLabels": app}
    if kind == 1:
        when = random.choice(("DoNotSchedule", "ScheduleAnyway"))
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when}
        spec["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    if kind == 2:
        term = {"topologyKey": HOSTNAME, "labelSelector": selector}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": rule}
    if kind == 3:
        spec["nodeSelector"] = {"disk": random.choice(("ssd", "hdd"))}
    if kind == 4:
        spec["tolerations"] = [{"key": "team", "operator": "Exists"}]
    return {"metadata": {"namespace": "default", "labels": app}, "spec": spec}


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    random = Random(16)
    for number in range(NODES):
        made = node(random, number)
        assert control_plane.request("POST", "/api/v1/nodes", made).status == 201
        amounts = {
            "cpu": random.choice(("4", "6")),
            "memory": random.choice(("8Gi", "12Gi")),
            "pods": "20",
        }
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        path = f"/api/v1/nodes/{made['metadata']['name']}/status"
        assert control_plane.request("PATCH", path, status, content_type=MERGE_PATCH).status == 200
    yield control_plane
    control_plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    control_plane.request("DELETE", "/api/v1/nodes")


def priority_class(name: str, value: int) -> Json:
    """A priority of its own, so that the order of the queue does not depend on that of a list."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}


def create_all(plane: ControlPlane, objects: list[Json]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("create", "-f", "-", stdin=json.dumps(listed))


def create(plane: ControlPlane, manifest: Json, name: str) -> None:
    made = {**manifest, "metadata": {**manifest["metadata"], "name": name}}
    answer = plane.request("POST", PODS, made)
    assert answer.status == 201, answer.body


def pods(plane: ControlPlane) -> list[Any]:
    return list(plane.request("GET", PODS).body["items"])


def settled(plane: ControlPlane) -> dict[str, tuple[str, str]]:
    """The pods' nodes and messages, when they have not changed for twice the flushing."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    known, since = states(pods(plane)), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = states(pods(plane))
        if now != known:
            known, since = now, time.monotonic()
        elif all(any(one) for one in now.values()) and time.monotonic() - since > 36:
            return known
    raise AssertionError(f"not settled: {known}")


async def copied(plane: ControlPlane) -> ClusterCopy:
    """A copy of the cluster, read through a connection that cannot write."""
    clock = LoopClock()
    async with connect(str(plane.kubeconfig())) as transport:
        client = ApiClient(ReadOnlyTransport(transport), clock)
        copy = ClusterCopy(client, SchedulerConfiguration(), clock)
        await copy.read()
        return copy


def drain(plane: ControlPlane, names: tuple[str, ...], manifests: dict[str, Json]) -> None:
    """Cordon the nodes, evict their pods, and make them again, in the order of a controller."""
    for name in names:
        path = f"/api/v1/nodes/{name}"
        taints = plane.request("GET", path).body["spec"].get("taints") or []
        taints = [one for one in taints if one["key"] != UNSCHEDULABLE]
        taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
        spec = {"spec": {"unschedulable": True, "taints": taints}}
        assert plane.request("PATCH", path, spec, content_type=MERGE_PATCH).status == 200
    made = 0
    for name in names:
        on_node = [one for one in pods(plane) if one["spec"].get("nodeName") == name]
        for one in sorted(on_node, key=lambda one: one["metadata"]["name"]):
            old = one["metadata"]["name"]
            assert plane.request("DELETE", f"{PODS}/{old}?gracePeriodSeconds=0").status == 200
            owner = one["metadata"]["ownerReferences"][0]["name"]
            create(plane, manifests[owner], f"z-{made:03d}")
            made += 1


def test_a_drain_of_10_of_50_nodes(plane: ControlPlane) -> None:
    random = Random(10)
    manifests: dict[str, Json] = {}
    priorities = random.sample(range(WORKLOADS * REPLICAS), WORKLOADS * REPLICAS)
    classes: list[Json] = []
    for workload in range(WORKLOADS):
        template = pod(random, workload)
        for replica in range(REPLICAS):
            # Each has a controller of its own, to be recognised when it moves.
            name = f"w{workload:02d}-{replica}"
            manifests[name] = owned(template, "ReplicaSet", name)
            manifests[name]["spec"]["priorityClassName"] = name
            classes.append(priority_class(name, priorities.pop()))
    create_all(plane, classes)
    with plane.kube_scheduler("before", flags=FLAGS):
        create_all(
            plane,
            [{**m, "metadata": {**m["metadata"], "name": n}} for n, m in manifests.items()],
        )
        before = settled(plane)
    drained = tuple(f"n{number:02d}" for number in random.sample(range(NODES), DRAINED))

    async def check() -> None:
        copy = await copied(plane)
        await asyncio.to_thread(drain, plane, drained, manifests)
        with plane.kube_scheduler("after", flags=FLAGS):
            really = await asyncio.to_thread(settled, plane)
        # Only where nodes score the same.
        follow(copy, {workload: [node] for workload, (node, _) in really.items()})
        prediction = await predict(copy, Changes(drain=drained))
        assert len(prediction.fates) > 30
        after = {**before, **{one.workload: (one.after, one.message) for one in prediction.fates}}
        assert after == really

    uvloop.run(check())

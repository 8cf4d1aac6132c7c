"""What a real API server admits of the fuzzer's objects does no harm to ``ksched run``."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.workloads import node, pod
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane
from lab.fuzz.cluster_objects import CLASSES, ClusterFuzzer
from lab.fuzz.pods import PodFuzzer
from lab.fuzz.values import JsonObject

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
OBJECTS = 400
PATHS = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
NAMESPACED = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}


@pytest.fixture
def site(control_plane: ControlPlane) -> Iterator[tuple[ControlPlane, ChildProcess]]:
    plane = control_plane
    plane.kubectl("apply", "-f", str(RBAC))
    for index in range(3):
        assert plane.request("POST", "/api/v1/nodes", node(index)).status == 201
    with plane.ksched("fuzzed", flags=["-v=1"]) as ksched:
        yield plane, ksched


def objects(seed: int) -> Iterator[JsonObject]:
    rng = random.Random(seed)
    pods, others = PodFuzzer(rng), ClusterFuzzer(rng)
    pods.largest = others.largest = 500
    yield others.namespace("tenant")
    yield from map(others.storage_class, CLASSES)
    yield from map(others.priority_class, ("low", "high"))
    nodes = [f"hostile{number}" for number in range(8)]
    volumes = [f"v{number}" for number in range(5)]
    claims = [f"c{number}" for number in range(5)]
    yield from map(others.node, nodes)
    yield from map(others.csi_node, nodes)
    yield from (others.volume(name, nodes) for name in volumes)
    yield from (others.claim(name, volumes) for name in claims)
    yield from (others.disruption_budget(f"b{number}") for number in range(3))
    for number in range(OBJECTS):
        yield pods.pod(f"p{number}", nodes, claims)


def test_admitted_objects_leave_the_daemon_running(
    site: tuple[ControlPlane, ChildProcess],
) -> None:
    plane, ksched = site
    answers: Counter[int] = Counter()
    admitted: Counter[str] = Counter()
    for obj in objects(seed=20):
        path = PATHS.get(obj["kind"]) or NAMESPACED[obj["kind"]].format(
            obj["metadata"]["namespace"]
        )
        try:
            status = plane.request("POST", path, obj).status
        except OSError:
            status = 413  # over three megabytes the server closes the connection
        answers[status] += 1
        admitted[obj["kind"]] += status == 201
        ksched.must_run(0)
    assert admitted["Pod"] > OBJECTS / 2, (answers, admitted)
    assert min(admitted[kind] for kind in ("Node", "PersistentVolume", "CSINode")) >= 1, admitted

    plain, path = pod(1, "basic"), NAMESPACED["Pod"].format("default")
    assert plane.request("POST", path, plain).status == 201
    deadline = time.monotonic() + 60
    while (
        not plane.request("GET", f"{path}/{plain['metadata']['name']}").body["spec"].get("nodeName")
    ):
        assert time.monotonic() < deadline, ksched.log()[-3000:]
        ksched.must_run(0.1)
    assert "Traceback" not in ksched.log()

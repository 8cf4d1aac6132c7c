"""Claims on a real API server: crashes between PreBind's calls, and two schedulers at a time.

No device is given away twice, no claim stays behind, every pod gets its node.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"
NODES, DEVICES, PODS_PER_RUN, KILLS = 4, 20, 40, 4
PATIENCE_SECONDS = 60.0


class Site:
    """A cluster with devices, and pods with a claim each."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def create(self, path: str, obj: dict[str, Any]) -> None:
        answer = self.plane.request("POST", path, obj)
        assert answer.status == 201, answer.body

    def build(self) -> None:
        self.plane.kubectl("apply", "-f", str(RBAC))
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        gpu = {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}
        self.create(f"{GROUP}/deviceclasses", gpu)
        capacity = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        for number in range(NODES):
            name = f"n{number}"
            status = {"allocatable": capacity, "capacity": capacity}
            self.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
            spec = {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d{index}"} for index in range(DEVICES)],
            }
            self.create(f"{GROUP}/resourceslices", {"metadata": {"name": name}, "spec": spec})

    def tear_down(self) -> None:
        for pod in self.items(PODS):
            self.plane.request("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        for claim in self.items(CLAIMS):
            path = f"{CLAIMS}/{claim['metadata']['name']}"
            kind = "application/merge-patch+json"
            body = {"metadata": {"finalizers": None}}
            self.plane.request("PATCH", path, body, content_type=kind)
            self.plane.request("DELETE", path)
        for number in range(NODES):
            self.plane.request("DELETE", f"{GROUP}/resourceslices/n{number}")
            self.plane.request("DELETE", f"/api/v1/nodes/n{number}")
        self.plane.request("DELETE", f"{GROUP}/deviceclasses/gpu")

    def add_claim(self, name: str) -> None:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        requests = [{"name": "r", "exactly": exactly}]
        spec = {"devices": {"requests": requests}}
        self.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def add_pod(self, name: str, claim: str, scheduler: str = "default-scheduler") -> None:
        entry = {"name": "gpu", "resourceClaimName": claim}
        spec = {
            "schedulerName": scheduler,
            "resourceClaims": [entry],
            "containers": [{"name": "c", "image": "x"}],
        }
        self.create(PODS, {"metadata": {"name": name}, "spec": spec})

    def items(self, path: str) -> list[Any]:
        found: list[Any] = self.plane.request("GET", path).body["items"]
        return found

    def nodes_of_pods(self) -> dict[str, str]:
        pods = self.items(PODS)
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    def allocated(self) -> list[Any]:
        return [one for one in self.items(CLAIMS) if "allocation" in one.get("status", {})]

    def has_allocated(self, count: int) -> bool:
        return len(self.allocated()) >= count

    def until(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not look():
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
            time.sleep(0.02)

    def check_devices(self) -> None:
        """Every claim has a device of its pods' node, no device two claims."""
        nodes = self.nodes_of_pods()
        taken: dict[tuple[str, str], str] = {}
        for claim in self.items(CLAIMS):
            name, status = claim["metadata"]["name"], claim.get("status", {})
            assert claim["metadata"].get("finalizers") == [FINALIZER], name
            (result,) = status["allocation"]["devices"]["results"]
            device = (result["pool"], result["device"])
            assert device not in taken, f"{device}: {name} and {taken[device]}"
            taken[device] = name
            pods = [one["name"] for one in status["reservedFor"]]
            assert pods, name
            assert {nodes[pod] for pod in pods} == {result["pool"]}


@pytest.fixture
def site(control_plane: ControlPlane) -> Iterator[Site]:
    site = Site(control_plane)
    site.build()
    yield site
    site.tear_down()


def test_kill_9_between_any_two_calls_leaves_nothing_taken_twice_or_stuck(site: Site) -> None:
    rng = random.Random(7)
    for number in range(PODS_PER_RUN):
        site.add_claim(f"c{number}")
        site.add_pod(f"p{number}", f"c{number}")
    half_done = 0
    for run in range(KILLS):
        already = len(site.allocated())
        with site.plane.ksched(f"killed-{run}") as ksched:
            goal = min(already + rng.randint(1, 9), PODS_PER_RUN)
            site.until(partial(site.has_allocated, goal), f"{goal} claims allocated")
            ksched.kill()
        nodes = site.nodes_of_pods()
        for claim in site.items(CLAIMS):
            has_finalizer = bool(claim["metadata"].get("finalizers"))
            pod = claim["metadata"]["name"].replace("c", "p", 1)
            half_done += has_finalizer and not nodes[pod]
    with site.plane.ksched("last"):
        site.until(lambda: all(site.nodes_of_pods().values()), "all pods bound")
    site.check_devices()
    assert half_done, "some run ended between two calls"


def test_two_schedulers_share_claims_and_meet_conflicts(site: Site) -> None:
    names = ("one", "two")
    with (
        site.plane.ksched("one", scheduler_name="one") as first,
        site.plane.ksched("two", scheduler_name="two") as second,
    ):
        for number in range(PODS_PER_RUN // 2):
            site.add_claim(f"c{number}")
            for name in names:
                site.add_pod(f"p{number}-{name}", f"c{number}", name)
        site.until(lambda: all(site.nodes_of_pods().values()), "all pods bound")
        first.must_run(0.0)
        second.must_run(0.0)
    nodes = site.nodes_of_pods()
    for claim in site.items(CLAIMS):
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        pods = sorted(one["name"] for one in claim["status"]["reservedFor"])
        name = claim["metadata"]["name"].replace("c", "p", 1)
        assert pods == [f"{name}-one", f"{name}-two"]
        assert {nodes[pod] for pod in pods} == {result["pool"]}

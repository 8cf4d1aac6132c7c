"""DeviceTaintRules under a real kube-scheduler with its gate on and under ksched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.assets import Assets
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

GATE = "--feature-gates=DRADeviceTaintRules=true"
FLAGS = ("--runtime-config=resource.k8s.io/v1beta2=true", GATE)
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
GROUP = "/apis/resource.k8s.io/v1"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
PODS = "/api/v1/namespaces/default/pods"
DRIVER = "gpu.example.com"
NODES, DEVICES = ("n0", "n1", "n2"), 12
OURS, THEIRS = "ours", "theirs"
PATIENCE_SECONDS = 60.0


class Site:
    """Three nodes with devices, and both schedulers."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def create(self, path: str, name: str, spec: Any = None, **fields: Any) -> None:
        body = {"metadata": {"name": name}, "spec": spec or {}, **fields}
        answer = self.plane.request("POST", path, body)
        assert answer.status == 201, answer.body

    def build(self) -> None:
        self.plane.kubectl("apply", "-f", str(RBAC))
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.create(f"{GROUP}/deviceclasses", "gpu", {"selectors": [selector]})
        capacity = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        status = {"allocatable": capacity, "capacity": capacity}
        for name in NODES:
            self.create("/api/v1/nodes", name, status=status)
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            devices = [{"name": f"d{index}"} for index in range(DEVICES)]
            spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
            self.create(f"{GROUP}/resourceslices", name, spec)

    def taint(self, name: str, **selector: str) -> None:
        taint = {"key": name, "value": "", "effect": "NoSchedule"}
        self.create(RULES, name, {"deviceSelector": selector, "taint": taint})

    def untaint(self, name: str) -> None:
        assert self.plane.request("DELETE", f"{RULES}/{name}").status == 200

    def add_pods(self, name: str) -> None:
        """One pod for each scheduler, with a claim of its own."""
        claims = f"{GROUP}/namespaces/default/resourceclaims"
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        for scheduler in (OURS, THEIRS):
            full = f"{name}-{scheduler}"
            self.create(
                claims, full, {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
            )
            spec = {
                "schedulerName": scheduler,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": full}],
                "containers": [{"name": "c", "image": "x"}],
            }
            self.create(PODS, full, spec)

    def look(self, name: str) -> list[tuple[str, str]]:
        """Of both pods, the node and the message."""
        found = []
        for scheduler in (OURS, THEIRS):
            pod = self.plane.request("GET", f"{PODS}/{name}-{scheduler}").body
            conditions = pod["status"].get("conditions", [])
            message = next((one.get("message", "") for one in conditions), "")
            found.append((pod["spec"].get("nodeName", ""), message))
        return found

    def until(self, done: Callable[[list[tuple[str, str]]], bool], name: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done(found := self.look(name)):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)


@pytest.fixture(scope="module")
def site(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("taint-rules")
    with ControlPlane.running(folder, assets, FLAGS) as plane:
        site = Site(plane)
        site.build()
        with (
            plane.ksched(scheduler_name=OURS, flags=[GATE]),
            plane.kube_scheduler(scheduler_name=THEIRS, flags=[GATE]),
        ):
            yield site


def test_pods_avoid_tainted_devices_and_wait_where_all_are(site: Site) -> None:
    site.taint("first", pool="n0")
    site.taint("second", driver=DRIVER, pool="n1")
    for number in range(4):
        site.add_pods(f"avoids-{number}")
    for number in range(4):
        site.until(_are_on_n2, f"avoids-{number}")

    site.taint("everything")
    site.add_pods("waits")
    site.until(lambda found: all(message for _, message in found), "waits")
    ours, theirs = site.look("waits")
    assert ours == theirs
    assert "3 cannot allocate all claims" in ours[1]

    site.untaint("everything")
    site.until(_are_on_n2, "waits")


def _are_on_n2(found: list[tuple[str, str]]) -> bool:
    return all(node == "n2" for node, _ in found)

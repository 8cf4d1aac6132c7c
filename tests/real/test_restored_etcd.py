"""etcd is restored from an older copy under a running scheduler: real etcd, real kube-apiserver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.workloads import node, pod
from lab.assets import Assets
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
PATIENCE_SECONDS = 30.0
NODES, COUNT = 10, 40
ELECTION = {"leaderElection": {"leaderElect": True, "resourceName": "ksched"}}


@pytest.fixture
def plane(assets: Assets, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own: its data is thrown back."""
    with ControlPlane.running(tmp_path, assets) as plane:
        plane.kubectl("apply", "-f", str(RBAC))
        for number in range(NODES):
            assert plane.request("POST", "/api/v1/nodes", node(number)).status == 201
        for number in range(COUNT):
            assert plane.request("POST", PODS, pod(number, "basic")).status == 201
        yield plane


def bound(plane: ControlPlane) -> int:
    pods = plane.request("GET", PODS).body["items"]
    return sum(bool(one["spec"].get("nodeName")) for one in pods)


def wait_bound(plane: ControlPlane, count: int) -> None:
    began = time.monotonic()
    while bound(plane) < count:
        assert time.monotonic() - began < PATIENCE_SECONDS, f"{bound(plane)} of {count} are bound"
        time.sleep(0.1)


@pytest.mark.parametrize("config", [{}, ELECTION], ids=["alone", "leader"])
@pytest.mark.parametrize("writes", [0, 300], ids=["behind", "overtaken"])
def test_pods_bound_since_the_copy_are_bound_again(
    plane: ControlPlane, config: dict[str, Any], writes: int
) -> None:
    plane.save_etcd()
    with plane.ksched(config=config) as scheduler:
        wait_bound(plane, COUNT)
        plane.restore_etcd()
        assert bound(plane) == 0
        for number in range(writes):
            change = {"metadata": {"annotations": {"beat": str(number)}}}
            name = node(0)["metadata"]["name"]
            plane.request(
                "PATCH",
                f"/api/v1/nodes/{name}",
                change,
                content_type="application/merge-patch+json",
            )
        wait_bound(plane, COUNT)
        assert plane.request("POST", PODS, pod(COUNT, "basic")).status == 201
        wait_bound(plane, COUNT + 1)
        assert scheduler.exit_code is None

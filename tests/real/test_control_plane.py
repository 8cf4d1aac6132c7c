"""The control plane itself, before anything is built on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.workloads import node, pod, stuck_pod
from lab.assets import KUBERNETES_VERSION, Assets
from lab.child_process import ChildFailed
from lab.control_plane import ControlPlane

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
# The one resource that the server reads from etcd every time.
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane
    control_plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    control_plane.request("DELETE", "/api/v1/nodes")


def pods_when(plane: ControlPlane, done: str) -> dict[str, Any]:
    """The pods by name, as soon as all have the condition PodScheduled with status ``done``."""
    plane.kubectl("wait", "pods", "--all", f"--for=condition=PodScheduled={done}", "--timeout=60s")
    return {item["metadata"]["name"]: item for item in plane.request("GET", PODS).body["items"]}


def test_server_reports_the_version_it_was_built_from(plane: ControlPlane) -> None:
    assert plane.request("GET", "/version").body["gitVersion"] == KUBERNETES_VERSION


@pytest.mark.parametrize(
    ("user", "path", "status"),
    [
        pytest.param("admin", "/api/v1/secrets", 200, id="an administrator may do everything"),
        pytest.param("kube-scheduler", "/api/v1/nodes", 200, id="kube-scheduler may list nodes"),
        pytest.param("kube-scheduler", "/api/v1/secrets", 403, id="and no secrets"),
        pytest.param("ksched", "/api/v1/secrets", 403, id="ksched has no more than its own role"),
    ],
)
def test_users_may_do_what_their_roles_say(
    plane: ControlPlane, user: str, path: str, status: int
) -> None:
    assert plane.request("GET", path, user=user).status == status


def test_ksched_is_the_service_account_of_that_name(plane: ControlPlane) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = plane.request("POST", path, review, user="ksched").body["status"]["userInfo"]

    assert user["username"] == "system:serviceaccount:kube-system:ksched"
    assert "system:serviceaccounts:kube-system" in user["groups"]


def test_kube_scheduler_binds_what_fits_and_says_why_not(plane: ControlPlane) -> None:
    for index in range(3):
        assert plane.request("POST", "/api/v1/nodes", node(index)).status == 201
    for index in range(6):
        assert plane.request("POST", PODS, pod(index, "spread")).status == 201

    with plane.kube_scheduler():
        bound = pods_when(plane, "True")
        plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        plane.request("POST", PODS, stuck_pod(0))
        stuck = pods_when(plane, "False")

    assert {item["spec"]["nodeName"] for item in bound.values()} <= {
        node(index)["metadata"]["name"] for index in range(3)
    }
    assert len(bound) == 6
    (condition,) = stuck["p-stuck-000000"]["status"]["conditions"]
    assert condition["message"].startswith("0/3 nodes are available: 3 Insufficient cpu.")


def test_kube_scheduler_takes_only_the_pods_of_its_name(plane: ControlPlane) -> None:
    for index in range(2):
        plane.request("POST", "/api/v1/nodes", node(index))
    own, foreign = pod(0, "basic"), pod(1, "basic")
    own["spec"]["schedulerName"] = "own"
    for each in (foreign, own):
        plane.request("POST", PODS, each)

    with plane.kube_scheduler("own-scheduler", scheduler_name="own", verbosity=10) as scheduler:
        plane.kubectl("wait", "pod/p-basic-000000", "--for=condition=PodScheduled", "--timeout=60s")

    assert "nodeName" not in plane.request("GET", f"{PODS}/p-basic-000001").body["spec"]
    assert scheduler.log().count("Calculated node's final score for pod") == 2


def test_objects_outlive_a_restart_of_the_server(assets: Assets, tmp_path: Path) -> None:
    with ControlPlane.running(tmp_path, assets) as plane:
        plane.request("POST", "/api/v1/nodes", node(0))
        plane.stop_apiserver()
        with pytest.raises(ConnectionRefusedError):
            plane.request("GET", "/readyz")
        plane.start_apiserver()
        nodes = plane.request("GET", "/api/v1/nodes").body["items"]

    assert [item["metadata"]["name"] for item in nodes] == ["node-00000"]
    assert not (tmp_path / "etcd").exists()


def test_compaction_forgets_old_versions(plane: ControlPlane) -> None:
    first = plane.request("GET", EVENTS).body["metadata"]["resourceVersion"]
    exact = f"{EVENTS}?resourceVersion={first}&resourceVersionMatch=Exact"
    plane.request("POST", PODS, pod(0, "basic"))
    assert plane.request("GET", exact).status == 200

    assert plane.compact_etcd() > int(first)

    assert plane.request("GET", exact).status == 410


def test_server_that_cannot_start_says_why(assets: Assets, tmp_path: Path) -> None:
    with (
        pytest.raises(ChildFailed, match=r"kube-apiserver: ended .*\n(.*\n)*.*no-such-flag"),
        ControlPlane.running(tmp_path, assets, apiserver_flags=["--no-such-flag"]),
    ):
        pass

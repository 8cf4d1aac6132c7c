"""ksched binds volumes on a real API server, with no more rights than config/rbac.yaml gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ksched.api.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    ApiResource,
)
from ksched.testing.builders import Builder, make_node, make_pod
from ksched.testing.storage_builders import make_claim, make_storage_class, make_volume
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.real_time]

RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane
    control_plane.request("DELETE", f"{PODS.path('default')}?gracePeriodSeconds=0")
    for resource in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES):
        for obj in control_plane.request("GET", resource.path()).body["items"]:
            meta = obj["metadata"]
            path = resource.path(meta.get("namespace", ""), meta["name"])
            # Protection finalizers wait for a controller that is not there.
            free = {"metadata": {"finalizers": None}}
            control_plane.request("PATCH", path, free, content_type=MERGE)
            control_plane.request("DELETE", path)
    control_plane.request("DELETE", STORAGE_CLASSES.path())
    control_plane.request("DELETE", NODES.path())


def create(plane: ControlPlane, resource: ApiResource, builder: Builder[Any]) -> Any:
    obj = builder.to_dict()
    obj["metadata"].pop("uid", None)
    namespace = obj["metadata"].get("namespace", "")
    answer = plane.request("POST", resource.path(namespace), obj)
    assert answer.status == 201, answer.body
    return answer.body


def patch(plane: ControlPlane, path: str, body: Any) -> None:
    answer = plane.request("PATCH", path, body, content_type=MERGE)
    assert answer.status == 200, answer.body


def bind_by_hand(plane: ControlPlane, claim: str, volume: str) -> None:
    """Do what the PersistentVolume controller does."""
    path = PERSISTENT_VOLUME_CLAIMS.path("default", claim)
    annotation = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    patch(plane, path, {"metadata": annotation, "spec": {"volumeName": volume}})


def wait_for(plane: ControlPlane, what: str, *condition: str) -> None:
    plane.kubectl("wait", what, *condition, "--timeout=60s")


def test_static_and_dynamic_volumes_are_bound_and_whole_objects_kept(
    plane: ControlPlane,
) -> None:
    plane.kubectl("apply", "-f", str(RBAC))
    create(plane, NODES, make_node("n1"))
    create(plane, STORAGE_CLASSES, make_storage_class("static", "kubernetes.io/no-provisioner"))
    create(plane, STORAGE_CLASSES, make_storage_class("dynamic"))
    options = {"spec": {"mountOptions": ["noatime"]}}
    create(
        plane,
        PERSISTENT_VOLUMES,
        make_volume("disk", "5Gi", "static").on_node("n1").merge(options),
    )
    available = {"status": {"phase": "Available"}}
    patch(plane, PERSISTENT_VOLUMES.path("", "disk", "status"), available)
    create(plane, PERSISTENT_VOLUME_CLAIMS, make_claim("first", "static"))
    create(plane, PERSISTENT_VOLUME_CLAIMS, make_claim("second", "dynamic"))
    with plane.ksched("ksched-volumes"):
        create(plane, PODS, make_pod("web").pvc("first").pvc("second"))
        reserved = "--for=jsonpath={.spec.claimRef.name}=first"
        wait_for(plane, "pv/disk", reserved)
        key = r"{.metadata.annotations.volume\.kubernetes\.io/selected-node}"
        wait_for(plane, "pvc/second", f"--for=jsonpath={key}=n1")
        disk = plane.request("GET", PERSISTENT_VOLUMES.path("", "disk")).body
        assert disk["spec"]["mountOptions"] == ["noatime"]
        assert disk["spec"]["csi"]["volumeHandle"] == "disk"
        claim = plane.request("GET", PERSISTENT_VOLUME_CLAIMS.path("default", "first")).body
        assert disk["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]

        bind_by_hand(plane, "first", "disk")
        create(plane, PERSISTENT_VOLUMES, make_volume("made", "1Gi", "dynamic"))
        bind_by_hand(plane, "second", "made")
        wait_for(plane, "pod/web", "--for=jsonpath={.spec.nodeName}=n1")

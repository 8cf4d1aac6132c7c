"""Something is wrong with a pod's storage: kube-scheduler's message, and a wake-up once mended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from ksched.api.resources import (
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTACHMENTS,
    ApiResource,
)
from ksched.queue.places import Place
from ksched.testing import Cluster, cluster, make_node, make_pod
from ksched.testing.builders import Builder
from ksched.testing.storage_builders import (
    make_attachment,
    make_capacity,
    make_claim,
    make_csi_driver,
    make_csi_node,
    make_storage_class,
    make_volume,
)
from ksched.transport import MERGE_PATCH

Mend = Callable[[Cluster], Awaitable[None]]

POD = make_pod("web").pvc("data")
STATIC = make_storage_class("static", "kubernetes.io/no-provisioner")
DYNAMIC = make_storage_class("dynamic")
BOUND = make_claim("data").bound_to("v")
FULL = make_csi_node("n1", csi_example=1)
USER = make_pod("user").pvc("theirs").node("n1")
THEIRS = (make_claim("theirs").bound_to("v0"), make_volume("v0"), USER)


def creating(*objects: Builder[Any]) -> Mend:
    async def mend(c: Cluster) -> None:
        await c.create(*objects)

    return mend


def reasons(c: Cluster) -> str:
    """Why the pod waits, without what PostFilter plugins add."""
    message = c.message("web").split(" no new claims to deallocate, preemption: ")[0]
    # What DynamicResources says where its PreFilter did not run.
    return message.removesuffix(". not found") + "." if message.endswith(". not found") else message


def patching(resource: ApiResource, namespace: str, name: str, patch: Any, sub: str = "") -> Mend:
    async def mend(c: Cluster) -> None:
        body = msgspec.json.encode(patch)
        path = resource.path(namespace, name, sub)
        await c.client.request("PATCH", path, body, content_type=MERGE_PATCH)

    return mend


def deleting(resource: ApiResource, namespace: str, name: str) -> Mend:
    async def mend(c: Cluster) -> None:
        await c.client.request("DELETE", resource.path(namespace, name), b"{}")

    return mend


def deleting_pod(name: str) -> Mend:
    async def mend(c: Cluster) -> None:
        await c.delete(name, grace_seconds=0)

    return mend


def several(*steps: Mend) -> Mend:
    async def mend(c: Cluster) -> None:
        for step in steps:
            await step(c)
            await c.settle()

    return mend


AVAILABLE = patching(PERSISTENT_VOLUMES, "", "v", {"status": {"phase": "Available"}}, "status")
BIND = patching(
    PERSISTENT_VOLUME_CLAIMS,
    "default",
    "data",
    {
        "spec": {"volumeName": "v"},
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
    },
)
NO_VOLUMES = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."


@pytest.mark.parametrize(
    ("objects", "message", "mend"),
    [
        pytest.param(
            [make_volume("v")],
            '0/1 nodes are available: persistentvolumeclaim "data" not found.',
            creating(BOUND),
            id="a missing claim is created",
        ),
        pytest.param(
            [make_volume("v"), make_claim("data")],
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            BIND,
            id="an immediate claim is bound",
        ),
        pytest.param(
            [make_claim("data", "dynamic")],
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            creating(DYNAMIC),
            id="a missing class is created",
        ),
        pytest.param(
            [BOUND],
            '0/1 nodes are available: persistentvolume "v" not found.',
            creating(make_volume("v")),
            id="a missing volume is created",
        ),
        pytest.param(
            [make_volume("v"), BOUND.phase("Lost")],
            '0/1 nodes are available: persistentvolumeclaim "data" bound to non-existent '
            'persistentvolume "v".',
            patching(
                PERSISTENT_VOLUME_CLAIMS,
                "default",
                "data",
                {"status": {"phase": "Bound"}},
                "status",
            ),
            id="a lost claim is found again",
        ),
        pytest.param(
            [STATIC, make_claim("data", "static")],
            NO_VOLUMES,
            several(creating(make_volume("v", storage_class="static")), AVAILABLE),
            id="a volume becomes available",
        ),
        pytest.param(
            [make_storage_class("dynamic").allowed_in("zone", "a"), make_claim("data", "dynamic")],
            NO_VOLUMES,
            lambda c: c.patch_node("n1", {"metadata": {"labels": {"zone": "a"}}}),
            id="the node gets the label that the class allows",
        ),
        pytest.param(
            [make_volume("v").on_node("n2"), BOUND],
            "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.",
            lambda c: c.add_nodes([make_node("n2")]),
            id="the node of the volume comes",
        ),
        pytest.param(
            [
                make_volume("v").label({"topology.kubernetes.io/zone": "a"}),
                BOUND,
            ],
            "0/1 nodes are available: 1 node(s) had no available volume zone.",
            lambda c: c.patch_node(
                "n1", {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}}
            ),
            id="the node comes into the zone",
        ),
        pytest.param(
            [make_volume("v"), BOUND, FULL, *THEIRS],
            "0/1 nodes are available: 1 node(s) exceed max volume count.",
            deleting_pod("user"),
            id="a pod with a volume goes",
        ),
        pytest.param(
            [make_volume("v"), BOUND, make_csi_node("n1", csi_example=0)],
            "0/1 nodes are available: 1 node(s) exceed max volume count.",
            patching(
                CSI_NODES,
                "",
                "n1",
                {"spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": 9}}]}},
            ),
            id="the limit is raised",
        ),
        pytest.param(
            [
                make_volume("v"),
                BOUND,
                FULL,
                make_volume("v0"),
                make_attachment("a", "n1", "v0", "csi.example"),
            ],
            "0/1 nodes are available: 1 node(s) exceed max volume count.",
            deleting(VOLUME_ATTACHMENTS, "", "a"),
            id="a volume is detached",
        ),
        pytest.param(
            [
                make_volume("v"),
                make_claim("data", modes=["ReadWriteOncePod"]).bound_to("v"),
                make_pod("user").pvc("data").node("n1"),
            ],
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with "
            "ReadWriteOncePod access mode already in-use by another pod.",
            deleting_pod("user"),
            id="the only user of an exclusive claim goes",
        ),
        pytest.param(
            [
                DYNAMIC,
                make_claim("data", "dynamic", "5Gi"),
                make_csi_driver(),
                make_capacity("c", "dynamic", "1Gi"),
            ],
            "0/1 nodes are available: 1 node(s) did not have enough free storage.",
            patching(CSI_STORAGE_CAPACITIES, "kube-system", "c", {"capacity": "9Gi"}),
            id="the driver has more room",
        ),
    ],
)
async def test_a_pod_says_what_is_wrong_and_wakes_when_it_is_mended(
    objects: list[Builder[Any]], message: str, mend: Mend
) -> None:
    node = make_node("n1").label({"topology.kubernetes.io/zone": "b", "zone": "b"})
    async with cluster(nodes=[node]) as c:
        for obj in objects:
            await c.create(obj)
        await _finish(c, objects)
        await c.create(POD)
        await c.settle()
        assert reasons(c) == message
        assert c.place("web") is Place.UNSCHEDULABLE

        await mend(c)
        # Less than a minute: it was the event that woke the pod, not the flush.
        await c.advance(2)
        async with c.volume_controller():
            await c.advance(10)
        assert c.bound("web"), c.message("web")


async def _finish(c: Cluster, objects: list[Builder[Any]]) -> None:
    """Set the status of claims, which the API server does not take at creation."""
    for obj in objects:
        data = obj.to_dict()
        if data["kind"] == "PersistentVolumeClaim" and "status" in data:
            name, status = data["metadata"]["name"], {"status": data["status"]}
            await patching(PERSISTENT_VOLUME_CLAIMS, "default", name, status, "status")(c)
    await c.settle()


async def test_a_claim_that_is_being_deleted_is_not_used_and_its_successor_is() -> None:
    async with cluster(nodes=1) as c:
        guarded = BOUND.merge({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}})
        await c.create(make_volume("v"), guarded)
        await deleting(PERSISTENT_VOLUME_CLAIMS, "default", "data")(c)
        await c.create(POD)
        await c.settle()
        wrong = '0/1 nodes are available: persistentvolumeclaim "data" is being deleted.'
        assert reasons(c) == wrong

        free = patching(
            PERSISTENT_VOLUME_CLAIMS, "default", "data", {"metadata": {"finalizers": None}}
        )
        await free(c)
        await c.create(BOUND)
        await c.advance(5)
        assert c.bound("web")


async def test_an_ephemeral_volume_waits_for_its_claim() -> None:
    pod = make_pod("web").ephemeral("scratch")
    async with cluster(nodes=1) as c:
        created = (await c.create(make_volume("v"), pod))[1]
        await c.settle()
        wrong = (
            "0/1 nodes are available: waiting for ephemeral volume controller to create the "
            'persistentvolumeclaim "web-scratch".'
        )
        assert reasons(c) == wrong

        claim = (
            make_claim("web-scratch").bound_to("v").made_for(pod.uid(created["metadata"]["uid"]))
        )
        await c.create(claim)
        await c.advance(5)
        assert c.bound("web")


async def test_a_claim_that_only_has_the_right_name_is_not_the_pods() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_volume("v"), make_claim("web-scratch").bound_to("v"))
        await c.create(make_pod("web").ephemeral("scratch"))
        await c.settle()

        wrong = (
            "0/1 nodes are available: PVC default/web-scratch was not created for pod default/web "
            "(pod is not owner)."
        )
        assert reasons(c) == wrong

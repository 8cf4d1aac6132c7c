"""Claims from templates, and a driver: the simulated ones around an embedded API server.

Covers ``ksched.apiserver.device_driver`` and ``ksched.apiserver.controller_requests``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ksched.api.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.claim_controller import ClaimController, generated_prefix
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.serving import create_nodes, running_cluster
from ksched.testing import Cluster, PodBuilder, cluster, make_node, make_pod
from ksched.testing.device_builders import (
    DRIVER,
    make_device_class,
    make_resource_claim,
    with_claim,
)
from ksched.testing.harness import beside
from ksched.testing.virtual_time import VirtualClock

DEVICES = [{"name": "d0"}, {"name": "d1"}]
ATTACHED = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


def template(name: str = "gpu") -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": DRIVER}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "metadata": {"labels": {"made": "from-template"}},
            "spec": {"devices": {"requests": [request]}},
        },
    }


def with_template(pod: PodBuilder, name: str = "gpu") -> PodBuilder:
    entry = {"name": "device", "resourceClaimTemplateName": name}
    return pod.merge({"spec": {"resourceClaims": [entry]}})


async def listed(c: Cluster, resource: Any) -> list[Any]:
    namespace = "default" if resource.namespaced else ""
    raw = await c.client.request("GET", resource.path(namespace))
    found: list[Any] = msgspec.json.decode(raw)["items"]
    return found


async def test_a_pod_with_a_template_gets_a_claim_a_device_and_gives_both_back() -> None:
    async with (
        cluster(nodes=1) as c,
        c.claim_controller(),
        c.device_driver(DRIVER, DEVICES),
    ):
        await c.create(make_device_class(), with_template(make_pod("web")))
        await c.settle()
        assert await listed(c, RESOURCE_CLAIMS) == []
        await c.create(template())
        await c.advance(5)
        assert c.bound("web") == "n1"
        (claim,) = await listed(c, RESOURCE_CLAIMS)
        assert claim["metadata"]["name"].startswith("web-device-")
        assert claim["metadata"]["labels"] == {"made": "from-template"}
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["device"] == "d0"
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["web"]

        await c.delete("web", grace_seconds=0)
        await c.advance(5)
        assert await listed(c, RESOURCE_CLAIMS) == []
        await c.create(with_template(make_pod("next")))
        await c.advance(5)
        (claim,) = await listed(c, RESOURCE_CLAIMS)
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"


async def test_a_pod_that_ended_releases_its_claim() -> None:
    async with (
        cluster(nodes=1) as c,
        c.claim_controller(),
        c.device_driver(DRIVER, DEVICES[:1]),
    ):
        await c.create(make_device_class(), template(), with_template(make_pod("job")))
        await c.advance(5)
        await c.create(with_template(make_pod("next")))
        await c.advance(5)
        assert not c.bound("next")
        await c.patch("job", {"status": {"phase": "Succeeded"}}, subresource="status")
        await c.advance(30)
        assert c.bound("next") == "n1"


async def test_a_pod_that_the_watch_has_not_shown_keeps_its_devices() -> None:
    slow = Rule(Fault(event_delay_seconds=60), verb="watch", resource="pods", times=None)
    async with cluster(nodes=1) as c, c.device_driver(DRIVER, DEVICES[:1]):
        claim = make_resource_claim("shared").request()
        await c.create(make_device_class(), claim, make_pod("another"))
        transport = InProcessTransport(c.server, "claim-controller", Faults([slow]))
        async with beside(ClaimController(transport, c.clock).run):
            await c.advance(1)
            await c.create(with_claim(make_pod("web"), "shared"))
            await c.advance(5)
            assert c.bound("web") == "n1"
            (stored,) = await listed(c, RESOURCE_CLAIMS)
            assert [one["name"] for one in stored["status"]["reservedFor"]] == ["web"]
            await c.delete("web", grace_seconds=0)
            await c.advance(900)
            (stored,) = await listed(c, RESOURCE_CLAIMS)
            assert not stored.get("status", {}).get("allocation")


async def test_a_driver_publishes_for_nodes_with_its_label_and_attaches_devices() -> None:
    devices = [{**one, **ATTACHED} for one in DEVICES]
    async with (
        cluster(nodes=1) as c,
        c.claim_controller(),
        c.device_driver(DRIVER, devices, label="gpu", attach_seconds=20),
    ):
        await c.create(make_device_class(), template())
        await c.create(make_node("n2").label(gpu="yes"))
        await c.create(with_template(make_pod("web")))
        await c.advance(10)
        (published,) = await listed(c, RESOURCE_SLICES)
        assert published["spec"]["nodeName"] == "n2"
        assert not c.bound("web"), "its device is not attached"
        await c.advance(30)
        assert c.bound("web") == "n2"

        await c.delete_node("n2")
        await c.advance(5)
        assert await listed(c, RESOURCE_SLICES) == []


@pytest.mark.parametrize(
    ("pod", "entry", "prefix"),
    [
        ("web", "gpu", "web-gpu-"),
        ("p" * 60, "e" * 20, "p" * 41 + "-" + "e" * 13 + "-"),
    ],
)
def test_names_of_claims_are_cut_as_the_controller_does(pod: str, entry: str, prefix: str) -> None:
    assert generated_prefix(pod, entry) == prefix


async def test_the_served_cluster_has_devices_if_wanted() -> None:
    clock = VirtualClock()
    async with running_cluster(ApiServer(clock), clock, devices=3) as transport:
        await create_nodes(transport, clock, 2)
        await asyncio.sleep(1)
        response = await transport.request("GET", RESOURCE_SLICES.path(""))
        slices = msgspec.json.decode(response.body)["items"]
        assert [len(one["spec"]["devices"]) for one in slices] == [3, 3]
        path = "/apis/resource.k8s.io/v1/deviceclasses/gpu.example.com"
        assert (await transport.request("GET", path)).status == 200

"""The simulated volume controller."""

from __future__ import annotations

from typing import Any

import msgspec

from ksched.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from ksched.testing import Cluster, cluster
from ksched.testing.storage_builders import make_claim, make_storage_class, make_volume
from ksched.transport import MERGE_PATCH

NOW = make_storage_class("now", waits=False)


async def claim(c: Cluster) -> Any:
    return msgspec.json.decode(await c.client.get(PERSISTENT_VOLUME_CLAIMS, "default", "data"))


async def volume(c: Cluster, name: str) -> Any:
    return msgspec.json.decode(await c.client.get(PERSISTENT_VOLUMES, "", name))


async def test_a_new_volume_becomes_available() -> None:
    async with cluster() as c, c.volume_controller():
        await c.create(make_volume("v"))
        await c.settle()
        assert (await volume(c, "v"))["status"]["phase"] == "Available"


async def test_an_immediate_claim_gets_the_smallest_volume_that_fits() -> None:
    async with cluster() as c, c.volume_controller():
        await c.create(make_volume("small", "1Gi", "x"), make_volume("fits", "6Gi", "x"))
        await c.create(make_volume("large", "50Gi", "x"), make_claim("data", "x", "5Gi"))
        await c.settle()
        bound = await claim(c)
        assert bound["spec"]["volumeName"] == "fits"
        assert bound["status"]["phase"] == "Bound"
        assert (await volume(c, "fits"))["status"]["phase"] == "Bound"
        assert (await volume(c, "large"))["status"]["phase"] == "Available"


async def test_an_immediate_claim_without_a_volume_gets_a_new_one_in_time() -> None:
    async with cluster() as c, c.volume_controller(provision_seconds=3):
        await c.create(NOW, make_claim("data", "now", "5Gi"))
        await c.advance(2.9)
        assert "volumeName" not in (await claim(c))["spec"]
        await c.advance(0.2)
        made = await volume(c, (await claim(c))["spec"]["volumeName"])
        assert made["spec"]["capacity"] == {"storage": "5Gi"}


async def test_a_claim_that_waits_is_left_alone_until_a_node_is_selected() -> None:
    async with cluster() as c, c.volume_controller():
        await c.create(make_storage_class("later"), make_claim("data", "later"))
        await c.create(make_volume("v", "50Gi", "later"))
        await c.advance(10)
        assert "volumeName" not in (await claim(c))["spec"]
        patch = b'{"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}'
        where = (PERSISTENT_VOLUME_CLAIMS, "default", "data", patch)
        await c.client.patch(*where, content_type=MERGE_PATCH)
        await c.settle()
        assert (await claim(c))["spec"]["volumeName"] != "v"


async def test_the_volume_of_a_claim_that_is_gone_is_released() -> None:
    async with cluster() as c, c.volume_controller():
        await c.create(make_volume("v", storage_class="x"), make_claim("data", "x"))
        await c.settle()
        await c.client.request("DELETE", PERSISTENT_VOLUME_CLAIMS.path("default", "data"), b"{}")
        await c.settle()
        assert (await volume(c, "v"))["status"]["phase"] == "Released"

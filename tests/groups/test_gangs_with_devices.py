"""The devices of a gang's members are part of its trial, and given back when it is undone."""

from __future__ import annotations

import json

import pytest

from ksched.api.resources import RESOURCE_CLAIMS
from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.status_errors import GroupResource, conflict
from ksched.testing import Cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from lab.gangs import DIALECTS, Gang
from tests.groups.test_gangs import gang_cluster

TAKEN = conflict(GroupResource("resource.k8s.io", "resourceclaims"), "c", "taken")
NODES = 2

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


async def add_devices(c: Cluster, *, per_node: int) -> None:
    await c.create(make_device_class())
    for node in range(1, NODES + 1):
        made = make_slice(f"n{node}")
        for number in range(per_node):
            made = made.device(f"d{number}")
        await c.create(made)


async def add_gang(c: Cluster, gang: Gang) -> None:
    """Members with a claim of one device each."""
    await c.create(*gang.objects())
    for pod in gang.pods():
        name = pod.to_dict()["metadata"]["name"]
        await c.create(make_resource_claim(f"{name}-claim").request())
        await c.create(with_claim(pod, f"{name}-claim"))


async def devices(c: Cluster, gang: Gang) -> list[tuple[str, str]]:
    """Pool and device of every claim of a gang that has one."""
    found = []
    for name in gang.names:
        claim = f"{name.rpartition('/')[2]}-claim"
        raw = await c.client.get(RESOURCE_CLAIMS, "default", claim)
        status = json.loads(raw).get("status", {})
        for one in status.get("allocation", {}).get("devices", {}).get("results", []):
            found.append((one["pool"], one["device"]))
    return sorted(found)


@every_dialect
async def test_members_get_different_devices(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=NODES) as c:
        await add_devices(c, per_node=2)
        gang = Gang(dialect, "a", 4)
        await add_gang(c, gang)
        await c.settle()
        assert gang.bound(c) == 4
        assert await devices(c, gang) == [("n1", "d0"), ("n1", "d1"), ("n2", "d0"), ("n2", "d1")]


@every_dialect
async def test_a_gang_with_one_device_too_few_takes_none(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=NODES) as c:
        await add_devices(c, per_node=2)
        gang = Gang(dialect, "a", 5, cpu="500m")
        await add_gang(c, gang)
        await c.settle()
        assert gang.bound(c) == 0
        assert await devices(c, gang) == []
        for number in range(4):
            await c.create(make_resource_claim(f"single-{number}").request())
            await c.create(with_claim(make_pod(f"single-{number}"), f"single-{number}"))
        await c.settle()
        assert all(c.bound(f"single-{number}") for number in range(4)), "its trial kept no device"

        await c.create(make_node("n3"))
        more = make_slice("n3")
        for number in range(5):
            more = more.device(f"d{number}")
        await c.create(more)
        await c.advance(120)
        assert gang.bound(c) == 5, c.message("a-0")
        assert await devices(c, gang) == [("n3", f"d{number}") for number in range(5)]


@every_dialect
async def test_a_member_whose_claim_cannot_be_written_is_tried_again(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=NODES) as c:
        await add_devices(c, per_node=2)
        gang = Gang(dialect, "a", 4)
        fault = Fault(answer=TAKEN)
        c.faults.rules.append(Rule(fault, verb="update", resource="resourceclaims", times=7))
        await add_gang(c, gang)
        await c.advance(120)
        assert gang.bound(c) == 4
        assert await devices(c, gang) == [("n1", "d0"), ("n1", "d1"), ("n2", "d0"), ("n2", "d1")]

"""Simulated nodes at an API server that is not their own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.simulated_nodes import LEASE_SECONDS, RENEW_SECONDS, simulate_nodes
from ksched.apiserver.status_errors import StatusError
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import MERGE_PATCH

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POD_NAMES = ("mine", "foreign")


@pytest.fixture
def nodes(server):
    @asynccontextmanager
    async def running(count, faults=None):
        transport = InProcessTransport(server, "admin", faults or Faults())
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            work = simulate_nodes(transport, VirtualClock(), count, ready.set)
            task = tasks.create_task(work)
            await ready.wait()
            yield
            task.cancel()

    return running


async def renewed_at(client, name):
    return (await client.get(f"{LEASES}/{name}"))["spec"]["renewTime"]


async def test_nodes_are_registered_and_their_leases_renewed(client, nodes):
    async with nodes(2):
        assert await client.names("/api/v1/nodes") == ["node-0001", "node-0002"]
        await asyncio.sleep(1)
        first = await renewed_at(client, "node-0001")
        assert (await client.get(f"{LEASES}/node-0002"))["spec"]["leaseDurationSeconds"] == 40
        await asyncio.sleep(RENEW_SECONDS)
        assert await renewed_at(client, "node-0001") > first


async def test_leases_outlive_an_api_server_that_is_away(client, nodes):
    refused = Rule(Fault(answer=StatusError(503, "", "away")), "patch", "leases", times=2)
    async with nodes(1, Faults([refused])):
        await asyncio.sleep(LEASE_SECONDS)
        assert await renewed_at(client, "node-0001")


async def test_only_pods_of_these_nodes_run(client, nodes):
    await client.create_node("real")
    async with nodes(1):
        for name, node in zip(POD_NAMES, ("node-0001", "real"), strict=True):
            await client.create_pod(name)
            await client.bind(name, node)
        await asyncio.sleep(5)
        phases = [(await client.get(f"{PODS}/{name}"))["status"]["phase"] for name in POD_NAMES]
        assert phases == ["Running", "Pending"]
        await client.ok("DELETE", f"{PODS}/foreign")
        await asyncio.sleep(60)
        assert await client.names(PODS) == ["foreign", "mine"]


async def test_extended_resources_of_the_capacity_become_allocatable_and_go_with_it(client, nodes):
    path, resource = "/api/v1/nodes/node-0001", "example.com/foo"
    async with nodes(1):
        for amount in ("5", "7", None):
            patch = {"status": {"capacity": {resource: amount}}}
            await client.ok("PATCH", f"{path}/status", patch, MERGE_PATCH)
            await asyncio.sleep(3)
            allocatable = (await client.get(path))["status"]["allocatable"]
            assert allocatable.get(resource) == amount
            assert allocatable["cpu"] == "8"


async def test_nodes_of_an_earlier_run_are_taken_over(client, nodes):
    async with nodes(1):
        await client.create_pod("web")
        await client.bind("web", "node-0001")
    async with nodes(1):
        await asyncio.sleep(5)
        assert (await client.get(f"{PODS}/web"))["status"]["phase"] == "Running"

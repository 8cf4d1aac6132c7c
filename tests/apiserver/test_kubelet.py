"""The simulated kubelet: bound pods run, deleted pods go."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from ksched.apiserver.faults import Fault, Faults, Rule, StreamEnd
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.kubelet import RUN_SECONDS_ANNOTATION, Kubelet
from ksched.apiserver.status_errors import StatusError
from ksched.testing.virtual_time import VirtualClock

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def kubelet(server, faults):
    @asynccontextmanager
    async def running():
        transport = InProcessTransport(server, "system:nodes", faults)
        clock = VirtualClock()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(
                Kubelet(transport, clock, start_seconds=2, stop_seconds=3).run()
            )
            yield
            task.cancel()

    return running


async def phase(client, name="web"):
    return (await client.get(f"{PODS}/{name}"))["status"]["phase"]


async def test_a_bound_pod_runs_after_a_while(client, kubelet):
    await client.create_node("n1")
    async with kubelet():
        await client.create_pod("web")
        await asyncio.sleep(10)
        assert await phase(client) == "Pending"
        await client.bind("web", "n1")
        await asyncio.sleep(1.9)
        assert await phase(client) == "Pending"
        await asyncio.sleep(0.2)
        status = (await client.get(f"{PODS}/web"))["status"]
    assert status["phase"] == "Running"
    assert status["startTime"] == "2023-11-14T22:13:32Z"
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert [c["name"] for c in status["containerStatuses"]] == ["c"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["Ready"] == conditions["PodScheduled"] == "True"


async def test_a_pod_created_with_its_node_counts_as_scheduled(client, kubelet):
    await client.create_node("n1")
    async with kubelet():
        await client.create_pod("web", nodeName="n1")
        await asyncio.sleep(3)
        conditions = (await client.get(f"{PODS}/web"))["status"]["conditions"]
    assert [c["status"] for c in conditions if c["type"] == "PodScheduled"] == ["True"]


async def test_pods_have_different_addresses(client, kubelet):
    await client.create_node("n1")
    async with kubelet():
        for name in ("a", "b"):
            await client.create_pod(name)
            await client.bind(name, "n1")
        await asyncio.sleep(5)
        items = (await client.get(PODS))["items"]
    assert len({item["status"]["podIP"] for item in items}) == 2


async def test_a_deleted_pod_stops_and_goes(client, kubelet):
    await client.create_node("n1")
    async with kubelet():
        await client.create_pod("web")
        await client.bind("web", "n1")
        await asyncio.sleep(5)
        await client.ok("DELETE", f"{PODS}/web")
        await asyncio.sleep(2.9)
        assert await client.names(PODS) == ["web"]
        await asyncio.sleep(0.2)
        assert await client.names(PODS) == []


async def test_a_short_grace_period_is_kept(client, kubelet):
    await client.create_node("n1")
    async with kubelet():
        await client.create_pod("web", terminationGracePeriodSeconds=1)
        await client.bind("web", "n1")
        await asyncio.sleep(5)
        await client.ok("DELETE", f"{PODS}/web")
        await asyncio.sleep(1.1)
        assert await client.names(PODS) == []


async def test_a_pod_stops_when_its_hook_has_slept(client, kubelet):
    hook = {"preStop": {"sleep": {"seconds": 20}}}
    container = {"name": "c", "image": "i", "lifecycle": hook}
    await client.create_node("n1")
    async with kubelet():
        await client.create_pod("web", containers=[container])
        await client.bind("web", "n1")
        await asyncio.sleep(5)
        await client.ok("DELETE", f"{PODS}/web")
        await asyncio.sleep(19)
        assert await client.names(PODS) == ["web"]
        await asyncio.sleep(1.1)
        assert await client.names(PODS) == []


async def test_a_pod_may_finish_by_itself(client, kubelet):
    await client.create_node("n1")
    async with kubelet():
        await client.create_pod("web", metadata={"annotations": {RUN_SECONDS_ANNOTATION: "60"}})
        await client.bind("web", "n1")
        await asyncio.sleep(61)
        assert await phase(client) == "Running"
        await asyncio.sleep(2)
        pod = await client.get(f"{PODS}/web")
    assert pod["status"]["phase"] == "Succeeded"
    assert "terminated" in pod["status"]["containerStatuses"][0]["state"]


async def test_a_pod_of_a_missing_node_waits_for_it(client, kubelet):
    async with kubelet():
        await client.create_pod("web")
        await client.bind("web", "n1")
        await asyncio.sleep(60)
        assert await phase(client) == "Pending"
        await client.create_node("n1")
        await asyncio.sleep(1)
        assert await phase(client) == "Running"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            Rule(Fault(answer=StatusError(500, "", "broken")), "patch", times=3), id="refused"
        ),
        pytest.param(Rule(Fault(lose_response=True), "patch", times=2), id="answer lost"),
        pytest.param(
            Rule(Fault(stream_end=StreamEnd.RESET, stream_events=0), "watch", "pods", times=2),
            id="watch broken",
        ),
        pytest.param(
            Rule(Fault(stream_end=StreamEnd.EXPIRED, stream_events=1), "watch", "pods", times=2),
            id="watch expired",
        ),
    ],
)
async def test_trouble_is_overcome(client, kubelet, faults, fault):
    faults.rules.append(fault)
    await client.create_node("n1")
    async with kubelet():
        for name in ("a", "b"):
            await client.create_pod(name)
            await client.bind(name, "n1")
        await asyncio.sleep(20)
        assert [await phase(client, name) for name in ("a", "b")] == ["Running", "Running"]
        await client.ok("DELETE", f"{PODS}/a")
        await asyncio.sleep(10)
        assert await client.names(PODS) == ["b"]

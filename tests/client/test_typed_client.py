"""kubernetes-asyncio's API over our transport, as a plugin uses it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from aiohttp import ClientTimeout

from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.clock import LoopClock
from ksched.configuration.model import ClientConnection, SchedulerConfiguration
from ksched.election import WriteFence
from ksched.errors import Conflict, NotFound, Unavailable
from ksched.framework import SUCCESS
from ksched.testing import cluster, make_pod
from ksched.transport import JSON, Response


class Asks:
    """A plugin with a client."""

    name = "Asks"

    def __init__(self, args: Any, handle: Any) -> None:
        from kubernetes_asyncio.client import CoreV1Api, CustomObjectsApi

        self.core = CoreV1Api(handle.api_client)
        self.custom = CustomObjectsApi(handle.api_client)
        made.append(self)

    def filter(self, state: Any, pod: Any, node: Any) -> Any:
        return SUCCESS


made: list[Asks] = []


def core() -> Any:
    return made[-1].core


def asking(**options: Any) -> Any:
    return cluster(1, plugins={"Asks": Asks}, **options)


async def test_reads_and_writes_are_typed() -> None:
    from kubernetes_asyncio.client import V1ConfigMap, V1ObjectMeta, V1PodStatus

    async with asking() as c:
        node = await core().read_node("n1")
        assert node.metadata.name == "n1"
        assert node.status.allocatable["cpu"] == "4"
        wanted = V1ConfigMap(metadata=V1ObjectMeta(name="plan"), data={"a": "1"})
        created = await core().create_namespaced_config_map("default", wanted)
        assert created.data == {"a": "1"}
        assert created.metadata.creation_timestamp.tzinfo is not None
        await core().patch_namespaced_config_map("plan", "default", {"data": {"b": "2"}})
        plan = await core().read_namespaced_config_map("plan", "default")
        assert plan.data == {"a": "1", "b": "2"}
        plan.data = {"c": "3"}
        replaced = await core().replace_namespaced_config_map("plan", "default", plan)
        assert replaced.data == {"c": "3"}
        await core().delete_namespaced_config_map("plan", "default")
        await c.create(make_pod("web").label(app="web"), make_pod("db"))
        found = await core().list_namespaced_pod("default", label_selector="app=web", limit=10)
        assert [pod.metadata.name for pod in found.items] == ["web"]
        assert isinstance(found.items[0].status, V1PodStatus)


async def test_errors_are_ours() -> None:
    from kubernetes_asyncio.client import V1ConfigMap, V1ObjectMeta

    async with asking():
        with pytest.raises(NotFound, match="GET /api/v1/nodes/n9"):
            await core().read_node("n9")
        twice = V1ConfigMap(metadata=V1ObjectMeta(name="plan"))
        await core().create_namespaced_config_map("default", twice)
        with pytest.raises(Conflict):
            await core().create_namespaced_config_map("default", twice)


async def test_reads_are_repeated_and_writes_only_if_nothing_happened() -> None:
    from kubernetes_asyncio.client import V1ConfigMap, V1ObjectMeta

    lost = Fault(lose_response=True)
    faults = Faults([Rule(lost, "get", "nodes", times=2), Rule(lost, "create", "configmaps")])
    async with asking(faults=faults):
        assert (await core().read_node("n1")).metadata.name == "n1"
        body = V1ConfigMap(metadata=V1ObjectMeta(name="plan"))
        with pytest.raises(Unavailable, match="connection reset"):
            await core().create_namespaced_config_map("default", body)
        assert len(faults.fired) == 3


async def test_plugins_have_a_rate_limit_of_their_own() -> None:
    config = SchedulerConfiguration(client_connection=ClientConnection(qps=2.0, burst=4))
    async with asking(config=config) as c:
        await c.advance(10)
        began = c.clock.now()
        await asyncio.gather(*(core().read_node("n1") for _ in range(8)))
        assert c.clock.now() - began == pytest.approx(2.0)
        await asyncio.gather(*(core().read_node("n1") for _ in range(2)))
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1", "a bind waited for what a plugin reads"


async def test_writes_wait_for_the_lease() -> None:
    remaining = 0.0
    label = {"metadata": {"labels": {"a": "b"}}}
    async with asking(fence=WriteFence(lambda: remaining)) as c:
        await core().read_node("n1")
        with pytest.raises(Unavailable, match="only the leader may write"):
            await core().patch_node("n1", label, _request_timeout=5)
        writes = [audit for audit in c.requests if audit.verb == "patch"]
        assert not writes
        remaining = 60.0
        assert (await core().patch_node("n1", label)).metadata.labels["a"] == "b"


class Silent:
    """A transport that notes the time it was given."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        self.timeouts.append(timeout)
        return Response(200, {"Content-Type": "application/json"}, b'{"metadata": {"name": "x"}}')


async def test_every_call_has_a_deadline() -> None:
    from kubernetes_asyncio.client import CoreV1Api

    from ksched.client.rest import ApiClient
    from ksched.client.typed_client import TypedClient

    transport = Silent()
    client = TypedClient(ApiClient(transport, LoopClock()))  # type: ignore[arg-type]
    api = CoreV1Api(client)
    await api.read_node("x")
    await api.read_node("x", _request_timeout=3)
    await api.read_node("x", _request_timeout=(1, 3))
    await api.read_node("x", _request_timeout=ClientTimeout(total=7))
    assert transport.timeouts == [30, 3, 4, 7]
    answer = await client.request("GET", "/api/v1/nodes")
    assert answer.getheader("content-type") == "application/json"


async def test_what_cannot_be_had_is_refused() -> None:
    async with asking():
        with pytest.raises(TypeError, match="no watch and no raw answer"):
            await core().list_node(watch=True)
        with pytest.raises(TypeError, match="no watch and no raw answer"):
            await core().list_node(_preload_content=False)
        with pytest.raises(TypeError, match="await the call itself"):
            core().list_node(async_req=True)
        async with core().api_client:
            pass
        assert len((await core().list_node()).items) == 1


def test_the_library_is_not_loaded_before_a_plugin_asks() -> None:
    code = (
        "import sys, ksched.scheduling.scheduler, ksched.testing;"
        "sys.exit('kubernetes_asyncio.client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

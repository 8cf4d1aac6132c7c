"""One API server at a time, the embedded one or a real one, and a user who cannot tell which.

Both are reached over HTTP by ksched's own client. What holds for one must hold for the other: a
test here that passes on the real server only is a bug of the embedded server.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.api.resources import NAMESPACES, NODES, PODS, ApiResource
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.kubeconfig import load_client_config
from ksched.client.rest import ApiClient, Selection
from ksched.client.retry import NO_RETRY
from ksched.clock import LoopClock
from ksched.transport import JSON, STRATEGIC_MERGE_PATCH, Transport
from lab.control_plane import ControlPlane

_PATIENCE_SECONDS = 20.0
_NUMBERS = itertools.count(1)


class Api:
    """A client with a namespace of its own that speaks in dictionaries.

    Refusals are the errors of ``ksched.errors``. Nothing is retried: a test asks about one answer.
    """

    def __init__(self, transport: Transport, forget_history: Callable[[], None]) -> None:
        self.transport, self.clock = transport, LoopClock()
        self.client = ApiClient(transport, self.clock)
        self.namespace = f"contract-{os.getpid()}-{next(_NUMBERS)}"
        self.forget_history = forget_history
        """Compact the history: nobody may read the past any more."""
        self._cluster_scoped: list[tuple[ApiResource, str]] = []

    def name(self, name: str) -> str:
        """A name that no other test uses, for what lives in no namespace."""
        return f"{self.namespace}-{name}"

    # -- verbs ----------------------------------------------------------------------------------

    async def send(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> dict[str, Any]:
        raw = None if body is None else msgspec.json.encode(body)
        answer = await self.client.request(method, path, raw, content_type=content_type)
        return msgspec.json.decode(answer)

    async def create(self, resource: ApiResource, obj: dict[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode(obj)
        created = await self.client.create(resource, self.namespace, body, retry=NO_RETRY)
        if not resource.namespaced:
            self._cluster_scoped.append((resource, obj["metadata"]["name"]))
        return msgspec.json.decode(created)

    async def get(self, resource: ApiResource, name: str) -> dict[str, Any]:
        return msgspec.json.decode(await self.client.get(resource, self.namespace, name))

    async def update(
        self, resource: ApiResource, obj: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        name, body = obj["metadata"]["name"], msgspec.json.encode(obj)
        answer = await self.client.update(
            resource, self.namespace, name, body, subresource=subresource, retry=NO_RETRY
        )
        return msgspec.json.decode(answer)

    async def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: dict[str, Any],
        *,
        subresource: str = "",
        content_type: str = STRATEGIC_MERGE_PATCH,
    ) -> dict[str, Any]:
        answer = await self.client.patch(
            resource,
            self.namespace,
            name,
            msgspec.json.encode(patch),
            subresource=subresource,
            content_type=content_type,
            retry=NO_RETRY,
        )
        return msgspec.json.decode(answer)

    async def delete(
        self, resource: ApiResource, name: str, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return await self.send("DELETE", resource.path(self.namespace, name), options)

    async def list(self, resource: ApiResource, query: str = "") -> dict[str, Any]:
        return await self.send("GET", resource.path(self.namespace) + query)

    async def names(self, resource: ApiResource, **selectors: str) -> Sequence[str]:
        """The names that a selection lists, through the client's own pages."""
        page = await self.client.list_page(resource, Selection(self.namespace, **selectors))
        return [msgspec.json.decode(item)["metadata"]["name"] for item in page.items]

    @asynccontextmanager
    async def watch(
        self, resource: ApiResource, selection: Selection | None = None, **options: Any
    ) -> AsyncIterator[Events]:
        selection = selection or Selection(self.namespace)
        async with self.client.watch(resource, selection, **options) as lines:
            yield Events(lines)

    # -- pods and nodes -------------------------------------------------------------------------

    async def create_pod(self, name: str, **spec: Any) -> dict[str, Any]:
        return await self.create(PODS, self.pod(name, **spec))

    def pod(self, name: str, *, metadata: dict[str, Any] | None = None, **spec: Any) -> Any:
        # A real cluster has a controller that gives every namespace its service account.
        defaults = {"containers": [{"name": "c", "image": "pause:3.9"}]}
        return {
            "metadata": {"name": name, "namespace": self.namespace, **(metadata or {})},
            "spec": {**defaults, **spec},
        }

    async def create_node(self, name: str, **status: Any) -> dict[str, Any]:
        return await self.create(NODES, {"metadata": {"name": self.name(name)}, "status": status})

    async def bind(self, pod: dict[str, Any], node_name: str) -> None:
        metadata = pod["metadata"]
        await self.client.bind(self.namespace, metadata["name"], metadata["uid"], node_name)

    # -- life -----------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.send("POST", NAMESPACES.path(), {"metadata": {"name": self.namespace}})

    async def close(self) -> None:
        """Leave no node and no pod behind, and no namespace that nobody would ever empty."""
        for pod in (await self.list(PODS))["items"]:
            name = pod["metadata"]["name"]
            if pod["metadata"].get("finalizers"):
                await self.patch(PODS, name, {"metadata": {"finalizers": None}})
            path = PODS.path(self.namespace, name) + "?gracePeriodSeconds=0"
            await self.transport.request("DELETE", path)
        for resource, name in self._cluster_scoped:
            await self.transport.request("DELETE", resource.path("", name))
        path = NAMESPACES.path("", self.namespace)
        gone = await self.send("DELETE", path)
        gone["spec"] = {"finalizers": []}
        await self.send("PUT", f"{path}/finalize", gone)
        await self.transport.aclose()


class Events:
    """What a watch says, decoded; silence where something is expected is a failure."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return msgspec.json.decode(await anext(self._lines))

    async def seen(self) -> tuple[str, str]:
        """Type and object name of the next event."""
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")

    async def rest(self) -> list[dict[str, Any]]:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return [msgspec.json.decode(line) async for line in self._lines]


@asynccontextmanager
async def _embedded() -> AsyncIterator[Api]:
    server = ApiServer(LoopClock())
    async with listening(server) as url:
        transport = HttpTransport(ClientConfig(server=url), LoopClock())
        yield Api(transport, server.store.compact)


@asynccontextmanager
async def _real(plane: ControlPlane) -> AsyncIterator[Api]:
    clock = LoopClock()
    config = load_client_config(clock, kubeconfig=str(plane.kubeconfig()), master="")

    def compact() -> None:
        plane.compact_etcd()

    yield Api(HttpTransport(config, clock), compact)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """An API server to test; the real one is the file's, so everything is left clean."""
    if request.param == "embedded":
        serving = _embedded()
    else:
        serving = _real(request.getfixturevalue("control_plane"))
    async with serving as api:
        await api.open()
        yield api
        await api.close()

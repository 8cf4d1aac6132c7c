"""A client for the embedded server that speaks in objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import JSON, Response, Transport

PODS = "/api/v1/namespaces/default/pods"


class Client:
    """Requests as method calls; ``ok`` calls insist on success and return the object."""

    def __init__(self, server: ApiServer, transport: Transport) -> None:
        self.server, self.transport = server, transport

    async def send(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> tuple[int, Any]:
        response = await self.respond(method, path, body, content_type)
        return response.status, msgspec.json.decode(response.body)

    async def respond(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> Response:
        raw = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        return await self.transport.request(method, path, raw, content_type=content_type)

    async def ok(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> dict[str, Any]:
        status, answer = await self.send(method, path, body, content_type)
        assert status < 300, answer
        return answer

    async def get(self, path: str) -> dict[str, Any]:
        return await self.ok("GET", path)

    async def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(path))["items"]]

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        return await self.ok("POST", path, obj)

    async def create_pod(self, name: str = "web", **spec: Any) -> dict[str, Any]:
        return await self.create(PODS, self.pod(name, **spec))

    @staticmethod
    def pod(name: str = "web", **spec: Any) -> dict[str, Any]:
        metadata = spec.pop("metadata", {})
        containers = spec.pop("containers", [{"name": "c", "image": "pause:3.9"}])
        return {"metadata": {"name": name, **metadata}, "spec": {"containers": containers, **spec}}

    async def create_node(self, name: str = "n1") -> dict[str, Any]:
        return await self.create("/api/v1/nodes", {"metadata": {"name": name}})

    async def bind(self, name: str, node: str, **metadata: Any) -> tuple[int, Any]:
        body = {
            "metadata": {"name": name, **metadata},
            "target": {"kind": "Node", "name": node},
        }
        return await self.send("POST", f"{PODS}/{name}/binding", body)

    async def patch(self, path: str, patch: Any, kind: str) -> tuple[int, Any]:
        types = {
            "json": "application/json-patch+json",
            "merge": "application/merge-patch+json",
            "strategic": "application/strategic-merge-patch+json",
            "apply": "application/apply-patch+yaml",
        }
        return await self.send("PATCH", path, patch, types[kind])

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[Events]:
        separator = "&" if "?" in path else "?"
        async with self.transport.stream(f"{path}{separator}watch=true") as stream:
            yield Events(stream.status, stream.lines)


class Events:
    """The events of a watch, decoded."""

    def __init__(self, status: int, lines: AsyncIterator[bytes]) -> None:
        self.status, self._lines = status, lines

    async def next(self) -> dict[str, Any]:
        return msgspec.json.decode(await anext(self._lines))

    async def seen(self) -> tuple[str, str]:
        """Return type and object name of the next event."""
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")

    async def rest(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) async for line in self._lines]


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(VirtualClock())


@pytest.fixture
def client(server: ApiServer) -> Client:
    return Client(server, InProcessTransport(server))

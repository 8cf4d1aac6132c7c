"""The client that fills the API server and watches what gets bound; it decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from bench.workloads import NAMESPACE, Object, node
from ksched.client.connecting import connect
from ksched.transport import JSON, Transport
from lab.control_plane import ControlPlane

T = TypeVar("T")

REQUEST_SECONDS = 120.0
CREATORS = 32
NODES = "/api/v1/nodes"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"


class Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class Item(msgspec.Struct):
    metadata: Metadata


class ItemList(msgspec.Struct):
    metadata: Metadata
    items: list[Item]


class WatchEvent(msgspec.Struct):
    type: str
    object: Item


_item_list = msgspec.json.Decoder(ItemList)
_watch_event = msgspec.json.Decoder(WatchEvent)
_object = msgspec.json.Decoder(Object)


async def share_out(work: Iterable[T], workers: int, do: Callable[[T], Awaitable[object]]) -> None:
    """Do every piece of work, at most ``workers`` at a time."""
    remaining = iter(work)

    async def worker() -> None:
        for piece in remaining:
            await do(piece)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(worker())


class LoadGenerator:
    """An administrator's connection to the control plane, with the client that ksched has."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @classmethod
    @asynccontextmanager
    async def connected(cls, plane: ControlPlane) -> AsyncIterator[LoadGenerator]:
        async with connect(str(plane.kubeconfig()), user_agent="bench") as transport:
            yield cls(transport)

    async def create_nodes(self, count: int, body: Callable[[int], Object] = node) -> None:
        async def make(index: int) -> None:
            await self.post(NODES, body(index))

        await share_out(range(count), CREATORS, make)

    async def create_pod(self, pod: Object) -> None:
        await self.post(PODS, pod)

    async def create_pods(self, pods: Iterable[Object]) -> None:
        await share_out(pods, CREATORS, self.create_pod)

    async def clear_pods(self, path: str = PODS) -> None:
        await self.clear(path)

    async def clear(self, collection: str) -> None:
        while (await self._list(f"{collection}?limit=1")).items:
            # In parts: the server gives up a request after a minute.
            await self._call("DELETE", f"{collection}?gracePeriodSeconds=0&limit=1000")

    async def node_names(self) -> list[str]:
        return await self.names(NODES)

    async def names(self, collection: str) -> list[str]:
        return [item.metadata.name for item in (await self._list(collection)).items]

    async def pods(self) -> list[Metadata]:
        return [item.metadata for item in (await self._list(PODS)).items]

    async def resource_version(self) -> str:
        return (await self._list(f"{PODS}?limit=1")).metadata.resource_version

    async def bound_pods(self, resource_version: str) -> AsyncIterator[str]:
        """Yield the names of pods as they are seen bound; a name may come more than once."""
        path = f"{PODS}?fieldSelector=spec.nodeName!=&"
        async for event, _ in self._watch(path, resource_version):
            yield event.object.metadata.name

    async def changes(self, collection: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield every change of a collection: what happened, and the object."""
        async for event, line in self._watch(f"{collection}?", version):
            yield event.type, _object.decode(line)["object"]

    async def _watch(
        self, path: str, resource_version: str
    ) -> AsyncIterator[tuple[WatchEvent, bytes]]:
        # The server may close a watch at any time; the next one goes on where it ended.
        while True:
            versioned = f"{path}watch=1&resourceVersion={resource_version}"
            async with self._transport.stream(versioned) as response:
                if response.status != 200:
                    raise RuntimeError(f"watch {path}: {response.status}")
                async for line in response.lines:
                    event = _watch_event.decode(line)
                    if event.type == "ERROR":
                        raise RuntimeError(f"watch {path}: {line.decode()}")
                    resource_version = event.object.metadata.resource_version
                    yield event, line

    async def read_watch(self, collection: str) -> None:
        """Receive all changes as a scheduler would, until cancelled; they are not decoded."""
        async with self._transport.stream(f"{collection}?watch=1") as response:
            async for _ in response.lines:
                pass

    async def post(self, path: str, body: Object) -> Object:
        """Create an object; returns it as it is stored."""
        return _object.decode(await self._call("POST", path, msgspec.json.encode(body)))

    async def get(self, path: str) -> Object:
        return _object.decode(await self._call("GET", path))

    async def put(self, path: str, body: Object) -> Object:
        """Replace an object; returns it as it is stored."""
        return _object.decode(await self._call("PUT", path, msgspec.json.encode(body)))

    async def delete(self, path: str) -> None:
        await self._call("DELETE", path)

    async def merge(self, path: str, body: Object) -> None:
        """Merge a patch into an object."""
        await self._call("PATCH", path, msgspec.json.encode(body), "application/merge-patch+json")

    async def text(self, path: str) -> str:
        return (await self._call("GET", path)).decode()

    async def _list(self, path: str) -> ItemList:
        return _item_list.decode(await self._call("GET", path))

    async def _call(
        self, method: str, path: str, body: bytes | None = None, content_type: str = JSON
    ) -> bytes:
        response = await self._transport.request(
            method, path, body, content_type=content_type, timeout=REQUEST_SECONDS
        )
        if response.status >= 300:
            text = response.body.decode(errors="replace")[:300]
            raise RuntimeError(f"{method} {path}: {response.status} {text}")
        return response.body

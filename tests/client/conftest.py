"""A scripted API server on virtual time for reflectors, and one on a real socket for transports."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from ksched.api.objects import Object, ObjectMeta
from ksched.api.resources import ApiResource
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.errors import Unavailable
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import SILENT, Response, StreamResponse

END = object()
WIDGETS = ApiResource("example.io", "v1", "widgets", "Widget")


class Widget(Object, frozen=True):
    metadata: ObjectMeta
    size: int = 0


decode = msgspec.json.Decoder(Widget).decode


def status(code: int, reason: str = "", message: str = "no") -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message}
    ).encode()


class FakeCluster:
    """Widgets with versions, pages, watches and a history that can be forgotten.

    ``answers`` are used up, one a request, before the server answers by itself: a ``Response``, an
    exception, or a list of lines to send on a watch before it ends.
    """

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.oldest = 0
        self.offers_watch_list = False
        self.refuses_watches = False
        self.answers: deque[Any] = deque()
        self.requests: list[tuple[float, str]] = []
        self.checks: list[tuple[float, str]] = []
        """Lists at an exact version; they are answered by the history, never by ``answers``."""
        self.streams: list[asyncio.Queue[Any]] = []
        self._pages: dict[str, tuple[int, list[dict[str, Any]]]] = {}

    # -- the other side -------------------------------------------------------------------------

    def put(self, name: str, *, uid: str = "", **fields: Any) -> None:
        """Create or change a widget."""
        self.version += 1
        old = self.objects.get(name)
        meta = {
            "name": name,
            "namespace": "default",
            "uid": uid or (old["metadata"]["uid"] if old else f"uid-{self.version}"),
            "resourceVersion": str(self.version),
        }
        obj = {"metadata": meta, **fields}
        self.objects[name] = obj
        self._tell("MODIFIED" if old else "ADDED", obj)

    def delete(self, name: str) -> None:
        self.version += 1
        obj = self.objects.pop(name)
        meta = {**obj["metadata"], "resourceVersion": str(self.version)}
        self._tell("DELETED", {**obj, "metadata": meta})

    def forget_history(self) -> None:
        """From now on a watch from an older version is answered with 410."""
        self.oldest = self.version
        self._pages.clear()

    def bookmark(self) -> None:
        self._push(event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))

    def end_streams(self, last: Any = END) -> None:
        """Finish every open watch: in good order, or by a line, or by an exception."""
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.put_nowait(last)
            stream.put_nowait(END)

    def _tell(self, kind: str, obj: dict[str, Any]) -> None:
        self.history.append((self.version, kind, obj))
        self._push(event(kind, obj))

    def _push(self, line: bytes) -> None:
        for stream in self.streams:
            stream.put_nowait(line)

    # -- Transport ------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = "",
        timeout: float = 30.0,
    ) -> Response:
        query = parse_qs(urlsplit(path).query)
        if "resourceVersionMatch" in query:
            self.checks.append((asyncio.get_running_loop().time(), path))
            await asyncio.sleep(0)
            return self._state_at(int(query["resourceVersion"][0]), query)
        self.requests.append((asyncio.get_running_loop().time(), path))
        await asyncio.sleep(0)
        if self.answers:
            answer = self.answers.popleft()
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, Response)
            return answer
        token = query.get("continue", [""])[0]
        if token and token not in self._pages:
            return Response(410, {}, status(410, "Expired"))
        version, items = self._pages.pop(token, (self.version, list(self.objects.values())))
        limit = int(query.get("limit", ["0"])[0]) or len(items)
        meta = {"resourceVersion": str(version)}
        if items[limit:]:
            meta["continue"] = f"t{len(self.requests)}"
            self._pages[meta["continue"]] = (version, items[limit:])
        page = {"metadata": meta, "items": items[:limit] or None}
        return Response(200, {}, json.dumps(page).encode())

    def _state_at(self, version: int, query: dict[str, list[str]]) -> Response:
        if version > self.version:
            return Response(504, {}, status(504, "Timeout", "Too large resource version"))
        if version < self.oldest:
            return Response(410, {}, status(410, "Expired"))
        objects: dict[str, Any] = {}
        for at, kind, obj in self.history:
            if at <= version:
                objects[obj["metadata"]["name"]] = None if kind == "DELETED" else obj
        *_, field = query.get("fieldSelector", [""])[0].split(",")
        name = field.removeprefix("metadata.name=") if "metadata.name=" in field else ""
        found = [obj for key, obj in objects.items() if obj and name in ("", key)]
        limit = int(query["limit"][0])
        page = {"metadata": {"resourceVersion": str(version)}, "items": found[:limit]}
        return Response(200, {}, json.dumps(page).encode())

    @asynccontextmanager
    async def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AsyncIterator[StreamResponse]:
        self.requests.append((asyncio.get_running_loop().time(), path))
        await asyncio.sleep(0)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        code = 200
        headers: Mapping[str, str] = {}
        if self.answers:
            answer = self.answers.popleft()
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, Response):
                code, headers = answer.status, answer.headers
                answer = [answer.body]
            for line in [*answer, END]:
                queue.put_nowait(line)
        else:
            code = self._open(parse_qs(urlsplit(path).query), queue)
        try:
            yield StreamResponse(code, headers, _lines(queue, idle_timeout))
        finally:
            if queue in self.streams:
                self.streams.remove(queue)

    def _open(self, query: dict[str, list[str]], queue: asyncio.Queue[Any]) -> int:
        if self.refuses_watches:
            queue.put_nowait(status(403, "Forbidden", "may not watch"))
            queue.put_nowait(END)
            return 403
        if "sendInitialEvents" in query:
            if not self.offers_watch_list:
                queue.put_nowait(status(422, "Invalid"))
                queue.put_nowait(END)
                return 422
            for obj in self.objects.values():
                queue.put_nowait(event("ADDED", obj))
            meta: dict[str, Any] = {"resourceVersion": str(self.version)}
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
            queue.put_nowait(event("BOOKMARK", {"metadata": meta}))
        else:
            since = int(query["resourceVersion"][0])
            if since < self.oldest:
                queue.put_nowait(event("ERROR", json.loads(status(410, "Expired"))))
                queue.put_nowait(END)
                return 200
            for version, kind, obj in self.history:
                if version > since:
                    queue.put_nowait(event(kind, obj))
        self.streams.append(queue)
        return 200

    async def aclose(self) -> None: ...


async def _lines(queue: asyncio.Queue[Any], idle_timeout: float | None) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                line = await queue.get()
        except TimeoutError:
            raise Unavailable(0, SILENT, "silent") from None
        if line is END:
            return
        if isinstance(line, Exception):
            raise line
        yield line


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class Witness:
    """A handler that checks the order of what it is told and keeps the result."""

    def __init__(self) -> None:
        self.view: dict[str, Any] = {}
        self.told: list[str] = []
        self.versions: list[str] = []
        self.is_synced = False

    def added(self, obj: Any) -> None:
        key = obj.metadata.key
        assert key not in self.view, f"{key} added twice"
        self.view[key] = obj
        self.versions.append(obj.metadata.resource_version)
        self.told.append(f"added {obj.metadata.name}")

    def modified(self, old: Any, new: Any) -> None:
        key = new.metadata.key
        assert self.view[key] is old, f"{key}: old is not what was told before"
        assert old.metadata.uid == new.metadata.uid
        assert old.metadata.resource_version != new.metadata.resource_version
        self.view[key] = new
        self.versions.append(new.metadata.resource_version)
        self.told.append(f"modified {new.metadata.name}")

    def deleted(self, obj: Any) -> None:
        assert self.view.pop(obj.metadata.key) is obj
        self.told.append(f"deleted {obj.metadata.name}")

    def synced(self) -> None:
        assert not self.is_synced
        self.is_synced = True
        self.told.append("synced")

    def take(self) -> list[str]:
        """What was told since the last call."""
        told, self.told = self.told, []
        return told


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture(scope="session")
def make_cluster() -> Callable[[], FakeCluster]:
    return FakeCluster


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture(scope="session")
def make_witness() -> Callable[[], Witness]:
    return Witness


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def reflect(cluster: FakeCluster, witness: Witness, clock: VirtualClock) -> Any:
    """Run a reflector around the test's body; the body starts when the first sync is done."""

    @asynccontextmanager
    async def run(*, wait: bool = True, **options: Any) -> AsyncIterator[Reflector[Widget]]:
        options.setdefault("use_watch_list", False)
        client = ApiClient(cluster, clock)
        reflector = Reflector(
            client, WIDGETS, decode, witness, clock, rng=random.Random(1), **options
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            if wait:
                await reflector.wait_synced()
            yield reflector
            task.cancel()
        assert {k: o.metadata.resource_version for k, o in reflector.objects.items()} == {
            k: o.metadata.resource_version for k, o in witness.view.items()
        }

    return run


# -- real sockets -------------------------------------------------------------------------------


@dataclass
class Asked:
    """A request as it arrived; ``connection`` counts from 1."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name.lower())


@dataclass
class RawServer:
    """A server whose every byte is the test's. ``handle`` returns False to close."""

    handle: Callable[[Asked, asyncio.StreamWriter], Any]
    port: int = 0
    connections: int = 0
    asked: list[Asked] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    listener: asyncio.Server | None = None

    def stop(self) -> None:
        """Stop listening and cut every connection."""
        assert self.listener is not None
        self.listener.close()
        for writer in self.writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        try:
            while (asked := await _read_request(reader, number)) is not None:
                self.asked.append(asked)
                if await self.handle(asked, writer) is False:
                    break
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Cancelled only by the end of the test, which asyncio's streams would log as an error.
            pass
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = lines[0].split(" ")
    headers = []
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        headers.append((name.lower(), value))
    length = int(dict(headers).get("content-length", "0"))
    return Asked(method, path, headers, await reader.readexactly(length), connection)


def answer(body: bytes = b"{}", code: int = 200, *headers: str) -> bytes:
    """A complete HTTP answer with a length."""
    lines = [f"HTTP/1.1 {code} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture(scope="session")
def wire() -> Any:
    """The bytes of answers, for tests that play a server."""

    class Wire:
        answer = staticmethod(answer)
        chunk = staticmethod(chunk)
        status = staticmethod(status)
        stream_head = STREAM_HEAD

    return Wire


@pytest.fixture
async def raw_server() -> AsyncIterator[Any]:
    """Start servers on loopback: ``server = await raw_server(handle, ssl=context)``."""
    servers: list[RawServer] = []

    async def start(handle: Any, ssl: ssl.SSLContext | None = None, port: int = 0) -> RawServer:
        server = RawServer(handle)
        server.listener = await asyncio.start_server(
            server.serve, "127.0.0.1", port, ssl=ssl, limit=1 << 24
        )
        server.port = server.listener.sockets[0].getsockname()[1]
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()
    # One more turn for the handlers to notice.
    await asyncio.sleep(0.01)

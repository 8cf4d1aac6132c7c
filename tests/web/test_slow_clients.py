"""A thousand clients that send slowly, read nothing or leave: probes are answered meanwhile."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from ksched.clock import LoopClock
from ksched.configuration.front_proxy import FrontProxy
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.web import listener
from ksched.web.access import Access
from ksched.web.access_reviews import AccessReviews
from ksched.web.listener import raise_descriptor_limit
from ksched.web.server_context import Authorities
from ksched.web.web_server import WebServer

pytestmark = pytest.mark.real_time

LOOPBACK = "127.0.0.1"
CLIENTS = 1000
PROBES = 20
PAUSE_SECONDS = 0.5
RETURN_SECONDS = 5.0
"""After which a client that was turned away connects again."""
PROBE_SECONDS = 10.0
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"

Client = Callable[[int], Awaitable[None]]


class Site:
    def __init__(self, server: WebServer, port: int) -> None:
        self.server, self.port = server, port
        self.most = 0

    @property
    def open(self) -> int:
        assert self.server._listener is not None
        return len(self.server._listener)

    async def probe(self) -> bytes:
        """Ask for /livez as a kubelet does, on a new connection."""
        async with asyncio.timeout(PROBE_SECONDS):
            async with connected(self.port) as (reader, writer):
                writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
                answer = await reader.read()
        self.most = max(self.most, self.open)
        return answer


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    raise_descriptor_limit()
    async with cluster(nodes=1) as c:
        # Without credentials nothing is reviewed.
        access = Access(
            cast(AccessReviews, None),
            LoopClock(),
            always_allow_paths=["/livez"],
            authorities=Authorities,
            front_proxy=FrontProxy,
        )
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=access)
        async with server.listening(LOOPBACK, 0) as url:
            yield Site(server, int(url.rpartition(":")[2]))


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def silent(port: int) -> None:
    async with connected(port) as (reader, _):
        await reader.read()


async def dripping(port: int) -> None:
    """One byte of a request after the other."""
    async with connected(port) as (_, writer):
        for byte in REQUEST * 100:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(PAUSE_SECONDS)


async def not_reading(port: int) -> None:
    """Request after request, and no answer is read."""
    with socket.socket() as wire:
        wire.setblocking(False)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(wire, (LOOPBACK, port))
        while True:
            await loop.sock_sendall(wire, REQUEST + b"\r\n")
            await asyncio.sleep(PAUSE_SECONDS)


async def leaving(port: int) -> None:
    """Closes in the middle of a request."""
    while True:
        async with connected(port) as (_, writer):
            writer.write(REQUEST)
            await writer.drain()
        await asyncio.sleep(RETURN_SECONDS)


async def for_ever(client: Client, port: int) -> None:
    """Connect again whenever the server has closed the connection."""
    while True:
        try:
            await client(port)
        except (OSError, RuntimeError):  # uvloop's error for a closed transport is the latter
            pass
        await asyncio.sleep(RETURN_SECONDS)


@pytest.mark.parametrize("client", [silent, dripping, not_reading, leaving])
async def test_probes_are_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "HEADER_SECONDS", 1.0)
    async with serving() as site, asyncio.TaskGroup() as tasks:
        crowd = [tasks.create_task(for_ever(client, site.port)) for _ in range(CLIENTS)]
        await asyncio.sleep(0.5)
        answers = [await site.probe() for _ in range(PROBES)]
        for task in crowd:
            task.cancel()
    assert all(re.match(rb"HTTP/1\.[01] 200 OK\r\n", answer) for answer in answers)
    assert site.most <= listener.connection_limit() <= 128
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_crowd_that_is_gone_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(listener, "_SWEEP_SECONDS", 0.05)
    async with serving() as site:
        wires = [await asyncio.open_connection(LOOPBACK, site.port) for _ in range(100)]
        async with asyncio.timeout(20):
            while site.open:  # noqa: ASYNC110  what happens on a socket sets no event
                await asyncio.sleep(0.01)
        for _, writer in wires:
            writer.transport.abort()

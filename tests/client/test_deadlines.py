"""Deadlines of small requests: one timer for all of them."""

from __future__ import annotations

import asyncio

import pytest

from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.clock import LoopClock
from ksched.errors import Unavailable

pytestmark = pytest.mark.real_time


@pytest.fixture
async def connect():
    made = []

    def make(port):
        made.append(HttpTransport(ClientConfig(f"http://127.0.0.1:{port}"), LoopClock()))
        return made[-1]

    yield make
    for transport in made:
        await transport.aclose()


async def test_further_requests_set_no_timers(connect, raw_server, wire, monkeypatch):
    async def handle(asked, writer):
        writer.write(wire.answer())

    server = await raw_server(handle)
    transport = connect(server.port)
    await transport.request("POST", "/x", b"{}", timeout=20.0)
    timers, loop = [], asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_at", lambda *args, **options: timers.append(args))
    for _ in range(20):
        await transport.request("POST", "/x", b"{}", timeout=30.0)
    assert timers == []


async def test_every_request_ends_at_its_own_deadline(connect, raw_server):
    async def handle(asked, writer):
        await asyncio.sleep(60.0)

    server = await raw_server(handle)
    transport = connect(server.port)
    ended = []

    async def ask(timeout):
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(Unavailable, match="timed out"):
            await transport.request("POST", "/x", b"{}", timeout=timeout)
        ended.append(timeout)
        assert timeout - 0.01 <= loop.time() - began < timeout + 5.0

    async with asyncio.TaskGroup() as group:
        for timeout in (0.4, 0.2, 0.6):
            group.create_task(ask(timeout))
    assert ended == [0.2, 0.4, 0.6]

"""Connections of the pool: which answers are complete, and what a cancelled request leaves."""

from __future__ import annotations

import asyncio
import gc
import gzip
import math

import pytest

from ksched.client.connection import ConnectionPool
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.route import Route
from ksched.clock import LoopClock
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT

pytestmark = pytest.mark.real_time


@pytest.fixture
async def connect():
    made = []

    def make(port, **options):
        config = ClientConfig(f"http://127.0.0.1:{port}")
        made.append(HttpTransport(config, LoopClock(), **options))
        return made[-1]

    yield make
    for transport in made:
        await transport.aclose()


@pytest.mark.parametrize("coding", ["chunked", "Chunked", "identity, CHUNKED"])
async def test_cut_chunks_are_no_answer(connect, raw_server, wire, coding):
    async def handle(asked, writer):
        head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n"
        writer.write(head.encode() + wire.chunk(b"{}\n"))
        return False

    server = await raw_server(handle)
    transport = connect(server.port)
    for method in ("GET", "POST"):
        with pytest.raises(Unavailable, match="connection lost"):
            await transport.request(method, "/x", b"", timeout=20)
    async with transport.stream("/watch", idle_timeout=20) as stream:
        assert await anext(stream.lines) == b"{}\n"
        with pytest.raises(Unavailable, match="connection lost"):
            await anext(stream.lines)


@pytest.mark.parametrize(
    "more", ["HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\ntwo\n", "garbage\r\n"]
)
async def test_what_follows_an_answer_is_not_part_of_it(connect, raw_server, wire, more):
    async def handle(asked, writer):
        writer.write(wire.answer(b"one\n") + more.encode())

    server = await raw_server(handle)
    transport = connect(server.port)
    for method in ("GET", "POST"):
        answer = await transport.request(method, "/x", b"", timeout=20)
        assert (answer.status, answer.body) == (200, b"one\n")
    async with transport.stream("/watch", idle_timeout=20) as stream:
        assert [line async for line in stream.lines] == [b"one\n"]
    assert server.connections == 3


async def test_data_after_a_packed_answer_is_not_collected(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n")
        writer.write(b"Content-Encoding: gzip\r\n\r\n" + wire.chunk(gzip.compress(b"{}")))
        while True:
            writer.write(wire.chunk(b"x" * 999))
            await writer.drain()

    server = await raw_server(handle)
    with pytest.raises(Unavailable, match="data after the compressed answer"):
        await connect(server.port).request("GET", "/x", timeout=20)


# -- cancellation -------------------------------------------------------------------------------


class Way:
    """Opens connections at once, or when ``is_open`` is set; they end nowhere."""

    name = "cluster.invalid:6443"

    def __init__(self):
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.ends = []

    async def open(self, loop, protocol, ssl_context):
        end = End(protocol())
        self.ends.append(end)
        end.connection.connection_made(end)
        await self.is_open.wait()
        return end.connection


class End:
    """A transport and its socket."""

    def __init__(self, connection):
        self.connection = connection
        self.is_aborted = False

    def get_extra_info(self, name):
        return self

    def setsockopt(self, *option): ...

    def write(self, data): ...

    def is_closing(self):
        return self.is_aborted

    def abort(self):
        self.is_aborted = True


@pytest.fixture
def way():
    return Way()


@pytest.fixture
def pool(way):
    return ConnectionPool(way, limit=1, idle_seconds=math.inf)


@pytest.fixture
def ask(pool):
    async def ask(after=None):
        if after is not None:
            await after.wait()
        deadline = asyncio.get_running_loop().time() + 5
        return await pool.exchange(
            b"", deadline=deadline, ssl_context=None, repeatable=False, limit=100
        )

    return lambda **options: asyncio.create_task(ask(**options))


@pytest.mark.parametrize("order", ["cancelled, answered", "answered, cancelled"])
async def test_request_cancelled_as_its_answer_comes_harms_no_other(way, ask, wire, order):
    now = asyncio.Event()
    first, second = ask(), ask(after=now)
    await asyncio.sleep(0.01)
    # The second one runs, and takes the connection, before the first knows.
    now.set()
    (end,) = way.ends
    for what in order.split(", "):
        if what == "answered":
            end.connection.data_received(wire.answer(b"1"))
        else:
            first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not end.is_aborted
    end.connection.data_received(wire.answer(b"2"))
    assert (await second).body == b"2"


async def test_cancelled_opening_leaves_its_place_to_the_next(way, ask, wire):
    way.is_open.clear()
    first, second = ask(), ask()
    await asyncio.sleep(0.01)
    first.cancel()
    way.is_open.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.sleep(0.01)
    way.ends[-1].connection.data_received(wire.answer(b"2"))
    assert (await second).body == b"2"


async def test_connection_that_opens_after_the_pool_is_closed_is_not_used(way, pool, ask):
    way.is_open.clear()
    first = ask()
    await asyncio.sleep(0.01)
    pool.close()
    way.is_open.set()
    with pytest.raises(Unavailable) as caught:
        await first
    assert caught.value.reason == NOT_SENT
    assert way.ends[0].is_aborted


async def test_error_of_a_proxy_that_nobody_waits_for_is_not_logged():
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    tunnel = Route("https://cluster.invalid", proxy="http://proxy.invalid")._tunnel()
    tunnel.connection_lost(None)
    del tunnel
    gc.collect()
    assert problems == []

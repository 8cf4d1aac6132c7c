"""Watches that are read slowly, break, or come in an encoding nobody asked for."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.clock import LoopClock
from ksched.errors import Unavailable
from ksched.transport import SILENT

pytestmark = pytest.mark.real_time

LINE = b"x" * 9_999 + b"\n"


@pytest.fixture
async def connect():
    made = []

    def make(port):
        made.append(HttpTransport(ClientConfig(f"http://127.0.0.1:{port}"), LoopClock()))
        return made[-1]

    yield make
    for transport in made:
        await transport.aclose()


async def read(stream):
    """The lines of a watch, and the error that ends it."""
    lines = []
    try:
        async for line in stream.lines:
            lines.append(line)
    except Unavailable as error:
        return lines, error
    raise AssertionError("the watch has ended in order")


async def test_watch_that_is_read_slowly_holds_back_the_server(connect, raw_server, wire):
    sent = 0

    async def handle(asked, writer):
        nonlocal sent
        writer.write(wire.stream_head)
        for _ in range(10_000):
            writer.write(wire.chunk(LINE))
            await writer.drain()
            sent += len(LINE)
        writer.write(b"0\r\n\r\n")

    server = await raw_server(handle)
    async with connect(server.port).stream("/watch", idle_timeout=0.2) as stream:
        assert await anext(stream.lines) == LINE
        # Longer than the server may be silent: it is not the server that is slow.
        await asyncio.sleep(0.5)
        held = sent
        assert held < 50 << 20
        await asyncio.sleep(0.1)
        assert sent == held
        rest = [line async for line in stream.lines]
    assert len(rest) == 9_999
    assert set(rest) == {LINE}


async def test_server_that_goes_silent_after_a_pause_is_noticed(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head)
        writer.write(wire.chunk(LINE) * 1_000)
        await writer.drain()
        await asyncio.sleep(30)

    server = await raw_server(handle)
    async with connect(server.port).stream("/watch", idle_timeout=0.2) as stream:
        await anext(stream.lines)
        await asyncio.sleep(0.3)
        lines, error = await read(stream)
    assert len(lines) == 999
    assert error.reason == SILENT


async def test_what_came_before_a_break_is_delivered(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head + wire.chunk(b"one\n") + wire.chunk(b"two\n") + b"ff\r\nthr")
        return False

    server = await raw_server(handle)
    async with connect(server.port).stream("/watch?x=y") as stream:
        await asyncio.sleep(0.1)
        lines, error = await read(stream)
    assert lines == [b"one\n", b"two\n"]
    assert error.reason == "AnswerLost"
    assert error.message.startswith("WATCH /watch: connection lost")


async def test_closing_the_transport_ends_a_watch(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head + wire.chunk(b"one\n"))
        await writer.drain()
        await asyncio.sleep(30)

    server = await raw_server(handle)
    transport = connect(server.port)
    async with transport.stream("/watch") as stream:
        await anext(stream.lines)
        await transport.aclose()
        with pytest.raises(Unavailable, match="transport closed"):
            await anext(stream.lines)


async def test_ended_watch_leaves_its_connection_to_the_next(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head + wire.chunk(b"one\n") + b"0\r\n\r\n")

    server = await raw_server(handle)
    transport = connect(server.port)
    for _ in range(3):
        async with transport.stream("/watch", idle_timeout=20) as stream:
            assert [line async for line in stream.lines] == [b"one\n"]
    assert server.connections == 1


async def test_connection_that_was_paused_at_the_end_is_used_again(connect, raw_server, wire):
    long = b"x" * (2 << 20) + b"\n"

    async def handle(asked, writer):
        writer.write(wire.stream_head + wire.chunk(long) + b"0\r\n\r\n")

    server = await raw_server(handle)
    transport = connect(server.port)
    for _ in range(2):
        async with transport.stream("/watch", idle_timeout=20) as stream:
            await asyncio.sleep(0.2)
            assert [line async for line in stream.lines] == [long]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/pods", id="list"),
        pytest.param("POST", "/x", id="write"),
    ],
)
@pytest.mark.parametrize(
    ("encoding", "body", "problem"),
    [
        pytest.param("br", b"whatever", "content encoding 'br'", id="unknown"),
        pytest.param("gzip", b"not packed", "incorrect header check", id="not packed"),
        pytest.param("gzip", gzip.compress(b"x" * 99)[:-9], "compressed answer is cut", id="cut"),
    ],
)
async def test_encoding_that_cannot_be_read_is_unavailable(
    connect, raw_server, wire, method, path, encoding, body, problem
):
    async def handle(asked, writer):
        is_well = asked.path.endswith("/well")
        head = "X-Thing: y" if is_well else f"Content-Encoding: {encoding}"
        writer.write(wire.answer(b"{}" if is_well else body, 200, head))

    server = await raw_server(handle)
    transport = connect(server.port)
    with pytest.raises(Unavailable, match=problem):
        await transport.request(method, path, b"", timeout=20)
    assert (await transport.request(method, f"{path}/well", b"")).body == b"{}"


async def test_packed_watch_is_unavailable(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer(gzip.compress(b"one\n"), 200, "Content-Encoding: gzip"))

    server = await raw_server(handle)
    with pytest.raises(Unavailable, match="WATCH /watch: not an HTTP answer: content encoding"):
        async with connect(server.port).stream("/watch"):
            pass


async def test_packed_answer_without_a_body_is_an_answer(connect, raw_server):
    async def handle(asked, writer):
        writer.write(b"HTTP/1.1 204 No Content\r\nContent-Encoding: gzip\r\n\r\n")

    server = await raw_server(handle)
    assert (await connect(server.port).request("GET", "/x", timeout=20)).status == 204

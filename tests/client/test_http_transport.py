"""Requests and watches over real sockets to servers that misbehave."""

from __future__ import annotations

import asyncio
import gzip
import socket

import pytest

from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.clock import LoopClock
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, NOT_SENT, SILENT

pytestmark = pytest.mark.real_time


@pytest.fixture
async def connect():
    """Make transports that are closed at the end."""
    made = []

    def make(port, *, config=None, **options):
        config = config or ClientConfig(f"http://127.0.0.1:{port}")
        made.append(HttpTransport(config, LoopClock(), **options))
        return made[-1]

    yield make
    for transport in made:
        await transport.aclose()


@pytest.fixture
def replying(raw_server):
    """A server that sends the same bytes to everybody; ``close`` ends the connection after."""

    async def start(data, *, close=False):
        async def handle(asked, writer):
            writer.write(data)
            return not close

        return await raw_server(handle)

    return start


# -- small requests -----------------------------------------------------------------------------


async def test_request_carries_everything_and_the_answer_comes_back(connect, replying, wire):
    server = await replying(wire.answer(b'{"a":1}', 201, "X-Thing: yes"))
    transport = connect(server.port, user_agent="tester")
    answer = await transport.request("PATCH", "/api/v1/x?y=z", b"{}", content_type=MERGE_PATCH)
    assert (answer.status, answer.body, answer.headers["x-thing"]) == (201, b'{"a":1}', "yes")
    [asked] = server.asked
    assert (asked.method, asked.path, asked.body) == ("PATCH", "/api/v1/x?y=z", b"{}")
    assert asked.header("content-type") == MERGE_PATCH
    assert asked.header("user-agent") == "tester"
    assert asked.header("host") == f"127.0.0.1:{server.port}"


async def test_path_of_the_server_url_is_kept(connect, replying, wire):
    server = await replying(wire.answer())
    config = ClientConfig(f"http://127.0.0.1:{server.port}/k8s/c-1")
    transport = connect(0, config=config)
    await transport.request("POST", "/api/v1/x", b"")
    await transport.request("GET", "/api/v1/y?limit=1")
    assert [asked.path for asked in server.asked] == [
        "/k8s/c-1/api/v1/x",
        "/k8s/c-1/api/v1/y?limit=1",
    ]


async def test_connection_is_kept_and_used_again(connect, replying, wire):
    server = await replying(wire.answer())
    transport = connect(server.port)
    for _ in range(5):
        await transport.request("POST", "/x", b"{}")
    await transport.request("GET", "/api/v1/namespaces/n/pods/p")
    assert server.connections == 1
    await transport.request("GET", "/api/v1/namespaces/n/pods")
    assert server.connections == 2, "lists have their own"


async def test_no_more_connections_than_allowed_and_nobody_is_forgotten(connect, raw_server, wire):
    async def handle(asked, writer):
        await asyncio.sleep(0.005)
        writer.write(wire.answer(asked.body))

    server = await raw_server(handle)
    transport = connect(server.port, max_connections=3)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(transport.request("POST", "/x", str(number).encode()))
            for number in range(20)
        ]
    assert [int(task.result().body) for task in tasks] == list(range(20))
    assert server.connections == 3


@pytest.mark.parametrize(
    ("data", "close"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            False,
            id="in chunks",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", True, id="until the connection closes"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nhello", True, id="HTTP/1.0"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
            True,
            id="told to close",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            False,
            id="after 100 Continue",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n",
            False,
            id="followed by an answer to nothing",
        ),
    ],
)
async def test_every_framing_of_an_answer_is_understood(connect, replying, data, close):
    server = await replying(data, close=close)
    transport = connect(server.port)
    for _ in range(2):
        answer = await transport.request("POST", "/x", b"", timeout=20)
        assert (answer.status, answer.body) == (200, b"hello")


async def test_answer_without_a_body_is_an_answer(connect, replying):
    server = await replying(b"HTTP/1.1 204 No Content\r\n\r\n")
    transport = connect(server.port)
    for _ in range(2):
        assert (await transport.request("DELETE", "/x", timeout=20)).status == 204
    assert server.connections == 1


async def test_answer_that_arrives_byte_by_byte_is_understood(connect, raw_server, wire):
    async def handle(asked, writer):
        for byte in wire.answer(b"hello"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    server = await raw_server(handle)
    assert (await connect(server.port).request("POST", "/x", b"")).body == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 201 Cre", id="half a head"),
        pytest.param(b"HTTP/1.1 201 OK\r\nContent-Length: 9\r\n\r\nhal", id="half a body"),
        pytest.param(
            b"HTTP/1.1 201 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal", id="half a chunk"
        ),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another protocol"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_lost_answer_is_unavailable_and_may_have_happened(connect, replying, data, method):
    server = await replying(data, close=True)
    with pytest.raises(Unavailable) as caught:
        await connect(server.port).request(method, "/api/v1/pods?limit=5", b"{}", timeout=20)
    assert caught.value.reason != NOT_SENT
    assert caught.value.code == 0
    assert caught.value.message.startswith(f"{method} /api/v1/pods: ")


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_refused_connection_was_certainly_not_sent(connect, raw_server, method):
    server = await raw_server(None)
    port = server.port
    transport = connect(port + 1 if port < 65000 else port - 1)
    with pytest.raises(Unavailable) as caught:
        await transport.request(method, "/x", b"", timeout=20)
    assert caught.value.reason == NOT_SENT


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_server_that_never_answers_costs_the_timeout_and_the_connection(
    connect, raw_server, wire, method
):
    async def handle(asked, writer):
        if asked.connection == 1:
            await asyncio.sleep(30)
        writer.write(wire.answer())

    server = await raw_server(handle)
    transport = connect(server.port)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Unavailable, match=r"imed out|timeout") as caught:
        await transport.request(method, "/x", b"", timeout=0.1)
    assert caught.value.reason != NOT_SENT
    assert 0.09 < loop.time() - began < 20
    assert (await transport.request(method, "/x", b"")).status == 200
    assert server.connections == 2


async def test_waiting_for_a_connection_is_bounded_too(connect, raw_server):
    async def handle(asked, writer):
        await asyncio.sleep(30)

    server = await raw_server(handle)
    transport = connect(server.port, max_connections=1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(transport.request("POST", "/x", b"", timeout=0.3))
        await asyncio.sleep(0.05)
        with pytest.raises(Unavailable) as caught:
            await transport.request("POST", "/x", b"", timeout=0.05)
        assert caught.value.reason == NOT_SENT
        first.cancel()


async def test_cancelled_request_does_not_leave_its_answer_to_the_next(connect, raw_server, wire):
    async def handle(asked, writer):
        await asyncio.sleep(0.05 if asked.body == b"slow" else 0)
        writer.write(wire.answer(asked.body))

    server = await raw_server(handle)
    transport = connect(server.port, max_connections=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await transport.request("POST", "/x", b"slow")
    assert (await transport.request("POST", "/x", b"fast")).body == b"fast"
    assert (await transport.request("POST", "/x", b"again")).body == b"again"


async def test_cancelled_request_frees_its_place_even_if_it_is_never_answered(
    connect, raw_server, wire
):
    async def handle(asked, writer):
        if asked.body == b"silence":
            await asyncio.sleep(60)
        writer.write(wire.answer())

    server = await raw_server(handle)
    transport = connect(server.port, max_connections=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await transport.request("POST", "/x", b"silence")
    assert (await transport.request("POST", "/x", b"")).status == 200


async def test_connection_that_spoke_unasked_is_not_used_again(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer(str(asked.connection).encode()))
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")

    server = await raw_server(handle)
    transport = connect(server.port)
    assert (await transport.request("POST", "/x", b"")).body == b"1"
    await asyncio.sleep(0.1)
    assert (await transport.request("POST", "/x", b"")).body == b"2"


@pytest.mark.parametrize(
    ("method", "survives"),
    [("PUT", True), ("DELETE", True), ("POST", False), ("PATCH", False)],
)
async def test_kept_connection_that_dies_is_replaced_only_if_harmless(
    connect, raw_server, wire, method, survives
):
    async def handle(asked, writer):
        if asked.connection == 1 and asked.path == "/second":
            return False
        writer.write(wire.answer())
        return True

    server = await raw_server(handle)
    transport = connect(server.port)
    await transport.request("POST", "/first", b"")
    if survives:
        assert (await transport.request(method, "/second", b"")).status == 200
        assert [asked.connection for asked in server.asked] == [1, 1, 2]
    else:
        with pytest.raises(Unavailable) as caught:
            await transport.request(method, "/second", b"")
        assert caught.value.reason == "AnswerLost"
        assert len(server.asked) == 2


async def test_connection_the_server_closed_while_idle_is_not_used(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer())

    server = await raw_server(handle)
    transport = connect(server.port)
    await transport.request("POST", "/x", b"")
    server.writers[0].close()
    await asyncio.sleep(0.02)
    assert (await transport.request("POST", "/x", b"")).status == 200
    assert server.connections == 2


async def test_connection_idle_for_too_long_is_not_trusted(connect, replying, wire):
    server = await replying(wire.answer())
    transport = connect(server.port, idle_seconds=0.0)
    for _ in range(3):
        await transport.request("POST", "/x", b"")
    assert server.connections == 3


@pytest.mark.parametrize("path", ["/x HTTP/1.1\r\nEvil: yes", "/a b", "/ü"])
async def test_path_that_would_smuggle_a_request_is_refused(connect, replying, wire, path):
    server = await replying(wire.answer())
    with pytest.raises(ValueError, match="not a path"):
        await connect(server.port).request("POST", path, b"")
    assert server.asked == []


async def test_redirect_is_an_answer_and_is_not_followed(connect, replying, wire):
    server = await replying(wire.answer(b"", 302, "Location: http://127.0.0.1:1/"))
    transport = connect(server.port)
    assert (await transport.request("GET", "/x")).status == 302
    assert (await transport.request("POST", "/x", b"")).status == 302


# -- lists --------------------------------------------------------------------------------------


async def test_compressed_list_is_unpacked(connect, replying, wire):
    body = b'{"items":[' + b",".join([b'{"metadata":{}}'] * 20_000) + b"]}"
    packed = gzip.compress(body)
    server = await replying(wire.answer(packed, 200, "Content-Encoding: gzip"))
    answer = await connect(server.port).request("GET", "/x")
    assert answer.body == body
    assert "gzip" in server.asked[0].header("accept-encoding")


async def test_compressed_list_that_is_cut_is_unavailable(connect, replying, wire):
    packed = gzip.compress(b"x" * 100_000)
    cut = wire.answer(packed, 200, "Content-Encoding: gzip")[:-30]
    server = await replying(cut, close=True)
    with pytest.raises(Unavailable):
        await connect(server.port).request("GET", "/x", timeout=20)


async def test_cookies_are_not_kept(connect, replying, wire):
    server = await replying(wire.answer(b"", 200, "Set-Cookie: session=1"))
    transport = connect(server.port)
    for method in ("GET", "GET", "POST", "POST"):
        await transport.request(method, "/x", b"")
    assert all(not asked.header("cookie") for asked in server.asked)


# -- watches ------------------------------------------------------------------------------------


async def read(transport, path="/watch", **options):
    lines = []
    async with transport.stream(path, **options) as stream:
        async for line in stream.lines:
            lines.append(line)
    return lines


async def test_watch_gives_lines_however_they_are_cut(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head)
        for piece in (b'{"a"', b":1}\n{", b'"b":2}\n', b'{"c":3}\n{"d":4}\n'):
            writer.write(wire.chunk(piece))
            await writer.drain()
            await asyncio.sleep(0.005)
        writer.write(b"0\r\n\r\n")

    server = await raw_server(handle)
    lines = await read(connect(server.port))
    assert lines == [b'{"a":1}\n', b'{"b":2}\n', b'{"c":3}\n', b'{"d":4}\n']
    assert server.asked[0].header("accept-encoding") == "identity"


async def test_line_of_many_megabytes_is_read(connect, raw_server, wire):
    long = b"x" * (6 << 20) + b"\n"

    async def handle(asked, writer):
        writer.write(wire.stream_head)
        writer.write(wire.chunk(b"before\n") + wire.chunk(long) + wire.chunk(b"after\n"))
        writer.write(b"0\r\n\r\n")

    server = await raw_server(handle)
    assert await read(connect(server.port)) == [b"before\n", long, b"after\n"]


async def test_silent_watch_is_given_up_after_the_idle_timeout(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head)
        for _ in range(4):
            writer.write(wire.chunk(b"alive\n"))
            await writer.drain()
            await asyncio.sleep(0.06)
        await asyncio.sleep(30)

    server = await raw_server(handle)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Unavailable, match="WATCH /watch: ") as caught:
        await read(connect(server.port), idle_timeout=0.15)
    assert caught.value.reason == SILENT
    assert 0.3 < loop.time() - began < 20


async def test_peer_that_is_gone_without_a_word_is_asked_for(connect, raw_server, wire):
    """The kernel does it: what a half-open connection looks like cannot be made on loopback."""

    async def handle(asked, writer):
        writer.write(wire.stream_head)
        await asyncio.sleep(30)

    server = await raw_server(handle)
    transport = connect(server.port)
    async with transport.stream("/watch", idle_timeout=5):
        (connection,) = transport._long._open
        own = connection._transport.get_extra_info("socket")
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        found = [own.getsockopt(socket.IPPROTO_TCP, getattr(socket, one)) for one in options]
        assert found == [30, 5, 3, 45_000]


async def test_watch_that_never_gets_a_head_is_given_up(connect, raw_server):
    async def handle(asked, writer):
        await asyncio.sleep(30)

    server = await raw_server(handle)
    with pytest.raises(Unavailable):
        await read(connect(server.port), idle_timeout=0.1)


async def test_watch_that_breaks_in_a_chunk_is_unavailable(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.stream_head + wire.chunk(b"whole\n") + b"ff\r\nhalf")
        return False

    server = await raw_server(handle)
    with pytest.raises(Unavailable, match="WATCH /watch: "):
        await read(connect(server.port))


async def test_refused_watch_gives_the_error_body(connect, replying, wire):
    server = await replying(wire.answer(b"not\nnow", 429, "Retry-After: 3"))
    async with connect(server.port).stream("/watch") as stream:
        assert stream.status == 429
        assert stream.headers["retry-after"] == "3"
        assert [line async for line in stream.lines] == [b"not\n", b"now"]


async def test_leaving_a_watch_closes_its_connection(connect, raw_server, wire):
    closed = asyncio.Event()

    async def handle(asked, writer):
        writer.write(wire.stream_head + wire.chunk(b"one\n"))
        await writer.drain()
        try:
            while True:
                await asyncio.sleep(0.01)
                writer.write(wire.chunk(b"more\n"))
                await writer.drain()
        except ConnectionError:
            closed.set()

    server = await raw_server(handle)
    async with connect(server.port).stream("/watch") as stream:
        async for _ in stream.lines:
            break
    async with asyncio.timeout(2):
        await closed.wait()


async def test_closing_the_transport_ends_requests_under_way(connect, raw_server):
    async def handle(asked, writer):
        await asyncio.sleep(30)

    server = await raw_server(handle)
    transport = connect(server.port)
    async with asyncio.TaskGroup() as group:

        async def ask():
            with pytest.raises(Unavailable):
                await transport.request("POST", "/x", b"")

        group.create_task(ask())
        await asyncio.sleep(0.05)
        await transport.aclose()
    with pytest.raises(Unavailable):
        await transport.request("POST", "/x", b"")

"""Servers that answer without end: what they may cost is bounded, and the next request works.

Covers ``ksched.client.connection``, as other tests of transports do.
"""

from __future__ import annotations

import gzip
import stat
import tracemalloc
from contextlib import asynccontextmanager

import pytest

from ksched.client import http_transport
from ksched.client.exec_credentials import ExecCredentials, ExecSpec
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.clock import LoopClock
from ksched.errors import Unavailable

pytestmark = pytest.mark.real_time

LIMIT = 1 << 20
ENOUGH = 64 << 20
"""What a test's server sends at most: far beyond every limit."""
PIECE = b"x" * (64 << 10)


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch):
    monkeypatch.setattr(http_transport, "MAX_ANSWER", LIMIT)
    monkeypatch.setattr(http_transport, "MAX_LIST", LIMIT)


def forever(piece):
    """Send the head of an answer and then pieces until the client has had enough."""

    async def handle(asked, writer, head=b""):
        writer.write(head)
        for number in range(ENOUGH // 1000):
            writer.write(piece(number))
            if number % 16 == 0:
                await writer.drain()
        return False

    return handle


def chunked(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def with_head(head, piece):
    go_on = forever(piece)

    async def handle(asked, writer):
        return await go_on(asked, writer, head)

    return handle


BOMB = gzip.compress(bytes(ENOUGH))
OK = b"HTTP/1.1 200 OK\r\n"
HOSTILE = [
    pytest.param(
        with_head(OK, lambda n: b"X-%08d: %s\r\n" % (n, b"v" * 1000)), id="distinct headers"
    ),
    pytest.param(with_head(OK, lambda n: b"x%d:y\r\n" % n), id="many small headers"),
    pytest.param(with_head(OK + b"X-Long: ", lambda n: PIECE), id="one long header"),
    pytest.param(with_head(b"HTTP/1.1 200 ", lambda n: PIECE), id="long reason"),
    pytest.param(with_head(OK + b"\r\n", lambda n: PIECE), id="body without a length"),
    pytest.param(
        with_head(OK + b"Content-Length: 1073741824\r\n\r\n", lambda n: PIECE), id="long body"
    ),
    pytest.param(
        with_head(OK + b"Transfer-Encoding: chunked\r\n\r\n", lambda n: chunked(PIECE)),
        id="chunks",
    ),
    pytest.param(
        with_head(OK + b"Transfer-Encoding: chunked\r\n\r\n", lambda n: chunked(b"ab" * 250) * 100),
        id="small chunks",
    ),
    pytest.param(
        with_head(
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", lambda n: b"t%d: y\r\n" % n
        ),
        id="trailers",
    ),
    pytest.param(
        with_head(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", lambda n: PIECE),
        id="one long trailer",
    ),
]


def routed(hostile, wire):
    """Be hostile at first, behave at /well."""

    async def handle(asked, writer):
        if asked.path.endswith("/well"):
            writer.write(wire.answer(b"{}"))
            return True
        return await hostile(asked, writer)

    return handle


@asynccontextmanager
async def client(port, *, through_proxy):
    # A proxy for plain HTTP is a server that is told the whole address.
    address = f"http://127.0.0.1:{port}"
    config = ClientConfig(address)
    if through_proxy:
        config = ClientConfig("http://x.invalid", proxy=address)
    transport = HttpTransport(config, LoopClock())
    try:
        yield transport
    finally:
        await transport.aclose()


WAYS = [
    pytest.param("POST", False, id="write"),
    pytest.param("POST", True, id="write through a proxy"),
    pytest.param("GET", False, id="read"),
]


@pytest.mark.parametrize(("method", "through_proxy"), WAYS)
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_endless_answer_is_given_up(raw_server, wire, hostile, method, through_proxy):
    server = await raw_server(routed(hostile, wire))
    async with client(server.port, through_proxy=through_proxy) as transport:
        tracemalloc.start()
        try:
            with pytest.raises(Unavailable) as raised:
                await transport.request(method, "/badly", b"{}", timeout=20.0)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert "timed out" not in str(raised.value)
        assert peak < ENOUGH // 2
        answer = await transport.request(method, "/well", b"{}", timeout=20.0)
    assert answer.body == b"{}"


@pytest.mark.parametrize(("method", "through_proxy"), WAYS)
async def test_packed_answer_counts_unpacked(raw_server, wire, method, through_proxy):
    async def hostile(asked, writer):
        writer.write(wire.answer(BOMB, 200, "Content-Encoding: gzip"))

    server = await raw_server(routed(hostile, wire))
    assert len(BOMB) < LIMIT
    async with client(server.port, through_proxy=through_proxy) as transport:
        tracemalloc.start()
        try:
            with pytest.raises(Unavailable, match="answer too long"):
                await transport.request(method, "/badly", b"{}", timeout=20.0)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < ENOUGH // 2
        assert (await transport.request(method, "/well", b"{}", timeout=20.0)).body == b"{}"


@pytest.mark.parametrize("hostile", HOSTILE[:4])
async def test_endless_head_of_a_watch_is_given_up(raw_server, wire, hostile):
    server = await raw_server(routed(hostile, wire))
    async with client(server.port, through_proxy=False) as transport:
        with pytest.raises(Unavailable) as raised:
            async with transport.stream("/badly", idle_timeout=20.0):
                pass
    assert "timed out" not in str(raised.value)


@pytest.mark.parametrize(("method", "through_proxy"), WAYS)
async def test_answer_within_the_limits_is_whole(raw_server, wire, method, through_proxy):
    body = b"y" * LIMIT
    headers = [f"X-{number}: {'v' * 500}" for number in range(100)]

    async def handle(asked, writer):
        writer.write(wire.answer(body, 200, *headers))

    server = await raw_server(handle)
    async with client(server.port, through_proxy=through_proxy) as transport:
        answer = await transport.request(method, "/", b"{}", timeout=20.0)
    assert answer.body == body
    assert answer.headers["x-99"] == "v" * 500


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param("exec cat /dev/zero", "longer than 1048576 bytes", id="output"),
        pytest.param("head -c 50000000 /dev/zero >&2; exit 3", "exit code 3", id="complaint"),
    ],
)
async def test_endless_output_of_a_credential_program_is_given_up(tmp_path, script, problem):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(stat.S_IRWXU)
    spec = ExecSpec("client.authentication.k8s.io/v1", str(program))
    credentials = ExecCredentials(spec, LoopClock(), timeout=20.0)
    tracemalloc.start()
    try:
        with pytest.raises(Unavailable, match=problem) as raised:
            await credentials.get()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ENOUGH // 2
    assert len(str(raised.value)) < 1000

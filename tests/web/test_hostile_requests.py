"""Whatever arrives on the socket: an answer or a closed connection, and never a fault of ours."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.web import listener
from ksched.web.web_server import WebServer

LOOPBACK = "127.0.0.1"
EXAMPLES_AT_A_TIME = 25
FAULT = re.compile(rb"Traceback|File \"|\.py|site-packages|Error\b(?! <)")


@asynccontextmanager
async def serving():
    async with cluster(nodes=1) as c:
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=None)
        async with server.listening(LOOPBACK, 0) as url:
            yield int(url.rpartition(":")[2])


async def said(port, data):
    """Send bytes, then nothing more, and give all that comes back until the server closes."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(data)
        answer = b""
        async with asyncio.timeout(10):
            while piece := await reader.read(1 << 16):
                answer += piece
        return answer
    except ConnectionError:
        return answer
    finally:
        writer.transport.abort()


def statuses(answer):
    return [int(code) for code in re.findall(rb"HTTP/[01]\.[019] (\d{3})", answer)]


def check(requests, answers, records):
    for request, answer in zip(requests, answers, strict=True):
        assert not FAULT.search(answer), (request, answer)
        assert answer == b"" or answer.startswith((b"HTTP/1.", b"HTTP/0.9")), (request, answer)
        assert all(code < 500 or code == 505 for code in statuses(answer)), (request, answer)
    faults = [record for record in records if record.levelno >= logging.WARNING]
    assert not faults, [(record.getMessage(), record.exc_info) for record in faults]


def run(requests, caplog):
    """All requests to one server, each on its own connection."""

    async def ask():
        async with serving() as port:
            answers = await asyncio.gather(*(said(port, request) for request in requests))
            alive = await said(port, b"GET /healthz HTTP/1.0\r\n\r\n")
        return answers, alive

    caplog.clear()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers, alive = runner.run(ask())
    check(requests, answers, caplog.records)
    assert statuses(alive) == [200]
    return answers


@pytest.fixture(scope="module", autouse=True)
def _little_patience():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listener, "HEADER_SECONDS", 0.2)
        patch.setattr(listener, "IDLE_SECONDS", 0.2)
        patch.setattr(listener, "_SWEEP_SECONDS", 0.02)
        yield


HOST = b"Host: localhost\r\n"
WELL = b"GET /healthz HTTP/1.1\r\n" + HOST


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        pytest.param(b"GET /healthz\r\n\r\n", [200], id="HTTP/0.9"),
        pytest.param(b"GET /healthz HTTP/3.7\r\n\r\n", [400], id="unknown version"),
        pytest.param(b"GET /%s HTTP/1.1\r\n" % (b"a" * 100_000), [400], id="long path"),
        pytest.param(WELL + b"X: %s\r\n\r\n" % (b"a" * 100_000), [400], id="long header"),
        pytest.param(WELL + b"X: y\r\n" * 10_000 + b"\r\n", [400], id="many headers"),
        pytest.param(
            b"GET /debug/story/%ff/%zz HTTP/1.1\r\n" + HOST + b"\r\n", [404], id="escapes"
        ),
        pytest.param(
            b"GET /debug/story/a%2fb/%00 HTTP/1.1\r\n" + HOST + b"\r\n", [404], id="slash"
        ),
        pytest.param(b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", [404], id="dots"),
        pytest.param(b"GET http://[x/healthz HTTP/1.1\r\n" + HOST + b"\r\n", [400], id="bad URL"),
        pytest.param((WELL + b"\r\n") * 50, [200] * 50, id="pipelined"),
        pytest.param(WELL + b"Content-Length: 5\r\n\r\nhello", [200], id="body on GET"),
        pytest.param(WELL + b"Content-Length: 99999999999\r\n\r\n", [200], id="body to come"),
        pytest.param(WELL + b"Content-Length: -1\r\n\r\n", [400], id="negative length"),
        pytest.param(
            WELL + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            [400],
            id="two lengths",
        ),
        pytest.param(
            WELL + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", None, id="no chunk at all"
        ),
        pytest.param(b"CONNECT x:1 HTTP/1.1\r\n" + HOST + b"\r\n", None, id="CONNECT"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None, id="HTTP/2"),
        pytest.param(
            WELL + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", None, id="upgrade"
        ),
        pytest.param(WELL + b"Expect: 200-miracle\r\n\r\n", [417], id="expectation"),
        pytest.param(WELL + b"Expect: keep\xfbalive\r\n\r\n", [417], id="strange expectation"),
        pytest.param(
            b"GET /nowhere HTTP/1.1\r\n" + HOST + b"Expect: \xff\r\n\r\n",
            [417],
            id="strange expectation of nothing",
        ),
        pytest.param(
            WELL + b"Content-Length: 5000000\r\n\r\n" + b"x" * 5_000_000, None, id="large body"
        ),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", None, id="asterisk"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", None, id="TLS to plain"),
        pytest.param(b"\x00" * 1000, None, id="zeros"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_strange_request_gets_a_plain_answer(request_bytes, expected, caplog):
    (answer,) = run([request_bytes], caplog)
    if expected is not None:
        assert statuses(answer) == expected


WORDS = b"""
    GET HEAD POST g / /metrics /configz /debug/queue /debug/decisions /debug/story/ /readyz/
    ?limit= ?verbose ?exclude= % %2f %ff %C3%A4 & = # * // .. : , ; 0 Host: Accept: version=
    application/openmetrics-text text/plain Content-Length: chunked Transfer-Encoding: Connection:
    Upgrade close Expect: 100-continue Content-Encoding: gzip HTTP/1.1 HTTP/1.0 HTTP/0.9 HTTP/9.9
"""
PIECES = st.sampled_from(WORDS.split()) | st.sampled_from(
    [b" ", b"\t", b"\r\n", b"\n", b"\r", b"1" * 20, b"9" * 5000, b"\xff", b"\x00", b"a" * 9000]
)
RAW = st.lists(PIECES | st.binary(max_size=6), max_size=14).map(b"".join)
PATHS = st.lists(PIECES.filter(lambda p: not set(p) & set(b" \r\n\t")), max_size=5).map(b"".join)
VALUES = st.lists(PIECES.filter(lambda p: not set(p) & set(b"\r\n")), max_size=5).map(b"".join)
FORMED = st.builds(
    lambda method, path, accept, tail: (
        b"%s /%s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n%s\r\n" % (method, path, accept, tail)
    ),
    st.sampled_from([b"GET", b"HEAD", b"POST"]),
    PATHS,
    VALUES,
    VALUES.map(lambda value: b"X-Y: %s\r\n" % value) | st.just(b""),
)


@settings(max_examples=20)
@given(requests=st.lists(RAW | FORMED, min_size=EXAMPLES_AT_A_TIME, max_size=EXAMPLES_AT_A_TIME))
def test_no_bytes_get_a_fault(requests, caplog_of):
    run(requests, caplog_of)


@pytest.fixture(scope="module")
def caplog_of():
    """Records of one run after the other, for a test that runs many times."""

    class Kept(logging.Handler):
        def __init__(self):
            super().__init__()
            self.records = []

        def emit(self, record):
            self.records.append(record)

        def clear(self):
            self.records.clear()

    kept = Kept()
    logging.getLogger().addHandler(kept)
    yield kept
    logging.getLogger().removeHandler(kept)

"""A few thousand malformed requests; ``python -m lab.http_fuzz`` sends a hundred thousand."""

from __future__ import annotations

import itertools
import logging

import pytest

from ksched.metrics import Metrics
from ksched.testing.builders import make_pod
from ksched.testing.harness import cluster
from ksched.web.web_server import WebServer
from lab.http_fuzz import HOST, ServerAtFault, attack, checked, is_alive, requests

SEEDS = (1, 2)
REQUESTS = 1500


@pytest.mark.real_time
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_request_gets_a_fault(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web"), make_pod("big").req(cpu="100"))
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=None, flags={})
        async with server.listening(HOST, 0) as url:
            port = int(url.rpartition(":")[2])
            found = await attack(port, requests(seed), REQUESTS)
            assert await is_alive(port)

    assert {200, 400, 404, 405} <= set(found)
    faults = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not faults, [(record.getMessage(), record.exc_info) for record in faults]


def test_same_seed_same_requests() -> None:
    def first(seed: int) -> list[bytes]:
        return list(itertools.islice(requests(seed), 100))

    assert first(7) == first(7)
    assert first(7) != first(8)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 500 Internal Server Error\r\n\r\n", id="failure of a view"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nTraceback (most recent call", id="traceback"),
        pytest.param(b'HTTP/1.1 400 Bad Request\r\n\r\n  File "x.py", line 3', id="source"),
        pytest.param(b"hello", id="no HTTP"),
    ],
)
def test_faults_are_recognized(answer: bytes) -> None:
    with pytest.raises(ServerAtFault):
        checked(b"GET / HTTP/1.1\r\n\r\n", answer)


def test_sound_answers_are_their_statuses() -> None:
    assert checked(b"x", b"") == []
    assert checked(b"x", b"HTTP/1.1 200 OK\r\n\r\nokHTTP/1.1 400 Bad Request\r\n\r\n") == [200, 400]
    assert checked(b"x", b"HTTP/1.0 400 Bad Request\r\n\r\nline: HTTP/1.1 9999") == [400]

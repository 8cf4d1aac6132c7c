"""Requests are counted, and an outage is told when it begins and when it ends."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.client.observed_transport import ObservedTransport
from ksched.errors import Unavailable
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.transport import Response, StreamResponse

SERVER = "https://api.example.com:6443"
HOST = "api.example.com:6443"
LOST, FOUND = "API server does not answer, trying again", "API server answers again"


class Wire:
    """A transport that answers 200 unless it is broken."""

    def __init__(self):
        self.broken = False

    async def request(self, method, path, body=None, *, content_type="", timeout=30.0):
        self._check()
        return Response(404 if "missing" in path else 200, {}, b"{}")

    @asynccontextmanager
    async def stream(self, path, *, idle_timeout=None):
        self._check()
        yield StreamResponse(200, {}, self._nothing())

    async def _nothing(self):
        yield b""

    def _check(self):
        if self.broken:
            raise Unavailable(0, "NotSent", "connection refused")


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def transport(wire, metrics):
    return ObservedTransport(wire, SERVER, metrics)


async def test_requests_are_counted_by_their_answer(transport, metrics, wire):
    await transport.request("POST", "/a")
    await transport.request("POST", "/a")
    await transport.request("GET", "/missing")
    async with transport.stream("/a?watch=1"):
        pass
    wire.broken = True
    with pytest.raises(Unavailable):
        await transport.request("GET", "/a")

    count = metrics.rest_client_requests.value
    assert count("200", "POST", HOST) == 2
    assert count("404", "GET", HOST) == 1
    assert count("200", "GET", HOST) == 1
    assert count("<error>", "GET", HOST) == 1
    assert metrics.rest_client_request_duration.of("POST", HOST).count == 2


async def test_outage_is_told_once_and_so_is_its_end(transport, wire, caplog):
    await transport.request("GET", "/a")
    wire.broken = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            await transport.request("GET", "/a")
        with pytest.raises(Unavailable):
            async with transport.stream("/a"):
                pass
    wire.broken = False
    for _ in range(3):
        await transport.request("GET", "/a")

    assert [record.message for record in caplog.records] == [LOST, FOUND]
    assert [record.server for record in caplog.records] == [SERVER, SERVER]


async def test_single_lost_request_among_answered_ones_is_no_outage(transport, wire, caplog):
    class Slow(Wire):
        async def request(self, method, path, *args, **options):
            await asyncio.sleep(0)
            raise Unavailable(0, "AnswerLost", "timed out")

    transport._transport = Slow()
    async with asyncio.TaskGroup() as tasks:

        async def lost():
            with pytest.raises(Unavailable):
                await transport.request("GET", "/slow")

        tasks.create_task(lost())
        await asyncio.sleep(0)
        transport._answered("GET", 200)

    assert not caplog.records


async def test_broken_watch_is_not_an_outage(transport, caplog):
    with pytest.raises(Unavailable):
        async with transport.stream("/a"):
            raise Unavailable(0, "AnswerLost", "reset")

    assert not caplog.records


async def test_reflector_tells_a_failure_once_until_it_recovers(caplog):
    caplog.set_level(logging.DEBUG, logger="ksched.client.reflector")
    async with cluster(nodes=1) as c:
        for _ in range(2):
            c.faults.rules.append(Rule(Fault(lose_response=True), resource="nodes", times=4))
            c.server.drop_watches()
            await c.advance(120)
            await c.add_nodes(1)
            await c.settle()
        nodes = c.scheduler.cache.statistics().nodes

    failures = [record for record in caplog.records if record.message == "list or watch failed"]
    levels = [record.levelname for record in failures if record.resource == "nodes"]
    assert levels == 2 * ["WARNING", "DEBUG", "DEBUG", "DEBUG"]
    assert nodes == 3


async def test_of_several_transports_only_one_tells(wire, metrics, caplog):
    quiet = ObservedTransport(wire, SERVER, metrics, logs_outages=False)
    wire.broken = True
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable):
        await quiet.request("GET", "/a")
    wire.broken = False
    await quiet.request("GET", "/a")

    assert caplog.messages == []
    assert metrics.rest_client_requests.value("<error>", "GET", HOST) == 1

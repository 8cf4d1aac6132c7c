"""Requests are counted, and an outage is told when it begins and when it ends.

Covers ``ksched.client.telemetry`` too.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.client.observed_transport import ObservedTransport
from ksched.client.rate_limit import RateLimiter
from ksched.client.rest import ApiClient
from ksched.client.retry import REPEATABLE
from ksched.election import WriteFence
from ksched.errors import Unavailable
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.testing.virtual_time import VirtualClock
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

    async def aclose(self):
        pass

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


async def test_sizes_are_those_of_the_bodies(transport, metrics, wire):
    await transport.request("POST", "/a", b"x" * 300)
    await transport.request("GET", "/a")
    wire.broken = True
    with pytest.raises(Unavailable):
        await transport.request("POST", "/a", b"x" * 500)

    sent, received = metrics.rest_client_request_size, metrics.rest_client_response_size
    assert (sent.of("POST", HOST).count, sent.of("POST", HOST).sum) == (2, 800)
    assert (sent.of("GET", HOST).count, sent.of("GET", HOST).sum) == (1, 0)
    assert (received.of("POST", HOST).count, received.of("POST", HOST).sum) == (1, 2)


class Declining(Wire):
    """Refuses the first requests, and does not answer the one after them."""

    def __init__(self, refused):
        super().__init__()
        self.left = refused + 1

    async def request(self, method, path, body=None, **options):
        self.left -= 1
        if self.left == 0:
            raise Unavailable(0, "NotSent", "connection refused")
        return Response(429 if self.left > 0 else 201, {}, b"{}")


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_waits_for_the_rate_limit_and_retries_are_counted(metrics, is_fenced):
    clock = VirtualClock()
    transport = ObservedTransport(Declining(2), SERVER, metrics)
    guarded = WriteFence().guard(transport) if is_fenced else transport
    client = ApiClient(guarded, clock, RateLimiter(0.25, 2, clock), random.Random(1))
    policy = replace(REPEATABLE, initial=0.001, maximum=0.001)
    await client.request("PUT", "/a", b"{}", retry=policy)
    await client.request("PUT", "/a", b"{}", retry=policy)

    count = metrics.rest_client_request_retries.value
    assert count("429", "PUT", HOST) == 1, "the first refusal is no retry"
    assert count("<error>", "PUT", HOST) == 1
    assert count("201", "PUT", HOST) == 1
    waits = metrics.rest_client_rate_limiter_duration.of("PUT", HOST)
    assert waits.count == 5
    assert waits.sum == pytest.approx(3 * 4, rel=0.01), "two at once, then one every 4 s"
    assert dict(waits.buckets())["0.005"] == 2


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

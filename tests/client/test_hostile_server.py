"""The whole client, reflector to socket, against a server that does its worst."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ksched.api.decoding import decode_pod
from ksched.api.resources import PODS
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.rate_limit import RateLimiter
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.errors import Conflict, Unavailable

pytestmark = pytest.mark.real_time


def pod(name, version, **annotations):
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "annotations": annotations,
        }
    }


def line(kind, obj):
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def status_line(code, message="no"):
    return line("ERROR", {"kind": "Status", "code": code, "message": message})


BOOKMARK = line(
    "BOOKMARK",
    {
        "metadata": {
            "resourceVersion": "10",
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
    },
)


class Hostile:
    """Answers lists by ``pods``; each watch is one entry of ``watches``, a coroutine function.

    When the entries are used up a watch stays open in silence.
    """

    def __init__(self, wire):
        self.wire = wire
        self.pods = []
        self.version = 10
        self.watches = []
        self.lists = 0
        self.watched_from = []

    async def handle(self, asked, writer):
        query = parse_qs(urlsplit(asked.path).query)
        if query.get("resourceVersionMatch") == ["Exact"]:
            # A server of old cannot be asked for its past.
            writer.write(self.wire.answer(b"no", 400))
            return True
        if "watch" not in query:
            self.lists += 1
            page = {"metadata": {"resourceVersion": str(self.version)}, "items": self.pods}
            writer.write(self.wire.answer(json.dumps(page).encode()))
            return True
        self.watched_from.append(query.get("resourceVersion", [""])[0])
        if not self.watches:
            writer.write(self.wire.stream_head)
            await writer.drain()
            await asyncio.sleep(60)
            return False
        return await self.watches.pop(0)(writer)

    def says(self, *lines, end=True, tail=b""):
        """A watch that sends lines and ends: in good order, or in the middle of nowhere."""

        async def watch(writer):
            writer.write(self.wire.stream_head)
            for data in lines:
                writer.write(self.wire.chunk(data))
            writer.write(b"0\r\n\r\n" if end else tail)
            await writer.drain()
            return bool(end)

        return watch

    def refuses(self, code, body=b"no"):
        async def watch(writer):
            writer.write(self.wire.answer(body, code))

        return watch

    @staticmethod
    async def closes(writer):
        return False


@pytest.fixture
def hostile(wire):
    return Hostile(wire)


@pytest.fixture
def reflect(hostile, raw_server, witness):
    @asynccontextmanager
    async def run(**options):
        server = await raw_server(hostile.handle)
        transport = HttpTransport(ClientConfig(f"http://127.0.0.1:{server.port}"), LoopClock())
        settings: dict[str, Any] = {
            "use_watch_list": False,
            "idle_timeout": 5.0,
            "initial_backoff": 0.01,
            "max_backoff": 0.05,
            "rng": random.Random(1),
        } | options
        reflector = Reflector(
            ApiClient(transport, LoopClock()), PODS, decode_pod, witness, LoopClock(), **settings
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            async with asyncio.timeout(30):
                await reflector.wait_synced()
                yield server
            task.cancel()
        await transport.aclose()

    return run


async def until(condition):
    while not condition():  # noqa: ASYNC110 (what happens on a socket sets no event)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda h: h.says(end=False), id="breaks after the head"),
        pytest.param(lambda h: h.says(end=False, tail=b"ff\r\n{half"), id="breaks in a line"),
        pytest.param(lambda h: h.says(b'{"type":"ADD'), id="JSON cut in two, closed in order"),
        pytest.param(lambda h: h.says(b"gateway timeout\n"), id="text in the stream"),
        pytest.param(lambda h: h.says(status_line(500)), id="ERROR event 500"),
        pytest.param(lambda h: h.says(status_line(410)), id="ERROR event 410"),
        pytest.param(lambda h: h.refuses(410), id="410"),
        pytest.param(lambda h: h.refuses(429), id="429"),
        pytest.param(lambda h: h.refuses(500, b"<html>no</html>"), id="500 with a page"),
        pytest.param(lambda h: h.refuses(503, b""), id="503 with nothing"),
        pytest.param(lambda h: h.closes, id="closes at once"),
        pytest.param(lambda h: h.says(), id="empty stream"),
    ],
)
async def test_every_fault_is_survived_and_explained(hostile, witness, reflect, caplog, fault):
    hostile.pods = [pod("a", 5)]
    change = line("MODIFIED", pod("a", 11))
    birth = line("ADDED", pod("b", 12))
    hostile.watches = [
        hostile.says(change, end=False),
        fault(hostile),
        hostile.says(change, birth, birth),
    ]
    with caplog.at_level(logging.WARNING):
        async with reflect():
            await until(lambda: "default/b" in witness.view)
            # A relist told the old state again as the truth, which the watch then corrected.
            assert witness.view["default/a"].metadata.resource_version == "11"
            assert witness.told.count("added a") == 1
            assert witness.told.count("added b") == 1
    failures = [record for record in caplog.records if record.message == "list or watch failed"]
    others = {record.message for record in caplog.records} - {"list or watch failed"}
    assert others <= {"listed at an older version than known"}
    assert failures
    assert all(record.resource == "pods" and record.err for record in failures)


async def test_half_open_connection_is_noticed(hostile, witness, reflect):
    async def goes_silent(writer):
        writer.write(hostile.wire.stream_head + hostile.wire.chunk(line("ADDED", pod("a", 11))))
        await writer.drain()
        await asyncio.sleep(60)

    hostile.watches = [goes_silent, hostile.says(line("ADDED", pod("b", 12)))]
    async with reflect(idle_timeout=0.1):
        await until(lambda: len(witness.view) == 2)
    assert hostile.watched_from[:2] == ["10", "11"]
    assert hostile.lists == 1


async def test_object_of_four_megabytes_is_taken(hostile, witness, reflect):
    big = pod("big", 11, blob="x" * (4 << 20))
    hostile.watches = [hostile.says(line("ADDED", big), line("ADDED", pod("next", 12)))]
    async with reflect():
        await until(lambda: len(witness.view) == 2)
        assert len(witness.view["default/big"].metadata.annotations["blob"]) == 4 << 20


async def test_server_that_closes_at_once_sees_few_connections(hostile, reflect):
    hostile.watches = [hostile.closes] * 10_000
    async with reflect(initial_backoff=0.05, max_backoff=0.2) as server:
        before = server.connections
        await asyncio.sleep(0.5)
        # A read is repeated once when a kept connection turns out to be dead.
        assert server.connections - before <= 10


async def test_streaming_list_refused_with_200_and_an_error_event(hostile, witness, reflect):
    hostile.pods = [pod("a", 5)]
    hostile.watches = [
        hostile.says(status_line(500, "etcdserver: RequestWatchProgress is disabled")),
        hostile.says(line("ADDED", pod("b", 11))),
    ]
    async with reflect(use_watch_list=True):
        await until(lambda: len(witness.view) == 2)
    assert hostile.watched_from[:2] == ["", "10"]
    assert hostile.lists == 1


async def test_streaming_list_needs_no_other_request(hostile, witness, reflect):
    hostile.watches = [
        hostile.says(line("ADDED", pod("a", 5)), BOOKMARK, line("ADDED", pod("b", 11)), end=False)
    ]
    async with reflect(use_watch_list=True):
        await until(lambda: len(witness.view) == 2)
        await until(lambda: len(hostile.watched_from) == 2)
    assert hostile.lists == 0
    assert hostile.watched_from == ["", "11"]


async def test_bind_that_conflicts_and_bind_whose_answer_is_lost(raw_server, wire):
    async def handle(asked, writer):
        if "lost" in asked.path:
            return False
        writer.write(wire.answer(wire.status(409, "Conflict", "already assigned"), 409))
        return True

    server = await raw_server(handle)
    transport = HttpTransport(ClientConfig(f"http://127.0.0.1:{server.port}"), LoopClock())
    client = ApiClient(transport, LoopClock())
    with pytest.raises(Conflict, match="already assigned"):
        await client.bind("default", "taken", "u", "n")
    with pytest.raises(Unavailable, match="POST /api/v1/namespaces/default/pods/lost/binding"):
        await client.bind("default", "lost", "u", "n")
    assert len(server.asked) == 2
    await transport.aclose()


async def test_429_is_waited_for_and_qps_is_kept(raw_server, wire):
    times = []

    async def handle(asked, writer):
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            writer.write(wire.answer(b"slow down", 429, "Retry-After: 0.1"))
        else:
            writer.write(wire.answer(b"{}", 201))

    server = await raw_server(handle)
    transport = HttpTransport(ClientConfig(f"http://127.0.0.1:{server.port}"), LoopClock())
    client = ApiClient(transport, LoopClock(), RateLimiter(qps=50, burst=2, clock=LoopClock()))
    for number in range(6):
        await client.bind("default", f"p{number}", "u", "n")
    assert times[1] - times[0] >= 0.1
    assert times[6] - times[2] >= 3 / 50
    await transport.aclose()


async def test_server_that_restarts_is_found_again(hostile, witness, reflect, raw_server):
    hostile.pods = [pod("a", 5)]
    async with reflect() as server:
        await until(lambda: hostile.watched_from)
        server.stop()
        await asyncio.sleep(0.1)
        hostile.watches = [hostile.says(line("DELETED", pod("a", 20)))]
        await raw_server(hostile.handle, port=server.port)
        await until(lambda: not witness.view)
    assert hostile.lists == 1

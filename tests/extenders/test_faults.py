"""Extenders that misbehave, over real sockets: each fault, with ``ignorable`` true and false."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from ksched.testing import cluster, make_node, make_pod
from ksched.testing.harness import Cluster

pytestmark = pytest.mark.real_time

Treatment = Callable[[Any, asyncio.StreamWriter], Any]
SECRET = "sesame"


def raw(body: bytes, status: str = "200 OK", kind: str = "application/json") -> Treatment:
    async def treat(question: Any, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    return treat


async def hang(question: Any, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def trickle(question: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def reset(question: Any, writer: asyncio.StreamWriter) -> None:
    own = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def close(question: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    writer.close()


async def never_end(question: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b'"' + b"x" * 0xFFFF
    while True:
        writer.write(b"10000\r\n" + piece + b"\r\n")
        await writer.drain()


async def babble(question: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")


FAULTS = [
    pytest.param(hang, "timed out", id="hangs"),
    pytest.param(trickle, "timed out", id="trickles"),
    pytest.param(None, "cannot reach", id="refused"),
    pytest.param(reset, "connection lost", id="reset"),
    pytest.param(close, "connection lost", id="closed within the answer"),
    pytest.param(babble, "not an HTTP answer", id="not HTTP"),
    pytest.param(raw(b"no", "500 Oops"), ", code 500", id="500"),
    pytest.param(raw(b"{}", "201 Created"), ", code 201", id="201"),
    pytest.param(raw(b"", "302 Found"), ", code 302", id="redirect"),
    pytest.param(raw(b"<html>hi</html>", kind="text/html"), "answer not understood", id="HTML"),
    pytest.param(raw(b""), "answer not understood", id="empty answer"),
    pytest.param(raw(b"\xff\xfe"), "answer not understood", id="not text"),
    pytest.param(raw(b'{"Error": "a'), "answer not understood", id="cut short"),
    pytest.param(raw(b"[1]"), "answer not understood", id="wrong type"),
    pytest.param(raw(b'{"a":' * 100_000), "answer not understood", id="nested without end"),
    pytest.param(never_end, "answer too long", id="huge answer"),
]


def faulty(server: Any, fault: Treatment | None, verb: str, ignorable: bool) -> dict[str, Any]:
    """The configuration of an extender of which one verb misbehaves."""
    address = server.address if fault is not None else "127.0.0.1:1"
    return {
        "urlPrefix": f"http://user:{SECRET}@{address}/api/",
        f"{verb}Verb": verb,
        "ignorable": ignorable,
        "httpTimeout": "0.2s",
        "nodeCacheCapable": True,
        "weight": 1,
    }


def check_error(message: str, server: Any, fault: Treatment | None, verb: str, text: str) -> None:
    address = server.address if fault is not None else "127.0.0.1:1"
    assert text in message
    assert verb in message
    assert f"http://{address}/api/" in message
    assert SECRET not in message


async def until(c: Cluster, done: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not done():
            await c.settle()


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as huge, so that no test moves tens of megabytes."""
    monkeypatch.setattr("ksched.client.http_transport.MAX_ANSWER", 1 << 20)


@pytest.mark.parametrize(("fault", "text"), FAULTS)
@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
async def test_filter(server, fault, text, ignorable) -> None:
    async with server.listening():
        server.treatments["filter"] = fault
        extender = faulty(server, fault, "filter", ignorable)
        other = {"managedResources": [{"name": "example.com/fpga", "ignoredByScheduler": True}]}
        wanting = make_pod("web").to_dict()
        limits = {"limits": {"example.com/fpga": "1"}}
        wanting["spec"]["containers"] = [{"name": "c", "image": "i", "resources": limits}]
        async with cluster(2, config={"extenders": [{**extender, **other}]}) as c:
            await c.create(wanting, make_pod("other"))
            await until(c, lambda: c.bound("other") and (c.bound("web") or c.message("web")))

            if ignorable:
                assert c.bound("web")
            else:
                assert c.bound("web") is None
                condition = c.condition("web")
                assert condition is not None
                assert condition["reason"] == "SchedulerError"
                check_error(condition["message"], server, fault, "filter", text)


@pytest.mark.parametrize(("fault", "text"), FAULTS)
@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
async def test_prioritize(server, reply, fault, text, ignorable) -> None:
    async with server.listening():
        server.treatments["prioritize"] = fault
        server.treatments["good"] = reply([{"Host": "n2", "Score": 10}])
        bad = faulty(server, fault, "prioritize", ignorable)
        good = {
            "urlPrefix": f"http://{server.address}",
            "prioritizeVerb": "good",
            "weight": 100,
        }
        async with cluster(2, config={"extenders": [bad, good]}) as c:
            await c.create(make_pod("web"))
            await until(c, lambda: c.bound("web"))

            assert c.bound("web") == "n2"


@pytest.mark.parametrize(("fault", "text"), FAULTS)
@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
async def test_bind(server, fault, text, ignorable) -> None:
    async with server.listening():
        server.treatments["bind"] = fault
        extender = faulty(server, fault, "bind", ignorable)
        async with cluster(1, config={"extenders": [extender]}) as c:
            await c.create(make_pod("web"))
            await until(c, lambda: c.bound("web") or c.message("web"))

            if ignorable:
                assert c.bound("web") == "n1"
            else:
                assert c.bound("web") is None
                check_error(c.message("web"), server, fault, "bind", text)


@pytest.mark.parametrize(("fault", "text"), FAULTS)
@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
async def test_preempt(server, fault, text, ignorable) -> None:
    async with server.listening():
        server.treatments["preempt"] = fault
        extender = faulty(server, fault, "preempt", ignorable)
        node = make_node("n1").capacity(cpu="1")
        async with cluster([node], config={"extenders": [extender]}) as c:
            await c.create(make_pod("low").req(cpu="1").node("n1"))
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            await c.create({**kind, "metadata": {"name": "high"}, "value": 9})
            pod = make_pod("vip").req(cpu="1").to_dict()
            pod["spec"]["priorityClassName"] = "high"
            await c.create(pod)
            await until(c, lambda: c.message("vip"))

            if ignorable:
                assert not c.exists("low") or "deletionTimestamp" in c.pod("low")["metadata"]
            else:
                assert "deletionTimestamp" not in c.pod("low")["metadata"]
                check_error(c.message("vip"), server, fault, "preempt", text)


async def test_answer_of_thousands_of_whole_nodes_is_no_fault(server, reply, monkeypatch) -> None:
    monkeypatch.undo()
    server.treatments["filter"] = reply(
        lambda asked: {
            "Nodes": {"items": [*asked["Nodes"]["items"]][:1]},
            "FailedNodes": {
                node["metadata"]["name"]: "x" * 1000 for node in asked["Nodes"]["items"][1:]
            },
        }
    )
    async with server.listening():
        extender = {"urlPrefix": f"http://{server.address}", "filterVerb": "filter"}
        async with cluster(2000, config={"extenders": [extender]}) as c:
            await c.create(make_pod("web"))
            await until(c, lambda: c.bound("web"))
    (question,) = server.questions("filter")
    assert len(question["Nodes"]["items"]) == 2000
    assert len(json.dumps(question)) > 500_000


async def test_connections_are_kept_for_the_next_question(server, reply) -> None:
    ports = set()

    async def treat(question: Any, writer: asyncio.StreamWriter) -> None:
        ports.add(writer.get_extra_info("peername"))
        await reply(lambda asked: {"NodeNames": asked["NodeNames"]})(question, writer)

    server.treatments["filter"] = treat
    async with server.listening():
        extender = faulty(server, treat, "filter", ignorable=False)
        async with cluster(1, config={"extenders": [extender]}) as c:
            await c.create(*(make_pod(f"web-{number}") for number in range(5)))
            await until(c, lambda: all(c.bound(f"web-{number}") for number in range(5)))
    assert len(ports) == 1
    path, headers, _ = server.asked[0]
    assert path == "/api/filter"
    assert headers["content-type"] == "application/json"
    assert headers["authorization"].startswith("Basic ")
    assert headers["host"] == server.address

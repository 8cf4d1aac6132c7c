"""Nothing is written by somebody who no longer leads."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.retry import may_have_happened
from ksched.clock import LoopClock
from ksched.election import WriteFence
from ksched.errors import Unavailable
from ksched.testing.builders import make_pod
from ksched.testing.harness import cluster
from ksched.transport import JSON, Response

WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Wire:
    """A transport that answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, float]] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        self.sent.append((method, timeout))
        await self.answers.wait()
        return Response(200, {}, b"{}")

    def stream(self, path: str, *, idle_timeout: float | None = None) -> object:
        return path, idle_timeout

    async def aclose(self) -> None:
        self.sent.append(("close", 0.0))


@pytest.mark.parametrize("method", WRITES)
async def test_writes_wait_for_the_lease_and_are_then_not_sent(method: str) -> None:
    wire = Wire()
    transport = WriteFence(lambda: 0.0).guard(wire)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="only the leader may write") as refused:
        await transport.request(method, "/x", timeout=20.0)

    assert asyncio.get_running_loop().time() == 20.0
    assert wire.sent == []
    assert not may_have_happened(refused.value)


async def test_a_renewal_in_time_lets_them_pass() -> None:
    loop = asyncio.get_running_loop()
    wire = Wire()
    transport = WriteFence(lambda: 0.0 if loop.time() < 3 else 7.5).guard(wire)  # type: ignore[arg-type]
    await transport.request("POST", "/x")

    assert 3.0 <= loop.time() < 3.1
    assert wire.sent == [("POST", 7.5)]


async def test_no_write_may_take_longer_than_the_lease_holds() -> None:
    wire = Wire()
    transport = WriteFence(lambda: 7.5).guard(wire)  # type: ignore[arg-type]
    await transport.request("POST", "/x")
    await transport.request("POST", "/x", timeout=2.0)

    assert wire.sent == [("POST", 7.5), ("POST", 2.0)]


async def test_reads_do_not() -> None:
    wire = Wire()
    transport = WriteFence(lambda: 0.0).guard(wire)  # type: ignore[arg-type]
    await transport.request("GET", "/x")
    stream: object = transport.stream("/x", idle_timeout=3.0)
    assert stream == ("/x", 3.0)
    await transport.aclose()

    assert wire.sent == [("GET", 30.0), ("close", 0.0)]


async def test_closing_waits_for_what_is_on_its_way_and_lets_nothing_more_pass() -> None:
    wire, fence = Wire(), WriteFence()
    transport = fence.guard(wire)  # type: ignore[arg-type]
    wire.answers.clear()
    async with asyncio.TaskGroup() as tasks:
        under_way = tasks.create_task(transport.request("POST", "/x"))
        await asyncio.sleep(1)
        fence.close()
        quiet = tasks.create_task(fence.wait_quiet())
        with pytest.raises(Unavailable):
            await transport.request("POST", "/y", timeout=1.0)
        assert not quiet.done()
        wire.answers.set()
        await under_way
        await quiet
    assert wire.sent == [("POST", 30.0)]


async def test_closed_without_anything_under_way_is_quiet_at_once() -> None:
    fence = WriteFence()
    fence.close()
    await fence.wait_quiet()
    assert fence.remaining() == 0.0


async def test_scheduler_decides_but_does_not_bind_without_the_lease() -> None:
    seconds = 0.0
    async with cluster(nodes=1, fence=WriteFence(lambda: seconds)) as c:
        await c.create(make_pod("web"))
        await c.advance(1)
        assert c.bound("web") is None
        assert not [
            one for one in c.requests if one.verb in ("create", "patch") and one.user != "test"
        ]

        seconds = 10.0
        await c.advance(10)
        assert c.bound("web") == "n1"


@pytest.mark.real_time
async def test_a_request_leaves_at_once_though_the_loop_is_busy_afterwards() -> None:
    """Otherwise a process that is stopped right after its check would send when it goes on."""
    arrived = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                if b"/binding" in connection.recv(4096):
                    arrived.set()

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        transport = HttpTransport(ClientConfig(url), LoopClock())
        await transport.request("POST", "/warm-up", b"{}")
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(transport.request("POST", "/binding", b"{}"))
            await asyncio.sleep(0)
            # From here on the event loop does not run.
            assert arrived.wait(10)
            task.cancel()
        await transport.aclose()


@pytest.mark.real_time
async def test_nothing_is_sent_after_its_time_though_the_loop_was_late() -> None:
    """The connection was waited for, then the process stood still, then it was there."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def read() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(4096))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        transport = HttpTransport(ClientConfig(url), LoopClock())
        loop = asyncio.get_running_loop()

        async def connect_late(*_: object, **__: object) -> object:
            connected = await connect(*_, **__)  # type: ignore[arg-type]
            deadline = loop.time() + 0.2
            while loop.time() < deadline:
                pass  # the loop cannot fire a timer meanwhile
            return connected

        pool = transport._pool
        connect, pool._connect = pool._connect, connect_late  # type: ignore[assignment, method-assign]
        with pytest.raises(Unavailable, match="timed out before it was sent") as refused:
            await transport.request("POST", "/binding", b"{}", timeout=0.1)
        await transport.aclose()
        await asyncio.to_thread(thread.join)

    assert not may_have_happened(refused.value)
    assert received == [b""]

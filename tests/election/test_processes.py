"""Two ``ksched run`` on the embedded API server: signals, exit codes and frozen processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.clock import LoopClock
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from lab.child_process import ChildProcess

pytestmark = pytest.mark.real_time

PATIENCE_SECONDS = 30.0
LEASE_SECONDS = 3
FLAGS = (
    f"--leader-elect-lease-duration={LEASE_SECONDS}s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=300ms",
    "--kube-api-qps=50",
    "--kube-api-burst=20",
    "--secure-port=0",
)


class Site:
    """An API server, two replicas, and who bound how many pods."""

    def __init__(self, server: ApiServer, a: ChildProcess, b: ChildProcess) -> None:
        self._server, self.a, self.b = server, a, b
        self._client = InProcessTransport(server)

    async def create(self, *objects: PodBuilder | NodeBuilder) -> None:
        for obj in objects:
            data = obj.to_dict()
            path = "nodes" if data["kind"] == "Node" else "namespaces/default/pods"
            body = msgspec.json.encode(data)
            assert (await self._client.request("POST", f"/api/v1/{path}", body)).status == 201

    def binds(self, user: str) -> list[float]:
        return [
            audit.at
            for audit in self._server.requests
            if (audit.resource, audit.user) == ("pods/binding", user)
        ]

    def bound(self) -> int:
        """The pods that are bound; one that was bound twice fails the test."""
        paths = [
            audit.path
            for audit in self._server.requests
            if audit.resource == "pods/binding" and audit.code == 201
        ]
        assert len(set(paths)) == len(paths)
        return len(paths)


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110  another process sets no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_SECONDS:g} s: {what}")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """``a`` leads and has begun to bind, ``b`` follows."""
    async with _site(tmp_path) as site:
        await until(lambda: '"became leader"' in site.a.log(), "a leads")
        await until(lambda: '"another replica leads"' in site.b.log(), "b follows")
        await site.create(*(make_pod(f"p{number}") for number in range(150)))
        await until(lambda: site.binds("a"), "a binds")
        yield site


@asynccontextmanager
async def _site(folder: Path) -> AsyncIterator[Site]:
    server = ApiServer(LoopClock())
    with ExitStack() as stack:
        async with listening(server) as url:

            def start(name: str) -> ChildProcess:
                kubeconfig = folder / f"{name}.kubeconfig"
                write_kubeconfig(kubeconfig, url, name)
                command = [sys.executable, "-m", "ksched", "run", f"--kubeconfig={kubeconfig}"]
                process = ChildProcess(name, [*command, *FLAGS], folder / f"{name}.log")
                stack.callback(process.kill)
                return process

            a = start("a")
            await until(lambda: '"became leader"' in a.log(), "a leads")
            site = Site(server, a, start("b"))
            await site.create(make_node("n1"), make_node("n2"))
            yield site


async def exit_code(process: ChildProcess) -> int | None:
    return await asyncio.to_thread(process.wait, PATIENCE_SECONDS)


async def test_terminated_leader_leaves_the_rest_to_the_next(site: Site) -> None:
    site.a.send_signal(signal.SIGTERM)
    assert await exit_code(site.a) == 0
    await until(lambda: site.bound() == 150, "b binds the rest")

    assert 0 < len(site.binds("a")) < 150
    assert max(site.binds("a")) < min(site.binds("b"))
    assert site.a.log().count('"stopped leading"') == 1


async def test_frozen_leader_binds_nothing_when_it_goes_on(site: Site) -> None:
    site.a.send_signal(signal.SIGSTOP)
    await until(lambda: '"became leader"' in site.b.log(), "b takes over")
    before = len(site.binds("a"))
    await until(lambda: site.binds("b"), "b binds")
    site.a.send_signal(signal.SIGCONT)

    assert await exit_code(site.a) == 1
    assert "leader election lost: lease kube-system/kube-scheduler" in site.a.log()
    await until(lambda: site.bound() == 150, "b binds the rest")
    assert len(site.binds("a")) == before

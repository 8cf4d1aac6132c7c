"""Two ``ksched run`` with a plugin that hangs on one pod: the first ends, the second goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.clock import LoopClock
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from lab.child_process import ChildProcess
from lab.hanging_plugin import install

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(180)]

PATIENCE_SECONDS = 60.0
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "5s",
        "renewDeadline": "3s",
        "retryPeriod": "300ms",
    },
}


class Site:
    """An API server and the replicas that were started."""

    def __init__(self, server: ApiServer, start: Callable[[str], ChildProcess]) -> None:
        self._server, self.start = server, start
        self._client = InProcessTransport(server)

    async def create(self, *objects: PodBuilder | NodeBuilder) -> None:
        for obj in objects:
            data = obj.to_dict()
            path = "nodes" if data["kind"] == "Node" else "namespaces/default/pods"
            body = msgspec.json.encode(data)
            assert (await self._client.request("POST", f"/api/v1/{path}", body)).status == 201

    async def pod(self, name: str) -> Any:
        answer = await self._client.request("GET", f"/api/v1/namespaces/default/pods/{name}")
        return msgspec.json.decode(answer.body)

    async def condition(self, name: str) -> dict[str, str]:
        conditions = (await self.pod(name))["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "PodScheduled"), {})

    async def bound(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for name in names:
                while not (await self.pod(name))["spec"].get("nodeName"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    def writers(self, resource: str) -> set[str]:
        return {one.user for one in self._server.requests if one.resource == resource}


@asynccontextmanager
async def site(folder: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    plugins = install(folder, point, monkeypatch)
    server = ApiServer(LoopClock())
    with ExitStack() as stack:
        async with listening(server) as url:

            def start(name: str) -> ChildProcess:
                kubeconfig = folder / f"{name}.kubeconfig"
                write_kubeconfig(kubeconfig, url, name)
                connection = {"clientConnection": {"kubeconfig": str(kubeconfig)}}
                config = folder / f"{name}.json"
                profiles = {"profiles": [{"plugins": plugins}]}
                config.write_bytes(msgspec.json.encode({**CONFIG, **connection, **profiles}))
                command = [sys.executable, "-m", "ksched", "run", f"--config={config}"]
                process = ChildProcess(name, [*command, "--secure-port=0"], folder / f"{name}.log")
                stack.callback(process.kill)
                return process

            site = Site(server, start)
            await site.create(make_node("n1"))
            yield site


async def until(process: ChildProcess, text: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in process.log():
                process.must_run(0)
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{process.name} did not say: {text}; but:\n{process.log()[-3000:]}")


async def exit_code(process: ChildProcess) -> int | None:
    return await asyncio.to_thread(process.wait, PATIENCE_SECONDS)


def hangs(process: ChildProcess) -> bool:
    return '"event loop hangs' in process.log()


@pytest.mark.parametrize("point", ["filter", "async_pre_filter", "pre_bind"])
async def test_the_first_ends_and_the_second_schedules_the_others(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, point, monkeypatch) as s:
        a = s.start("a")
        await until(a, '"became leader"')
        b = s.start("b")
        await until(b, '"another replica leads"')
        await s.create(make_pod("before"))
        await s.bound("before")
        await s.create(make_pod("victim"), make_pod("next"))

        assert await exit_code(a) == 1
        assert '"event loop hangs, ending the process"' in a.log()
        assert 'plugin="Hangs"' in a.log()
        assert 'pod="default/victim"' in a.log()
        assert "in hang" in a.log(), "the stack of the loop"
        assert '"pod quarantined" pod="default/victim"' in a.log()
        condition = await s.condition("victim")
        assert condition["reason"] == "SchedulerHung"
        assert '"Hangs"' in condition["message"]

        await until(b, '"became leader"')
        await s.create(make_pod("last"))
        await s.bound("next", "last")
        assert b.exit_code is None
        assert not hangs(b)
        assert not (await s.pod("victim"))["spec"].get("nodeName")
        # The watchdog uses the right that the scheduler has anyway, and only while it leads.
        assert s.writers("pods/status") <= {"a", "b"}


async def test_a_plugin_that_hangs_in_every_replica_at_once_spares_those_that_come_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PreEnqueue runs in followers too."""
    async with site(tmp_path, "pre_enqueue", monkeypatch) as s:
        a = s.start("a")
        await until(a, '"became leader"')
        b = s.start("b")
        await until(b, '"another replica leads"')
        await s.create(make_pod("victim"), make_pod("next"))
        assert await exit_code(a) == 1
        assert await exit_code(b) == 1
        assert s.writers("pods/status") == {"a"}
        c = s.start("c")
        await s.bound("next")
        assert '"pod is quarantined, it held up a scheduler" pod="default/victim"' in c.log()
        assert not hangs(c)


async def test_a_plugin_that_comes_back_in_time_costs_nothing_but_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, "dawdle", monkeypatch) as s:
        a = s.start("a")
        await until(a, '"became leader"')
        await s.create(make_pod("victim"), make_pod("next"))
        await s.bound("victim", "next")
        await until(a, '"event loop runs again"')
        assert a.exit_code is None

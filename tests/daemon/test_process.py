"""``ksched run`` as a process of its own, against the embedded API server on a socket."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import shutil
import signal
import socket
import sys
from collections import Counter
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.clock import LoopClock
from ksched.testing.builders import make_node, make_pod
from lab.child_process import ChildProcess

pytestmark = pytest.mark.real_time

PATIENCE_SECONDS = 30.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def until(condition, what):
    """Wait for a condition; real time, but no longer than needed."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await condition()):  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.02)
    assert found, what
    return found


class Server:
    """The embedded API server, as the test sees it."""

    def __init__(self):
        self.api = ApiServer(LoopClock())
        self._transport = InProcessTransport(self.api)

    async def create(self, *objects):
        for obj in objects:
            data = obj.to_dict()
            path = "nodes" if data["kind"] == "Node" else "namespaces/default/pods"
            body = msgspec.json.encode(data)
            answer = await self._transport.request("POST", f"/api/v1/{path}", body)
            assert answer.status == 201, answer.body

    async def pods(self):
        answer = await self._transport.request("GET", "/api/v1/pods")
        return msgspec.json.decode(answer.body)["items"]

    async def bound(self):
        return [pod for pod in await self.pods() if pod["spec"].get("nodeName")]

    def bindings(self) -> Counter[str]:
        """How often each pod was bound with success."""
        return Counter(
            audit.path
            for audit in self.api.requests
            if audit.path.endswith("/binding") and audit.code == 201
        )


class Daemon:
    """A running ``ksched run``."""

    def __init__(self, process, port, session):
        self.process, self.port, self.session = process, port, session

    async def get(self, path):
        try:
            async with self.session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            self.process.must_run(0)
            return 0, ""

    async def ready(self):
        return (await self.get("/readyz"))[0] == 200

    def told(self, sentence):
        return sum(f'"{sentence}"' in line for line in self.process.log().splitlines())

    async def exit_code(self):
        code = await asyncio.to_thread(self.process.wait, PATIENCE_SECONDS)
        assert code is not None, self.process.log()
        return code


@pytest.fixture
async def server():
    server = Server()
    await server.create(make_node("n1"), make_node("n2"))
    return server


@pytest.fixture
def daemon(tmp_path):
    @asynccontextmanager
    async def start(url, *flags, descriptors=0, is_secure=False):
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(kubeconfig, url, "scheduler")
        port = free_port()
        command = [sys.executable, "-m", "ksched", "run", f"--kubeconfig={kubeconfig}"]
        command += [f"--secure-port={port}", "--leader-elect=false", *flags]
        if not is_secure:
            command.append("--insecure-loopback")
        if descriptors:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        with ChildProcess("ksched", command, tmp_path / "ksched.log") as process:
            async with aiohttp.ClientSession() as session:
                yield Daemon(process, port, session)

    return start


async def test_terminated_mid_load_it_finishes_what_it_began(server, daemon):
    async with listening(server.api) as url:
        async with daemon(url, "--kube-api-qps=100", "--kube-api-burst=20", "-v=2") as first:
            await until(first.ready, "ready")
            await server.create(*(make_pod(f"p{i}") for i in range(100)))
            await until(server.bound, "the first pod is bound")
            first.process.send_signal(signal.SIGUSR2)
            first.process.send_signal(signal.SIGTERM)
            assert await first.exit_code() == 0
            assert first.told("stopping, bindings that were sent may finish") == 1
            assert first.told("stopped") == 1
            assert first.told("queue") == 5
        bound = {pod["metadata"]["name"] for pod in await server.bound()}
        assert len(server.bindings()) == len(bound) >= 1

        async def all_bound():
            return len(await server.bound()) == 100

        async with daemon(url, "--kube-api-qps=-1") as second:
            await until(all_bound, "the successor binds the rest")
            await until(lambda: _is_whole(second, 100), "the cache has them all")
            second.process.send_signal(signal.SIGUSR2)
            await until(lambda: _told(second, "cache agrees with the API server"), "comparison")
        assert set(server.bindings().values()) == {1}


@pytest.mark.skipif(shutil.which("go") is None, reason="go not found: it has pprof")
async def test_go_tool_pprof_shows_where_a_busy_scheduler_spends_its_time(server, daemon, tmp_path):
    async with listening(server.api) as url, daemon(url, "--kube-api-qps=-1") as running:
        await until(running.ready, "ready")
        address = f"http://127.0.0.1:{running.port}/debug/pprof/profile"
        process = await asyncio.create_subprocess_exec(
            *("go", "tool", "pprof", "-top", "-cum", "-nodecount=500", "-seconds=2", address),
            env={**os.environ, "PPROF_TMPDIR": str(tmp_path), "GOTOOLCHAIN": "local"},
            stdout=asyncio.subprocess.PIPE,
        )
        output = asyncio.ensure_future(process.communicate())
        batches = itertools.count()
        while not output.done():
            batch = next(batches)
            await server.create(*(make_pod(f"p{batch}-{i}") for i in range(10)))
            await asyncio.sleep(0.1)
        top = (await output)[0].decode()
    assert process.returncode == 0
    assert "Type: cpu" in top
    assert "ksched.scheduling.scheduler.Scheduler." in top


async def test_its_port_is_secure_unless_a_flag_says_otherwise(server, daemon):
    server.api.reviews.denied_users.add("bob")
    server.api.reviews.invalid_tokens.add("stolen")
    async with listening(server.api) as url, daemon(url, is_secure=True) as running:

        async def status(path, token=""):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            address = f"https://127.0.0.1:{running.port}{path}"
            try:
                async with running.session.get(address, headers=headers, ssl=False) as answer:
                    return answer.status
            except aiohttp.ClientConnectionError:
                running.process.must_run(0)
                return 0

        async def ready():
            return await status("/readyz") == 200

        await until(ready, "ready")
        assert await status("/metrics") == 401
        assert await status("/metrics", "stolen") == 401
        assert await status("/metrics", "bob") == 403
        assert await status("/metrics", "ada") == 200
        assert await running.get("/metrics") == (0, ""), "plain HTTP"

        bearer = {"Authorization": "Bearer ada"}
        verbosity = f"https://127.0.0.1:{running.port}/debug/flags/v"
        put = running.session.put(verbosity, headers=bearer, data="4", ssl=False)
        async with put as answer:
            assert await answer.text() == "successfully set klog.logging.verbosity to 4\n"
        await until(lambda: _told(running, "verbosity changed"), "the change is told")


async def test_second_signal_ends_it_at_once(server, daemon):
    flags = ("--kube-api-qps=2", "--kube-api-burst=20")
    async with listening(server.api) as url, daemon(url, *flags) as running:
        await until(running.ready, "ready")
        await server.create(*(make_pod(f"p{i}") for i in range(100)))
        await until(server.bound, "the first pod is bound")
        running.process.send_signal(signal.SIGTERM)
        await until(lambda: _is_stopping(running), "unready while it drains")
        running.process.send_signal(signal.SIGTERM)

        assert await running.exit_code() == 1
        assert running.told("second signal, exiting at once") == 1


async def test_unreachable_server_is_told_once_and_waited_for(server, daemon):
    port = free_port()
    await server.create(make_pod("web"))
    async with daemon(f"http://127.0.0.1:{port}") as running:
        await until(lambda: _told(running, "API server does not answer, trying again"), "told")
        status, text = await running.get("/readyz")
        assert status == 500
        assert "[-]informer-sync failed: not all objects are listed yet" in text
        assert (await running.get("/healthz"))[0] == 200
        async with listening(server.api, port):
            await until(server.bound, "bound as soon as the server is there")
        assert running.told("API server answers again") == 1
        assert running.told("API server does not answer, trying again") <= 2


async def test_stops_at_once_when_it_never_reached_a_server(daemon):
    async with daemon(f"http://127.0.0.1:{free_port()}", "--logging-format=json") as running:
        await until(lambda: _told(running, "API server does not answer, trying again"), "told")
        running.process.send_signal(signal.SIGINT)

        assert await running.exit_code() == 0
    lines = [msgspec.json.decode(line) for line in running.process.log().splitlines()]
    assert lines[0]["msg"] == "starting ksched"
    assert lines[-1]["msg"] == "stopped"


async def test_silent_connections_take_no_descriptor_from_the_api_server(server, daemon):
    async with listening(server.api) as url, daemon(url, descriptors=1024) as running:
        await until(running.ready, "ready")
        silent = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(1100)]
        await server.create(*(make_pod(f"p{i}") for i in range(50)))

        async def all_bound():
            return len(await server.bound()) == 50

        await until(all_bound, "pods are bound meanwhile")
        assert await running.ready(), "and health is answered"
        status, text = await running.get("/metrics")
        assert status == 200
        (line,) = (one for one in text.splitlines() if one.startswith("process_open_fds "))
        assert float(line.split()[1]) < 400
        for _, writer in silent:
            writer.transport.abort()


async def test_all_descriptors_that_are_allowed_are_used(server, daemon):
    async with listening(server.api) as url, daemon(url) as running:
        await until(running.ready, "ready")
        _, text = await running.get("/metrics")
    (line,) = (one for one in text.splitlines() if one.startswith("process_max_fds "))
    assert float(line.split()[1]) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]


async def _told(daemon, sentence):
    return daemon.told(sentence)


async def _is_stopping(daemon):
    return "[-]shutdown failed" in (await daemon.get("/readyz"))[1]


async def _is_whole(daemon, pods):
    return f'scheduler_cache_size{{type="pods"}} {pods}.0' in (await daemon.get("/metrics"))[1]

"""The embedded server on a socket."""

from __future__ import annotations

import asyncio
import socket
from io import BytesIO
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml
from aiohttp import web

from ksched.apiserver import http_listener
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.serving import serve
from ksched.clock import LoopClock

pytestmark = pytest.mark.real_time

PODS = "/api/v1/namespaces/default/pods"


def pod(name):
    spec = {"containers": [{"name": "c", "image": "x"}]}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def server():
    return ApiServer(LoopClock())


@pytest.fixture
async def session(server):
    async with listening(server) as url, aiohttp.ClientSession(url) as session:
        yield session


async def test_requests_and_answers(session, server):
    headers = {"Authorization": "Bearer system:kube-scheduler"}
    async with session.post(PODS, json=pod("web"), headers=headers) as response:
        assert response.status == 201
        assert response.headers["Content-Type"] == "application/json"
        assert (await response.json())["metadata"]["name"] == "web"
    async with session.get(f"{PODS}/nope") as response:
        assert response.status == 404
        assert (await response.json())["message"] == 'pods "nope" not found'
    assert [(r.user, r.code) for r in server.requests] == [
        ("system:kube-scheduler", 201),
        ("system:anonymous", 404),
    ]


async def test_a_watch_delivers_each_event_when_it_happens(session):
    async with session.get(f"{PODS}?watch=true") as watch:
        assert watch.status == 200
        for name in ("a", "b"):
            async with session.post(PODS, json=pod(name)):
                pass
            async with asyncio.timeout(5):
                event = msgspec.json.decode(await watch.content.readline())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)


async def test_a_watch_ends_when_its_time_is_up(session):
    async with session.get(f"{PODS}?watch=true&timeoutSeconds=1") as watch:
        async with asyncio.timeout(5):
            assert await watch.content.read() == b""


async def test_a_reader_that_leaves_is_forgotten(session, server):
    watch = await session.get(f"{PODS}?watch=true")
    [collection] = [c for c in server.store.collections() if c.watches]
    watch.close()
    for _ in range(500):
        if not collection.watches:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the watch is still subscribed")


async def test_bodies_have_a_limit(session):
    async with session.post(PODS, data=BytesIO(b" " * 4_000_000)) as response:
        assert response.status == 413
        answer = await response.json()
    assert answer["message"] == "Request entity too large: limit is 3145728"


async def test_large_bodies_below_it_pass(session):
    big = pod("big")
    big["metadata"]["annotations"] = {"note": "x" * 2_000_000}
    body, headers = BytesIO(msgspec.json.encode(big)), {"Content-Type": "application/json"}
    async with session.post(PODS, data=body, headers=headers) as response:
        assert response.status == 201
    async with session.get(PODS) as response:
        assert len(await response.read()) > 2_000_000


async def test_shutting_down_ends_the_watches(server):
    async with aiohttp.ClientSession() as session:
        async with listening(server) as url:
            watch = await session.get(f"{url}{PODS}?watch=true")
        async with asyncio.timeout(5):
            assert await watch.content.read() == b""


async def test_a_reader_that_leaves_as_its_watch_ends_is_no_error():
    class Left(web.StreamResponse):
        async def prepare(self, request):
            return None

        async def write(self, data):
            pass

        async def write_eof(self, data=b""):
            raise ConnectionResetError("Cannot write to closing transport")

    class Ended:
        is_closed = False

        async def batches(self):
            return
            yield

        def close(self):
            self.is_closed = True

    watch = Ended()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web, "StreamResponse", Left)
        await http_listener._stream(None, watch)  # type: ignore[arg-type]
    assert watch.is_closed


async def test_a_taken_port_is_an_error(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="address already in use"):
            async with listening(server, taken.getsockname()[1]):
                pass


def test_the_kubeconfig_leads_to_the_server(tmp_path: Path):
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "http://127.0.0.1:1234", "system:kube-scheduler")
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1234"}
    assert config["users"][0]["user"] == {"token": "system:kube-scheduler"}
    assert config["current-context"] == config["contexts"][0]["name"]


async def test_serve_brings_up_a_whole_cluster(tmp_path: Path):
    ready = asyncio.Event()
    urls = []

    def on_ready(url):
        urls.append(url)
        ready.set()

    async with asyncio.TaskGroup() as tasks:
        path = tmp_path / "kubeconfig"
        task = tasks.create_task(serve(0, 2, path, on_ready=on_ready))
        async with asyncio.timeout(10):
            await ready.wait()
        async with aiohttp.ClientSession(urls[0]) as session:
            async with session.get("/api/v1/nodes") as response:
                nodes = (await response.json())["items"]
            assert [n["metadata"]["name"] for n in nodes] == ["node-0001", "node-0002"]
            assert urls[0] in path.read_text()
        task.cancel()

"""A real kubectl against the embedded server."""

from __future__ import annotations

import asyncio
import copy
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.request import Request
from ksched.apiserver.serving import create_nodes, running_cluster
from ksched.clock import LoopClock

KUBECTL = shutil.which("kubectl")

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH"),
]

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]},
        },
    },
}


class Kubectl:
    """kubectl with a kubeconfig of its own."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        process = await self.start(*arguments)
        output, _ = await process.communicate()
        text = output.decode()
        assert process.returncode == code, text
        return text

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        environment = {
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "HOME": str(self.folder),
            "PATH": "/usr/bin:/bin",
        }
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            "--request-timeout=30s",
            *arguments,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    def file(self, *objects: object) -> str:
        path = self.folder / "objects.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    async def rows(self, *arguments: str) -> list[list[str]]:
        text = await self("get", *arguments, "--no-headers")
        return [line.split() for line in text.splitlines() if "No resources found" not in line]

    async def eventually(self, *arguments: str, count: int, state: str = "") -> list[list[str]]:
        """Get rows until there are so many (in that state)."""
        for _ in range(100):
            rows = [row for row in await self.rows(*arguments) if not state or state in row]
            if len(rows) == count:
                return rows
            await asyncio.sleep(0.1)
        pytest.fail(f"kubectl get {arguments}: wanted {count} rows, got {rows}")


@pytest.fixture
async def kubectl(tmp_path):
    clock = LoopClock()
    server = ApiServer(clock)
    async with running_cluster(server, clock) as transport, listening(server) as url:
        await create_nodes(transport, clock, 2)
        write_kubeconfig(tmp_path / "kubeconfig", url)
        yield Kubectl(server, tmp_path)


def bind(kubectl, name, node="node-0001"):
    body = msgspec.json.encode({"metadata": {"name": name}, "target": {"name": node}})
    path = f"/api/v1/namespaces/default/pods/{name}/binding"
    assert kubectl.server.handle(Request("POST", path, body)).status == 201


async def test_get_describe_and_errors(kubectl):
    assert [row[:3] for row in await kubectl.rows("nodes")] == [
        ["node-0001", "Ready", "<none>"],
        ["node-0002", "Ready", "<none>"],
    ]
    assert "node-0002" in await kubectl("get", "nodes", "-o", "name")
    assert "Allocatable:" in await kubectl("describe", "node", "node-0001")
    missing = await kubectl("get", "pod", "nope", code=1)
    assert missing.strip() == 'Error from server (NotFound): pods "nope" not found'
    assert "v1.36" in await kubectl("version")


async def test_create_bind_and_describe_a_pod(kubectl):
    assert "pod/web created" in await kubectl("run", "web", "--image=nginx")
    uid = await kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web", "uid": uid},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/2 nodes are available",
    }
    await kubectl("create", "-f", kubectl.file(event))
    described = await kubectl("describe", "pod", "web")
    assert "FailedScheduling" in described
    assert "0/2 nodes are available" in described
    bind(kubectl, "web")
    [row] = await kubectl.eventually("pods", "-o", "wide", count=1, state="Running")
    assert row[6] == "node-0001"
    refused = await kubectl("run", "web", "--image=nginx", code=1)
    assert 'pods "web" already exists' in refused


async def test_apply_twice_scale_and_delete(kubectl):
    file = kubectl.file(DEPLOYMENT)
    assert "deployment.apps/web created" in await kubectl("apply", "-f", file)
    assert "deployment.apps/web unchanged" in await kubectl("apply", "-f", file)
    changed = copy.deepcopy(DEPLOYMENT)
    changed["spec"]["replicas"] = 3
    assert "configured" in await kubectl("apply", "-f", kubectl.file(changed))
    await kubectl.eventually("pods", count=3, state="Pending")
    await kubectl("scale", "deployment", "web", "--replicas=1")
    await kubectl.eventually("pods", count=1)
    await kubectl("apply", "--server-side", "--force-conflicts", "-f", kubectl.file(changed))
    await kubectl.eventually("pods", count=3)
    assert 'deployment.apps "web" deleted' in await kubectl("delete", "deployment", "web")
    await kubectl.eventually("pods", count=0)


async def test_label_annotate_taint_and_cordon(kubectl):
    await kubectl("label", "node", "node-0001", "disk=ssd")
    await kubectl("annotate", "node", "node-0001", "note=hello")
    await kubectl("taint", "node", "node-0001", "dedicated=db:NoSchedule")
    node = yaml.safe_load(await kubectl("get", "node", "node-0001", "-o", "yaml"))
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert node["metadata"]["annotations"]["note"] == "hello"
    taint = {"effect": "NoSchedule", "key": "dedicated", "value": "db"}
    assert node["spec"]["taints"] == [taint]
    await kubectl("taint", "node", "node-0001", "dedicated-")
    await kubectl("cordon", "node-0001")
    assert (await kubectl.rows("node", "node-0001"))[0][1] == "Ready,SchedulingDisabled"
    await kubectl("uncordon", "node-0001")
    assert await kubectl.rows("nodes", "-l", "disk=ssd")


async def test_typed_creation_and_draining(kubectl):
    await kubectl("create", "namespace", "team")
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    pods = [row[0] for row in await kubectl.eventually("pods", count=2)]
    for name in pods:
        bind(kubectl, name)
    await kubectl.eventually("pods", count=2, state="Running")
    drained = await kubectl("drain", "node-0001", "--force", "--timeout=20s")
    assert drained.count("evicted") == 2
    await kubectl("delete", "namespace", "team")
    assert ["team"] not in [row[:1] for row in await kubectl.rows("namespaces")]


async def test_watching(kubectl):
    process = await kubectl.start("get", "pods", "-w", "--no-headers")
    assert process.stdout is not None
    try:
        await kubectl("run", "web", "--image=nginx")
        async with asyncio.timeout(10):
            first = (await process.stdout.readline()).decode().split()
            bind(kubectl, "web")
            while "Running" not in (line := (await process.stdout.readline()).decode().split()):
                assert line[0] == "web"
    finally:
        process.terminate()
        await process.communicate()
    assert first[:3] == ["web", "0/1", "Pending"]

"""Many pods over HTTP: every one bound exactly once, no node too full, memory flat afterwards.

Small here; ``make load`` runs it with 1,000 nodes and 5,000 pods.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.api.quantity import milli_value, value
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.serving import running_cluster
from ksched.clock import LoopClock
from ksched.testing import make_node, make_pod
from lab.child_process import ChildProcess

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(900)]

NODES = int(os.environ.get("KSCHED_LOAD_NODES", "50"))
PODS = int(os.environ.get("KSCHED_LOAD_PODS", "300"))
WATCH_MEMORY_SECONDS = float(os.environ.get("KSCHED_LOAD_SECONDS", "1"))
MEBIBYTE = 1 << 20


async def items(transport: InProcessTransport, path: str) -> list[dict[str, Any]]:
    answer = await transport.request("GET", path)
    return msgspec.json.decode(answer.body)["items"]


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
async def test_everything_is_bound_exactly_once_and_nothing_grows(tmp_path: Path) -> None:
    server = ApiServer(LoopClock(), log_length=100 * PODS)
    transport = InProcessTransport(server)

    async def create(path: str, obj: object) -> None:
        answer = await transport.request("POST", path, msgspec.json.encode(obj))
        assert answer.status == 201, answer.body

    for number in range(NODES):
        shape = make_node(f"n{number}").capacity(cpu="4", memory="16Gi", pods="20")
        await create("/api/v1/nodes", shape.to_dict())
    async with listening(server) as url, running_cluster(server, LoopClock()):
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(kubeconfig, url, "scheduler")
        command = [sys.executable, "-m", "ksched", "run", f"--kubeconfig={kubeconfig}"]
        command += ["--secure-port=0", "--leader-elect=false", "--kube-api-qps=5000"]
        command += ["--kube-api-burst=5000"]
        with ChildProcess("ksched", command, tmp_path / "ksched.log") as ksched:
            for number in range(PODS):
                made = make_pod(f"p{number}").req(cpu="500m", memory="1Gi")
                await create("/api/v1/namespaces/default/pods", made.to_dict())
                if number % 50 == 0:
                    await asyncio.sleep(0)
            async with asyncio.timeout(600):
                while True:
                    ksched.must_run(0)
                    pods = await items(transport, "/api/v1/pods")
                    if all(pod["status"].get("phase") == "Running" for pod in pods):
                        break
                    await asyncio.sleep(0.5)
            settled = resident_bytes(ksched.pid)
            await asyncio.sleep(WATCH_MEMORY_SECONDS)
            assert resident_bytes(ksched.pid) - settled < 8 * MEBIBYTE

    bindings = Counter(
        audit.path
        for audit in server.requests
        if audit.resource == "pods/binding" and audit.code == 201
    )
    assert len(bindings) == PODS
    assert set(bindings.values()) == {1}
    cpu: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for pod in pods:
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        cpu[pod["spec"]["nodeName"]] += milli_value(requests["cpu"])
        memory[pod["spec"]["nodeName"]] += value(requests["memory"])
    assert max(cpu.values()) <= 4000
    assert max(memory.values()) <= value("16Gi")

"""``ksched apiserver``: the embedded server, its kubelet and controllers, on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.claim_controller import ClaimController
from ksched.apiserver.controllers import Controllers
from ksched.apiserver.device_driver import DeviceDriver
from ksched.apiserver.http_listener import LOOPBACK, listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.kubelet import Kubelet
from ksched.apiserver.served_resources import JsonObject
from ksched.clock import Clock, LoopClock, rfc3339
from ksched.errors import ApiError
from ksched.transport import Transport

_ZONES = ("zone-a", "zone-b", "zone-c")


GPU_DRIVER = "gpu.example.com"
GPU_CLASS: JsonObject = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": GPU_DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{GPU_DRIVER}"'}}]},
}


async def serve(
    port: int = 0,
    nodes: int = 0,
    kubeconfig_out: Path | None = None,
    *,
    host: str = LOOPBACK,
    devices: int = 0,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until cancelled; ``on_ready`` gets the URL once everything is up.

    Each node has so many ``devices`` of the class ``gpu.example.com``.

    Raises ``OSError`` when the port is taken or the kubeconfig cannot be written.
    """
    clock = LoopClock()
    server = ApiServer(clock)
    async with (
        running_cluster(server, clock, devices) as transport,
        listening(server, port, host=host) as url,
    ):
        await create_nodes(transport, clock, nodes)
        if kubeconfig_out is not None:
            write_kubeconfig(kubeconfig_out, url)
        if on_ready is not None:
            on_ready(url)
        await asyncio.Event().wait()


@asynccontextmanager
async def running_cluster(
    server: ApiServer, clock: Clock, devices: int = 0
) -> AsyncIterator[Transport]:
    """Run kubelet, controllers and, if nodes have devices, a driver during the block."""
    async with asyncio.TaskGroup() as tasks:
        kubelet = Kubelet(InProcessTransport(server, "system:nodes"), clock)
        manager = InProcessTransport(server, "system:kube-controller-manager")
        controllers = Controllers(manager, clock)
        claims = ClaimController(manager, clock)
        workers = [
            tasks.create_task(kubelet.run(), name="kubelet"),
            tasks.create_task(controllers.run(), name="controllers"),
            tasks.create_task(claims.run(), name="claims"),
        ]
        transport = InProcessTransport(server)
        if devices:
            driver = DeviceDriver(
                InProcessTransport(server, GPU_DRIVER), clock, GPU_DRIVER, simulated_gpus(devices)
            )
            workers.append(tasks.create_task(driver.run(), name="driver"))
            body = msgspec.json.encode(GPU_CLASS)
            await transport.request("POST", "/apis/resource.k8s.io/v1/deviceclasses", body)
        try:
            yield transport
        finally:
            for worker in workers:
                worker.cancel()


def simulated_gpus(count: int) -> list[JsonObject]:
    """Devices of one node, alike but for their index."""
    return [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "simulated"}, "index": {"int": number}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(count)
    ]


async def create_nodes(transport: Transport, clock: Clock, count: int) -> list[str]:
    """Create ready nodes ``node-0001`` and so on, spread over three zones; return their names."""
    names = []
    for number in range(1, count + 1):
        created = node(number, rfc3339(clock.wall()))
        body = msgspec.json.encode(created)
        response = await transport.request("POST", "/api/v1/nodes", body)
        # A node that is there already stays as it is.
        if response.status not in (201, 409):
            raise ApiError(response.status, "", f"node {number}: {response.body.decode()}")
        names.append(created["metadata"]["name"])
    return names


def node(number: int, now: str) -> JsonObject:
    """Return a node as its kubelet would register it."""
    name = f"node-{number:04}"
    resources = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    ready = {"lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "KubeletReady"}
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)],
            },
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": f"192.168.{number >> 8 & 255}.{number & 255}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "message": "kubelet is posting ready status",
                    **ready,
                }
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.0",
                "osImage": "simulated",
                "kernelVersion": "simulated",
                "containerRuntimeVersion": "simulated://1",
                "architecture": "amd64",
                "operatingSystem": "linux",
            },
        },
    }

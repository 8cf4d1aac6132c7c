"""Simulated nodes for any API server: registered, alive by their leases, running their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from ksched.apiserver.controller_requests import send
from ksched.apiserver.kubelet import Kubelet
from ksched.apiserver.object_cache import ObjectCache
from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.serving import create_nodes
from ksched.clock import Clock, rfc3339_micro
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, Transport

RENEW_SECONDS = 10.0
LEASE_SECONDS = 40
STATUS_SECONDS = 1.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def simulate_nodes(
    transport: Transport,
    clock: Clock,
    count: int,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Register so many nodes, or take over those of an earlier run, and run their pods for ever.

    Pods on other nodes are left alone. Raises ``ApiError`` when a node is refused.
    """
    names = await create_nodes(transport, clock, count)
    kubelet = Kubelet(transport, clock, only=frozenset(names))
    nodes = ObjectCache(transport, clock, "/api/v1/nodes", lambda node, present: None)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(nodes.run(), name="nodes")
        tasks.create_task(offer_resources(transport, clock, nodes, names), name="node status")
        tasks.create_task(renew_leases(transport, clock, names), name="node leases")
        tasks.create_task(kubelet.run(), name="kubelet")
        if on_ready is not None:
            on_ready()


async def renew_leases(transport: Transport, clock: Clock, names: Sequence[str]) -> None:
    """Renew the lease of every node for ever; without it the node is soon taken for dead."""
    while True:
        for name in names:
            try:
                await _renew(transport, clock, name)
            except Unavailable:
                break
        await clock.sleep(RENEW_SECONDS)


async def _renew(transport: Transport, clock: Clock, name: str) -> None:
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": rfc3339_micro(clock.wall()),
    }
    if await send(transport, "PATCH", f"{_LEASES}/{name}", {"spec": spec}, MERGE_PATCH) is None:
        lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
        await send(transport, "POST", _LEASES, lease)


async def offer_resources(
    transport: Transport, clock: Clock, nodes: ObjectCache, names: Sequence[str]
) -> None:
    """Make the extended resources of a node's capacity allocatable, as a kubelet does, for ever."""
    while True:
        await clock.sleep(STATUS_SECONDS)
        for name in names:
            node = nodes.objects.get(name)
            if node is not None and (changed := _changed_allocatable(node["status"])):
                patch = {"status": {"allocatable": changed}}
                with suppress(Unavailable):
                    path = f"/api/v1/nodes/{name}/status"
                    await send(transport, "PATCH", path, patch, MERGE_PATCH)


def _changed_allocatable(status: JsonObject) -> JsonObject:
    """What a merge patch has to set or, with ``None``, to take away."""
    wanted, offered = (
        {name: amount for name, amount in (status.get(field) or {}).items() if "/" in name}
        for field in ("capacity", "allocatable")
    )
    gone = dict.fromkeys(offered.keys() - wanted.keys())
    return gone | {name: amount for name, amount in wanted.items() if offered.get(name) != amount}

"""Simulated nodes for any API server: registered, alive by their leases, running their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ksched.apiserver.controller_requests import send
from ksched.apiserver.kubelet import Kubelet
from ksched.apiserver.serving import create_nodes
from ksched.clock import Clock, rfc3339_micro
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, Transport

RENEW_SECONDS = 10.0
LEASE_SECONDS = 40
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
    async with asyncio.TaskGroup() as tasks:
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

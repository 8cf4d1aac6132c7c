"""Writes are judged by the lease that the server stored. Covers ``lab.elected_replicas`` too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.errors import Unavailable
from ksched.testing import cluster
from ksched.testing.virtual_time import VirtualClock
from lab.elected_replicas import ElectedReplicas
from lab.lease_watch import WINDOW_SECONDS, LeaseWatch, Wire

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"


class Site:
    """A server, and the wires of replicas a and b."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.late: list[str] = []
        self.faults = Faults()
        server = ApiServer(VirtualClock())
        self.lease = LeaseWatch(server, self.problems.append, self.late.append)
        self.a, self.b = (Wire(server, name, self.faults, self.lease) for name in "ab")


async def send(wire: Wire, method: str, path: str, **fields: object) -> None:
    """Send an object named x."""
    body = msgspec.json.encode({"metadata": {"name": "x"}, **fields})
    await wire.request(method, path, body)


async def put_holder(wire: Wire, holder: str) -> None:
    """Write the lease that was created by another."""
    answer = await wire.request("GET", f"{LEASES}/x")
    lease = {**msgspec.json.decode(answer.body), "spec": {"holderIdentity": holder}}
    await wire.request("PUT", f"{LEASES}/x", msgspec.json.encode(lease))


def write(wire: Wire) -> Awaitable[None]:
    return send(wire, "POST", CONFIG_MAPS)


async def test_only_the_holder_may_write() -> None:
    site = Site()
    await send(site.a, "POST", LEASES, spec={"holderIdentity": "a"})
    await write(site.a)
    assert site.lease.holder == "a"
    await send(site.b, "POST", EVENTS)
    assert site.problems == []

    await write(site.b)

    assert [problem.partition(",")[0] for problem in site.problems] == 2 * [
        f"b: POST {CONFIG_MAPS}"
    ]


@pytest.mark.parametrize("seconds", [WINDOW_SECONDS, WINDOW_SECONDS + 1])
async def test_a_write_that_was_sent_in_time_may_be_late_only_by_the_window(seconds: float) -> None:
    site = Site()
    await send(site.a, "POST", LEASES, spec={"holderIdentity": "a"})
    site.faults.rules.append(Rule(Fault(delay_seconds=seconds), "create", "configmaps"))
    sending = asyncio.ensure_future(write(site.a))
    await asyncio.sleep(0.5 * WINDOW_SECONDS)
    # The sender is killed; what it has sent arrives.
    sending.cancel()
    await put_holder(site.b, "b")
    await asyncio.sleep(2 * WINDOW_SECONDS)

    assert len(site.problems) == (seconds <= WINDOW_SECONDS)


@pytest.mark.parametrize("patience", [1.0, 3.0])
async def test_a_bind_that_is_performed_after_it_was_given_up_is_told(patience: float) -> None:
    site = Site()
    await send(site.a, "POST", LEASES, spec={"holderIdentity": "a"})
    site.faults.rules.append(Rule(Fault(delay_seconds=2.0), "create", "pods/binding"))
    with suppress(Unavailable):
        await site.a.request("POST", f"{PODS}/x/binding", b"{}", timeout=patience)
    await asyncio.sleep(5)
    assert site.late == (["default/x"] if patience < 2 else [])


async def test_nobody_may_write_after_a_release() -> None:
    site = Site()
    await send(site.a, "POST", LEASES, spec={"holderIdentity": "a"})
    await put_holder(site.a, "")
    await write(site.a)
    assert "with nobody" in site.problems[0]


async def test_another_replica_leads_when_the_leader_is_killed_frozen_cut_off_or_stopped() -> None:
    problems: list[str] = []
    async with (
        cluster(1, start=False, check_declarations=False) as c,
        ElectedReplicas.running(c, 1, problems.append, problems.append) as replicas,
    ):
        leaders = [replicas.leader]
        for harm in (
            replicas.kill,
            lambda leader: replicas.freeze(leader, 30),
            lambda leader: replicas.cut_off(leader, Fault(hang=True), "", 30),
            lambda leader: leader.stop(),
        ):
            await c.advance(30)
            harm(replicas.leader)
            await c.advance(30)
            leaders.append(replicas.leader)
        assert len(set(leaders)) == 5
        assert c.scheduler is leaders[-1].scheduler
    assert replicas.happened["lease lost: not renewed for 10 seconds"] == 2
    assert replicas.happened["stopped"] == 1
    assert problems == []

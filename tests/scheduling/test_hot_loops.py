"""Plugins whose rejections wake each other: attempts and requests follow the backoff all the same.

Each of these made hundreds of attempts a second: its own status patch, a sibling that gave its
place back or a wait of no time woke the pod, and an idle scheduler popped it before its pause was
over.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.api.resources import PODS
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.serving import create_nodes
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    PermitResult,
    Resource,
    Status,
    pending,
    unschedulable,
    wait,
)
from ksched.framework.handle import Handle
from ksched.testing import Cluster, cluster, make_pod
from lab.child_process import ChildProcess
from lab.control_plane import free_ports, scheduler_config

NAMES = ("a", "b", "c")
MOST_ATTEMPTS = 12
"""Of one pod in its first minute."""
REQUESTS_PER_ATTEMPT = 5
"""A nomination and its end, a condition, an Event, and its count."""
SCHEDULER = "system:kube-scheduler"
READING = ("get", "list", "watch")
ATTEMPTS = re.compile(r"^scheduler_schedule_attempts_total\{.*\} (\S+)$", re.MULTILINE)


class Counting:
    """Counts attempts; what it answers is for others to say."""

    name = "Counting"

    def __init__(self, args: Any, handle: Handle) -> None:
        self.handle = handle
        self.attempts: Counter[str] = Counter()

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        self.attempts[pod.name] += 1
        return Status()

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        """Nothing is kept."""

    def reject_others(self) -> None:
        for other in self.handle.waiting_pods():
            other.reject(self.name, "another one came")


class RejectsSiblings(Counting):
    """Sends back whoever waits as soon as another one comes, and registers for no event."""

    def permit(self, state: Any, pod: Any, node_name: str) -> PermitResult:
        self.reject_others()
        return PermitResult(wait(), 3)


class RejectsAll(Counting):
    """Lets nothing pass."""

    def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        return unschedulable("never")


class PendingWhileOneWaits(Counting):
    """Would have backoffs skipped, for what looks like its own siblings' releases."""

    def permit(self, state: Any, pod: Any, node_name: str) -> Status | PermitResult:
        if pod.name == "a":
            return PermitResult(wait(), 0.001)
        self.reject_others()
        return pending("not yet")

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [ClusterEventWithHint(ClusterEvent(Resource.POD, Action.DELETE))]


class WaitsForNoTime(Counting):
    """Answers ``wait()`` and never says for how long."""

    def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        return wait()


class WaitsForAMoment(Counting):
    """Holds its pods for a millisecond."""

    permit_wait_seconds = 0.001

    def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        return wait()


HOT = [RejectsSiblings, PendingWhileOneWaits, WaitsForNoTime, WaitsForAMoment]


async def first_minute(c: Cluster, check: Callable[[], None]) -> None:
    """Second by second, so that a loop ends the test instead of the test run."""
    for _ in range(60):
        await c.advance(1)
        check()


def writes(server: ApiServer) -> int:
    return sum(
        request.user == SCHEDULER and request.verb not in READING for request in server.requests
    )


@pytest.mark.parametrize("plugin", HOT)
async def test_attempts_and_requests_follow_the_backoff(plugin: type[Counting]) -> None:
    made: list[Counting] = []

    def factory(args: Any, handle: Handle) -> Counting:
        made.append(plugin(args, handle))
        return made[0]

    async with cluster(nodes=2, plugins={"Counting": factory}) as c:
        await c.create(*(make_pod(name) for name in NAMES))

        def check() -> None:
            attempts = made[0].attempts
            assert max(attempts.values()) <= MOST_ATTEMPTS, attempts
            assert writes(c.server) <= REQUESTS_PER_ATTEMPT * attempts.total()

        await first_minute(c, check)
        if plugin in HOT[:1]:
            assert min(made[0].attempts[name] for name in NAMES) >= 5


async def test_attempts_follow_the_backoff_while_other_pods_come_and_go() -> None:
    """Each bind and each deletion is an event that a plugin without hints is woken by."""
    made: list[Counting] = []

    class Picky(RejectsSiblings):
        def permit(self, state: Any, pod: Any, node_name: str) -> PermitResult:
            if pod.name not in NAMES:
                return PermitResult()
            return super().permit(state, pod, node_name)

    def factory(args: Any, handle: Handle) -> Counting:
        made.append(Picky(args, handle))
        return made[0]

    async with cluster(nodes=2, plugins={"Counting": factory}) as c:
        await c.create(*(make_pod(name) for name in NAMES))
        for number in range(240):
            await c.create(make_pod(f"passer-by-{number}"))
            await c.advance(0.125)
            await c.delete(f"passer-by-{number}", grace_seconds=0)
            await c.advance(0.125)
            attempts = made[0].attempts
            assert max(attempts[name] for name in NAMES) <= MOST_ATTEMPTS
        assert min(attempts[name] for name in NAMES) >= 5
        assert attempts["passer-by-239"] == 1


async def test_a_change_by_its_owner_still_wakes_a_pod() -> None:
    """Also one that comes together with, or right after, our own patch of its status."""
    made: list[Counting] = []

    def factory(args: Any, handle: Handle) -> Counting:
        made.append(RejectsAll(args, handle))
        return made[0]

    async with cluster(nodes=1, plugins={"Counting": factory}) as c:
        await c.create(make_pod("a"))
        await c.settle()
        assert made[0].attempts["a"] == 1
        await c.advance(20)
        assert made[0].attempts["a"] == 1
        await c.patch("a", {"metadata": {"annotations": {"size": "smaller"}}})
        await c.settle()
        assert made[0].attempts["a"] == 2
        await c.advance(20)
        foreign = {"status": {"nominatedNodeName": "n1"}}
        await c.patch("a", foreign, subresource="status")
        await c.settle()
        assert made[0].attempts["a"] == 3


@pytest.mark.real_time
async def test_a_daemon_does_not_spin(tmp_path: Path) -> None:
    """A process of its own with the worst of these plugins installed; only upper bounds count."""
    install(RejectsSiblings, tmp_path)
    server, clock = ApiServer(LoopClock()), LoopClock()
    transport = InProcessTransport(server, "test")
    await create_nodes(transport, clock, 2)
    [port] = free_ports(1)
    async with listening(server) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url, SCHEDULER)
        config = scheduler_config(tmp_path / "kubeconfig")
        config["profiles"][0]["plugins"] = {"multiPoint": {"enabled": [{"name": "Counting"}]}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        paths = f"PYTHONPATH={tmp_path}:{Path(__file__).parents[1]}"
        command = ["env", paths, sys.executable, "-m", "ksched", "run"]
        command += [
            f"--config={tmp_path / 'config.json'}",
            f"--secure-port={port}",
            "--insecure-loopback",
        ]
        with ChildProcess("ksched", command, tmp_path / "ksched.log") as daemon:
            client = ApiClient(transport, clock)
            for name in NAMES:
                body = msgspec.json.encode(make_pod(name).to_dict())
                await client.create(PODS, "default", body)
            for _ in range(100):
                await asyncio.sleep(0.1)
                daemon.must_run(0)
                if writes(server):
                    break
            began = clock.now()
            await asyncio.sleep(5)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            metrics = (await reader.read()).decode()
            writer.close()
            waited = clock.now() - began
    attempts = sum(float(number) for number in ATTEMPTS.findall(metrics))
    assert 3 * len(NAMES) <= attempts + len(NAMES)
    assert attempts <= len(NAMES) * (3 + waited / 2)
    assert writes(server) <= REQUESTS_PER_ATTEMPT * (attempts + len(NAMES))


def install(plugin: type[Counting], folder: Path) -> None:
    """What a package with the plugin under our entry point leaves on the path."""
    metadata = folder / "hot-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hot\nVersion: 1.0\n")
    where = f"{__name__}:{plugin.__name__}"
    (metadata / "entry_points.txt").write_text(f"[ksched.plugins]\nCounting = {where}\n")

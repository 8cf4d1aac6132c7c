"""Three replicas on a real API server, under load, and everything that can happen to a process.

``KSCHED_HA_ROUNDS`` asks for more rounds of disasters than the few of an ordinary run,
``KSCHED_HA_LEASE`` for another lease duration in seconds (15 is the default of a real cluster).
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.workloads import node, pod
from lab.assets import Assets
from lab.audit_log import AuditLog, Bind, LeaseWrite
from lab.child_process import ChildProcess
from lab.control_plane import ADMIN, HOST, KSCHED, KUBE_SCHEDULER, ControlPlane
from lab.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("KSCHED_HA_ROUNDS", "5"))
LEASE_SECONDS = float(os.environ.get("KSCHED_HA_LEASE", "4"))
RENEW_SECONDS, RETRY_SECONDS = LEASE_SECONDS * 3 / 4, LEASE_SECONDS / 8
# As 20 s are to a lease of 15 s.
STOPPED_SECONDS = LEASE_SECONDS * 4 / 3
PODS_PER_SECOND = 60
NODES = 80
PATIENCE_SECONDS = 60.0
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"


def election(name: str) -> dict[str, Any]:
    return {
        "leaderElection": {
            "leaderElect": True,
            "leaseDuration": f"{LEASE_SECONDS}s",
            "renewDeadline": f"{RENEW_SECONDS}s",
            "retryPeriod": f"{RETRY_SECONDS}s",
            "resourceName": name,
        }
    }


def _has_binds(audit: AuditLog, count: int) -> bool:
    return len(audit.binds()) > count


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)
    return found


@contextmanager
def load(plane: ControlPlane) -> Iterator[list[str]]:
    """Create pods at a steady pace beside the block; gives their names."""
    names: list[str] = []
    ended = threading.Event()

    def create() -> None:
        port = int(plane.url.rpartition(":")[2])
        wire = http.client.HTTPSConnection(HOST, port, timeout=30, context=plane.ssl_context())
        headers = {"Authorization": f"Bearer {ADMIN.token}", "Content-Type": "application/json"}
        while not ended.wait(1 / PODS_PER_SECOND):
            body = pod(len(names), "basic")
            wire.request("POST", PODS, json.dumps(body), headers)
            answer = wire.getresponse()
            answer.read()
            assert answer.status == 201
            names.append(body["metadata"]["name"])
        wire.close()

    thread = threading.Thread(target=create, name="load")
    thread.start()
    try:
        yield names
    finally:
        ended.set()
        thread.join()


class Replica:
    """One ``ksched run`` behind a cable of its own, by whose address the audit log knows it."""

    def __init__(self, plane: ControlPlane, number: int, proxy: TcpProxy) -> None:
        self.name, self.proxy = f"replica-{number}", proxy
        # Both ways of taking a lost lease are tried.
        self.stands_by = number == 0
        self._plane = plane
        self._log_began = 0
        self.process = self._start()

    def _start(self) -> ChildProcess:
        flags = [f"--master={self.proxy.url}"]
        if self.stands_by:
            flags.append("--on-lease-lost=standby")
        return self._plane.ksched(self.name, flags=flags, config=election("ksched"))

    def restart(self) -> None:
        self._log_began = len(self.process.log())
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()

    def is_candidate(self) -> bool:
        """Whether it follows, or leads, since it started or lost its lease."""
        recent = self.process.log()[self._log_began :].rpartition('"leader election lost"')[2]
        return '"another replica leads"' in recent or '"became leader"' in recent

    def has_led_as(self, identity: str) -> bool:
        pattern = rf'"became leader".*identity="{re.escape(identity)}"'
        return re.search(pattern, self.process.log()) is not None


class Fleet:
    """All replicas, and what may happen to the one that leads."""

    def __init__(self, plane: ControlPlane, audit: AuditLog, replicas: list[Replica]) -> None:
        self._plane, self._audit, self.replicas = plane, audit, replicas
        self.take_overs: list[tuple[str, float, float]] = []
        """What happened, after how many seconds somebody else led, and how many it may take."""

    def wait_complete(self) -> None:
        for replica in self.replicas:
            until(replica.is_candidate, f"{replica.name} follows or leads")

    def leader(self) -> Replica:
        def holder() -> Replica | None:
            lease = self._plane.request("GET", f"{LEASE}/ksched").body
            identity = lease.get("spec", {}).get("holderIdentity") or "nobody"
            return next((one for one in self.replicas if one.has_led_as(identity)), None)

        found: Replica = until(holder, "somebody leads")
        return found

    def _taken_over(self, what: str, old: Replica, at: float, within: float) -> None:
        def next_write() -> LeaseWrite | None:
            return next(
                (
                    write
                    for write in self._audit.lease_writes()
                    if write.ended > at and write.holder and write.source != old.proxy.source
                ),
                None,
            )

        write = until(next_write, f"somebody takes over from {old.name} after {what}")
        self.take_overs.append((what, write.ended - at, within))

    def kill(self) -> None:
        leader, at = self.leader(), time.time()
        leader.process.send_signal(signal.SIGKILL)
        self._taken_over("kill -9", leader, at, LEASE_SECONDS + RETRY_SECONDS)
        leader.process.wait(10)
        leader.restart()

    def stop_for_a_while(self) -> None:
        leader, at = self.leader(), time.time()
        leader.process.send_signal(signal.SIGSTOP)
        self._taken_over("SIGSTOP", leader, at, LEASE_SECONDS + RETRY_SECONDS)
        time.sleep(max(at + STOPPED_SECONDS - time.time(), 0))
        leader.process.send_signal(signal.SIGCONT)
        self._lost_its_lease(leader)

    def terminate(self) -> None:
        leader, at = self.leader(), time.time()
        leader.process.send_signal(signal.SIGTERM)
        self._taken_over("SIGTERM", leader, at, 1.0)
        assert leader.process.wait(15) == 0, leader.process.log()
        leader.restart()

    def cut_off(self) -> None:
        leader, at = self.leader(), time.time()
        leader.proxy.cut()
        self._taken_over("cut", leader, at, LEASE_SECONDS + RETRY_SECONDS)
        time.sleep(RETRY_SECONDS)
        leader.proxy.heal()
        self._lost_its_lease(leader)

    def _lost_its_lease(self, replica: Replica) -> None:
        if replica.stands_by:
            until(lambda: '"leader election lost"' in replica.process.log(), "it knows")
            assert replica.process.exit_code is None, replica.process.log()
            return
        assert replica.process.wait(30) == 1, replica.process.log()
        replica.restart()


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit", "ksched")


@pytest.fixture
def plane(assets: Assets, tmp_path: Path, audit: AuditLog) -> Iterator[ControlPlane]:
    with ControlPlane.running(tmp_path / "plane", assets, audit.flags) as plane:
        plane.kubectl("apply", "-f", "-", stdin=RBAC.read_text())
        for number in range(NODES):
            assert plane.request("POST", "/api/v1/nodes", node(number)).status == 201
        yield plane


@pytest.fixture
def fleet(plane: ControlPlane, audit: AuditLog) -> Iterator[Fleet]:
    with ExitStack() as stack:
        port = int(plane.url.rpartition(":")[2])
        proxies = [stack.enter_context(TcpProxy(port, f"127.0.0.{2 + i}")) for i in range(3)]
        replicas = [Replica(plane, number, proxy) for number, proxy in enumerate(proxies)]
        for replica in replicas:
            stack.callback(replica.kill)
        yield Fleet(plane, audit, replicas)


def all_bound(plane: ControlPlane, names: list[str]) -> bool:
    pods = plane.request("GET", PODS).body["items"]
    bound = {item["metadata"]["name"] for item in pods if item["spec"].get("nodeName")}
    return bound >= set(names)


def test_one_replica_binds_whatever_happens_to_the_others(
    plane: ControlPlane, audit: AuditLog, fleet: Fleet
) -> None:
    disasters = [fleet.kill, fleet.stop_for_a_while, fleet.terminate, fleet.cut_off]
    seed = int(os.environ.get("KSCHED_HA_SEED", "0")) or random.randrange(1, 10**6)
    rng = random.Random(seed)
    rounds = [*disasters, *rng.choices(disasters, k=max(ROUNDS - len(disasters), 0))]
    rng.shuffle(rounds)
    with load(plane) as names:
        for disaster in rounds:
            fleet.wait_complete()
            twenty_more = len(audit.binds()) + 20
            until(partial(_has_binds, audit, twenty_more), "the leader binds")
            disaster()
    until(lambda: all_bound(plane, names), "every pod is bound")

    assert audit.problems() == [], f"seed {seed}"
    late = [
        f"{what}: {after:.2f} s, wanted at most {within:g} s"
        for what, after, within in fleet.take_overs
        if after > within
    ]
    assert not late, f"seed {seed}: {late}"


class Rivals:
    """ksched and the real kube-scheduler as candidates for kube-scheduler's own lease."""

    def __init__(self, plane: ControlPlane, audit: AuditLog) -> None:
        self._plane, self._audit, self._pods = plane, audit, 0
        # As config/rbac.yaml says for a ksched in kube-scheduler's place.
        role = RBAC.read_text().replace(
            "resourceNames: [ksched]", "resourceNames: [kube-scheduler]"
        )
        plane.kubectl("apply", "-f", "-", stdin=role)

    def kube_scheduler(self) -> ChildProcess:
        return self._plane.kube_scheduler(config=election("kube-scheduler"))

    def ksched(self) -> ChildProcess:
        return self._plane.ksched(config=election("kube-scheduler"))

    def lease(self) -> dict[str, Any]:
        spec = self._plane.request("GET", f"{LEASE}/kube-scheduler").body.get("spec")
        return spec or {"holderIdentity": ""}

    def next_leader(self, after: dict[str, Any] | None = None) -> dict[str, Any]:
        """The lease as soon as somebody holds it who did not before."""
        known = ("", after["holderIdentity"] if after else "")
        until(lambda: self.lease()["holderIdentity"] not in known, "another replica leads")
        return self.lease()

    def binder(self) -> str:
        """The user who binds a new pod."""
        body = pod(self._pods, "basic")
        self._pods += 1
        assert self._plane.request("POST", PODS, body).status == 201

        def bind() -> list[Bind]:
            return [one for one in self._audit.binds() if one.pod == body["metadata"]["name"]]

        (bound,) = until(bind, "the pod is bound")
        assert bound.code == 201
        user: str = bound.user
        return user

    def told(self) -> list[str]:
        """What the events on the lease say, without the identities."""
        events = self._plane.request("GET", "/api/v1/namespaces/kube-system/events").body["items"]
        about = [one for one in events if one["involvedObject"]["name"] == "kube-scheduler"]
        assert all(one["reason"] == "LeaderElection" for one in about)
        assert all(one["involvedObject"]["kind"] == "Lease" for one in about)
        return sorted(one["message"].partition(" ")[2] for one in about)


def test_kube_scheduler_and_ksched_respect_each_other(plane: ControlPlane, audit: AuditLog) -> None:
    rivals = Rivals(plane, audit)
    with ExitStack() as stack:
        kube_scheduler = stack.enter_context(rivals.kube_scheduler())
        theirs = rivals.next_leader()
        ksched = stack.enter_context(rivals.ksched())
        until(lambda: '"another replica leads"' in ksched.log(), "ksched follows")
        assert rivals.binder() == KUBE_SCHEDULER.name

        # Given back: taken at once, with one more transition.
        assert kube_scheduler.stop() == 0
        ours = rivals.next_leader(theirs)
        assert f'identity="{ours["holderIdentity"]}"' in ksched.log()
        assert ours["leaseTransitions"] == theirs["leaseTransitions"] + 1
        assert ours.keys() == theirs.keys()
        assert rivals.binder() == KSCHED.name

        # A living ksched keeps kube-scheduler waiting for longer than a lease.
        kube_scheduler = stack.enter_context(rivals.kube_scheduler())
        time.sleep(2 * LEASE_SECONDS)
        assert rivals.lease()["holderIdentity"] == ours["holderIdentity"]
        assert rivals.binder() == KSCHED.name

        # Gone without a word: taken when it has expired.
        ksched.kill()
        theirs = rivals.next_leader(ours)
        assert theirs["leaseTransitions"] == ours["leaseTransitions"] + 1
        assert rivals.binder() == KUBE_SCHEDULER.name

        # And the other way round.
        ksched = stack.enter_context(rivals.ksched())
        until(lambda: '"another replica leads"' in ksched.log(), "ksched follows")
        kube_scheduler.kill()
        ours = rivals.next_leader(theirs)
        assert rivals.binder() == KSCHED.name

        # kube-scheduler takes what ksched gives back.
        stack.enter_context(rivals.kube_scheduler())
        assert ksched.stop() == 0
        rivals.next_leader(ours)
        assert rivals.binder() == KUBE_SCHEDULER.name
    assert rivals.told().count("became leader") >= 4
    assert "stopped leading" in rivals.told()

"""python -m lab.gang_kills: kill -9 of the leader while it binds gangs, on a real API server.

    python -m lab.gang_kills --rounds 50

Two replicas of ksched hold one lease. In every round gangs of all dialects come, and after a random
time the process that leads is killed; the other one takes over when the lease has expired. Then all
gangs must be whole, and no pod may have been bound twice.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import yaml

from bench.load_generator import CREATORS, NODES, PODS, LoadGenerator, share_out
from bench.workloads import node
from ksched.errors import KschedError
from lab.assets import Assets
from lab.audit_log import AuditLog
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane
from lab.gangs import DIALECTS, KINDS, Gang

CONFIG = Path(__file__).parents[1] / "config"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ksched"
FLAGS = (
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
)
PROFILES = yaml.safe_load((CONFIG / "examples" / "gangs.yaml").read_text())["profiles"]
LEASE_SECONDS = 4.0
PATIENCE_SECONDS = 60.0
GANGS, SIZE = 6, 12
BINDS_PER_SECOND = 60
"""So few that the binds of a gang take a while."""
KILLED_WITHIN_SECONDS = 1.5


@dataclass
class Killed:
    """What came of all rounds."""

    rounds: int = 0
    gangs: int = 0
    cut: int = 0
    """Gangs of which some members were bound, and not all, when the leader was killed."""


class Fleet:
    """Two replicas."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        self._plane, self._stack = plane, stack
        self._replicas = [self._start(f"replica-{number}") for number in range(2)]

    def _start(self, name: str) -> ChildProcess:
        seconds = LEASE_SECONDS
        config = {
            "leaderElection": {
                "leaderElect": True,
                "leaseDuration": f"{seconds}s",
                "renewDeadline": f"{seconds * 3 / 4}s",
                "retryPeriod": f"{seconds / 8}s",
                "resourceName": "ksched",
            },
            "clientConnection": {
                "kubeconfig": str(self._plane.kubeconfig("ksched")),
                "qps": BINDS_PER_SECOND,
                "burst": 1,
            },
            "profiles": PROFILES,
        }
        return self._stack.enter_context(self._plane.ksched(name, config=config))

    async def leader(self) -> int:
        """The number of the replica that leads."""
        deadline = monotonic() + PATIENCE_SECONDS
        while monotonic() < deadline:
            lease = self._plane.request("GET", LEASE).body
            identity = (lease.get("spec") or {}).get("holderIdentity") or "nobody"
            pattern = rf'"became leader".*identity="{re.escape(identity)}"'
            for number, replica in enumerate(self._replicas):
                if replica.exit_code is None and re.search(pattern, replica.log()):
                    return number
            await asyncio.sleep(0.1)
        raise KschedError(f"nobody leads after {PATIENCE_SECONDS:g} s")

    def kill(self, number: int) -> None:
        replica = self._replicas[number]
        replica.kill()
        self._replicas[number] = self._start(replica.name)


class Kills:
    """Rounds of gangs and kills on one control plane."""

    def __init__(self, load: LoadGenerator, fleet: Fleet, rng: random.Random) -> None:
        self._load, self._fleet, self._rng = load, fleet, rng
        self.killed = Killed()

    async def round(self) -> None:
        number = self.killed.rounds
        gangs = [
            Gang(DIALECTS[index % len(DIALECTS)], f"r{number}-{index}", SIZE)
            for index in range(GANGS)
        ]
        leader = await self._fleet.leader()
        await self._create(gangs)
        await asyncio.sleep(self._rng.uniform(0, KILLED_WITHIN_SECONDS))
        self._fleet.kill(leader)
        bound = await self._bound(gangs)
        self.killed.cut += sum(0 < one < SIZE for one in bound)
        deadline = monotonic() + PATIENCE_SECONDS
        while any(one < SIZE for one in await self._bound(gangs)):
            if monotonic() > deadline:
                bound = await self._bound(gangs)
                raise KschedError(f"round {number}: {bound} of {SIZE} are bound")
            await asyncio.sleep(0.2)
        self.killed.rounds += 1
        self.killed.gangs += len(gangs)
        await self._load.clear_pods()

    async def _create(self, gangs: Sequence[Gang]) -> None:
        for gang in gangs:
            for one in gang.objects():
                await self._load.post(KINDS[gang.dialect].resource.path("default"), one)
        bodies = [pod.to_dict() for gang in gangs for pod in gang.pods()]
        await share_out(bodies, CREATORS, self._load.create_pod)

    async def _bound(self, gangs: Sequence[Gang]) -> list[int]:
        pods: list[dict[str, Any]] = msgspec.json.decode(await self._load.text(PODS))["items"]
        bound = Counter(
            pod["metadata"]["name"].rpartition("-")[0]
            for pod in pods
            if pod["spec"].get("nodeName")
        )
        return [bound[gang.name] for gang in gangs]


async def play(plane: ControlPlane, audit: AuditLog, rounds: int, seed: int) -> Killed:
    """Play some rounds; raises ``KschedError`` for a gang that is left cut or a second bind."""
    with ExitStack() as stack:
        fleet = Fleet(plane, stack)
        async with LoadGenerator.connected(plane) as load:
            kills = Kills(load, fleet, random.Random(seed))
            for body in _nodes():
                await load.post(NODES, body)
            for _ in range(rounds):
                await kills.round()
            await load.delete(NODES)
    done = Counter(one.pod for one in audit.binds() if one.code == 201)
    twice = [pod for pod, times in done.items() if times > 1]
    if twice:
        raise KschedError(f"seed {seed}: bound twice: {twice}")
    return kills.killed


def _nodes() -> Iterator[dict[str, Any]]:
    """Room for all gangs of a round, and not for two of each."""
    for index in range(GANGS):
        body = node(index)
        for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
            amounts["cpu"] = str(SIZE)
        yield body


def set_up(plane: ControlPlane) -> None:
    """Apply the shipped roles and definitions."""
    for name in ("rbac.yaml", "rbac-gangs.yaml", "crd-podgroups.yaml"):
        plane.kubectl("apply", "-f", str(CONFIG / name))
    plane.kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.gang_kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ksched-kills-") as folder:
        audit = AuditLog(Path(folder) / "audit", "ksched")
        flags = [*FLAGS, *audit.flags]
        try:
            with ControlPlane.running(Path(folder) / "plane", Assets.find(), flags) as plane:
                set_up(plane)
                killed = asyncio.run(play(plane, audit, options.rounds, options.seed))
        except KschedError as error:
            print(f"gang_kills: {error}", file=sys.stderr)
            return 1
    print(
        f"{killed.rounds} leaders killed, {killed.gangs} gangs whole afterwards, {killed.cut} of "
        "them were cut by a kill; no pod was bound twice"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

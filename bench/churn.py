"""What changes in a cluster beside its pods: nodes, volumes, the configuration, who leads.

All of it goes on until it is cancelled, each kind at a pace of its own. How often something
happened is counted in ``happened``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.load_generator import NODES, LoadGenerator
from bench.perf import CLAIMS, VOLUMES, bound_claim, bound_volume, claim_volume
from bench.workloads import SCHEDULER_NAME, Object, node
from ksched.daemon.reloads import APPLIED, REFUSED
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ksched"
ELECTION: Final[Mapping[str, Any]] = {
    "leaderElection": {"leaderElect": True, "resourceName": "ksched"}
}
RELOAD_SECONDS: Final = 20.0
"""A changed file is noticed after four; then a replica may still be taking over."""
TAKE_OVER_SECONDS: Final = 25.0
"""The lease of a leader that vanished lasts fifteen, a candidate asks every two."""


class Claims:
    """Volumes of pods: each is made with its pod and goes with it."""

    def __init__(self, load: LoadGenerator) -> None:
        self._load = load

    async def add_to(self, pod: Object, number: int) -> None:
        """Give a pod a claim of its own, bound already: there is no controller to bind it."""
        await self._load.post(VOLUMES, bound_volume(number))
        await self._load.post(CLAIMS, bound_claim(number))
        pod["spec"]["volumes"] = [claim_volume(number)]

    async def remove(self, number: int) -> None:
        """Delete claim and volume, which no controller lets go of."""
        for path in (f"{CLAIMS}/claim-{number}", f"{VOLUMES}/volume-{number}"):
            await self._load.merge(path, {"metadata": {"finalizers": None}})
            await self._load.delete(path)


@dataclass(frozen=True)
class Daemon:
    """The scheduler that is measured, with its configuration file."""

    process: ChildProcess
    file: Path
    last_reload: Callable[[], Awaitable[Mapping[str, Any] | None]]
    """What it says has become of the file."""

    async def load(self, configuration: Mapping[str, Any]) -> str:
        """Replace the file as that of a ConfigMap is, at once; return what became of it."""
        before = await self.last_reload()
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(configuration))
        new.rename(self.file)
        for _ in range(int(RELOAD_SECONDS)):
            await asyncio.sleep(1)
            last = await self.last_reload()
            if last is not None and last != before:
                return str(last["result"])
        return f"not noticed within {RELOAD_SECONDS:.0f} s"


class Churn:
    """Changes nodes, the file of ``--config`` and the holder of the lease."""

    def __init__(self, plane: ControlPlane, load: LoadGenerator, seed: int = 0) -> None:
        self._plane, self._load = plane, load
        self._random = Random(seed)
        self.happened: Counter[str] = Counter()

    async def nodes(self, every_seconds: float, number: int) -> None:
        """Change one node after the other; the first one, which tenants attack, stays."""
        changes = (self._relabel, self._resize, self._cordon, self._taint, self._replace)
        while True:
            await asyncio.sleep(every_seconds)
            change = self._random.choice(changes)
            await change(self._random.randrange(1, number))
            self.happened[f"node {change.__name__.strip('_')}"] += 1

    async def _relabel(self, index: int) -> None:
        labels = {"soak": f"{self._random.randrange(1000)}"}
        await self._load.merge(_path(index), {"metadata": {"labels": labels}})

    async def _resize(self, index: int) -> None:
        amounts = {"cpu": str(self._random.randint(16, 32))}
        await self._load.merge(f"{_path(index)}/status", {"status": {"allocatable": amounts}})

    async def _cordon(self, index: int) -> None:
        is_cordoned = self._random.random() < 0.5
        await self._load.merge(_path(index), {"spec": {"unschedulable": is_cordoned or None}})

    async def _taint(self, index: int) -> None:
        value = f"{self._random.randrange(1000)}"
        taints = [{"key": "soak", "value": value, "effect": "NoSchedule"}]
        is_tainted = self._random.random() < 0.5
        await self._load.merge(_path(index), {"spec": {"taints": taints if is_tainted else None}})

    async def _replace(self, index: int) -> None:
        await self._load.delete(_path(index))
        await self._load.post(NODES, node(index))

    async def configurations(self, every_seconds: float, daemon: Daemon) -> None:
        """Write good and bad configurations in turn, and see them applied and refused."""
        good = json.loads(daemon.file.read_text())
        for number in count():
            await asyncio.sleep(every_seconds)
            wanted = REFUSED if number % 2 else APPLIED
            profiles = self._bad() if number % 2 else self._good()
            result = await daemon.load({**good, "profiles": profiles})
            if result != wanted:
                raise daemon.process.failure(f"configuration {number}: {result}, wanted {wanted}")
            self.happened[f"configuration {wanted}"] += 1

    def _good(self) -> list[Object]:
        weighted = [
            {"name": name, "weight": self._random.randint(1, 90)}
            for name in ("NodeResourcesFit", "TaintToleration", "NodeAffinity")
        ]
        plugins = {"score": {"enabled": weighted}}
        return [{"schedulerName": SCHEDULER_NAME, "plugins": plugins}]

    def _bad(self) -> list[Object]:
        return [{"schedulerName": SCHEDULER_NAME, f"plugins{self._random.randrange(1000)}": {}}]

    async def replicas(self, every_seconds: float, port: int) -> None:
        """A second replica comes and is killed; in between the lease is taken from its holder."""
        while True:
            flags = (f"--secure-port={port}", "--insecure-loopback")
            other = self._plane.ksched("ksched-other", flags=flags, config=ELECTION)
            try:
                await asyncio.sleep(every_seconds / 2)
                await self._steal_lease()
                await asyncio.sleep(TAKE_OVER_SECONDS)
                other.must_run(0)
            finally:
                other.kill()
            self.happened["replica killed"] += 1
            await asyncio.sleep(every_seconds / 2)

    async def _steal_lease(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "nobody", "renewTime": now, "acquireTime": now}
        await self._load.merge(LEASE, {"spec": spec})
        self.happened["lease stolen"] += 1


def _path(index: int) -> str:
    name: str = node(index)["metadata"]["name"]
    return f"{NODES}/{name}"

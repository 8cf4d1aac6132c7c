"""A running ksched is given good and bad configuration files while pods arrive.

    python -m lab.reload                                  100 files under 100 pods a second
    python -m lab.reload --files 12 --rate 50 --quiet-seconds 3

A real API server and ``ksched run --config FILE``. Every good file chooses a cell of nodes twice:
its row by a filter (NodeAffinity's ``addedAffinity``), its column by weights of scores. So a pod
that was filtered by one configuration and scored by another is on a node that neither chose. Files
are noticed by ``POST /reload``, by SIGHUP, or because they changed. Reported: what became of the
files, pods that are lost or in a cell of no configuration that decided meanwhile, and how long pods
waited from being sent to being seen bound, before the first file, beside a swap, and otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import aiohttp
import uvloop

from bench.latency import quantile
from bench.load_generator import PODS, LoadGenerator
from bench.workloads import NAMESPACE
from ksched.daemon.reloads import APPLIED, REFUSED
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import HOST, ControlPlane, free_ports

Json = dict[str, Any]

RBAC: Final = Path(__file__).parents[1] / "config" / "rbac.yaml"
ROWS: Final = 5
COLUMNS: Final = ("cold", "hot")
NODES_PER_CELL: Final = 4
STUCK: Final = 60
"""Pods that fit nowhere: something to compare, and to wake."""
START_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 60.0
BESIDE_SECONDS: Final = 0.25
"""A pod that was on its way so shortly before or after a swap counts as beside it."""
NOTICED_SECONDS: Final = 1.0
LATE_MS: Final = 100.0


# -- the cluster --------------------------------------------------------------------------------


def node(index: int) -> Json:
    row, column = index % ROWS, COLUMNS[index // ROWS % 2]
    taint = {"key": "hot", "effect": "PreferNoSchedule"}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "5000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{column}-{row}-{index}",
            "labels": {"row": str(row), "column": column},
        },
        "spec": {"taints": [taint] if column == "hot" else []},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, cpu: str = "1m") -> Json:
    """A pod that prefers the hot column, which TaintToleration prefers to avoid."""
    term = {"matchExpressions": [{"key": "column", "operator": "In", "values": ["hot"]}]}
    preferred = [{"weight": 100, "preference": term}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [container], "affinity": affinity},
    }


def cell(number: int) -> tuple[str, str]:
    """Row and column that configuration ``number`` chooses; neighbours differ in both."""
    return str(number % ROWS), COLUMNS[number % 2]


# -- the files ----------------------------------------------------------------------------------


class Files:
    """Random good and bad configurations."""

    def __init__(self, kubeconfig: Path, seed: int) -> None:
        self._kubeconfig, self._random = kubeconfig, Random(seed)

    def good(self, number: int) -> Json:
        row, column = cell(number)
        rng, is_hot = self._random, column == "hot"
        term = {"matchExpressions": [{"key": "row", "operator": "In", "values": [row]}]}
        required = {"nodeSelectorTerms": [term]}
        added = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        scores = [
            {"name": "NodeAffinity", "weight": rng.randint(11, 90) if is_hot else 1},
            {"name": "TaintToleration", "weight": 1 if is_hot else rng.randint(11, 90)},
        ]
        strategy = {
            "type": rng.choice(("LeastAllocated", "MostAllocated")),
            "resources": [{"name": "cpu", "weight": rng.randint(1, 100)}],
        }
        profile = {
            "schedulerName": "default-scheduler",
            "percentageOfNodesToScore": rng.choice((60, 80, 100)),
            "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": scores}},
            "pluginConfig": [
                {"name": "NodeAffinity", "args": {"addedAffinity": added}},
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}},
            ],
        }
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfig), "qps": -1},
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": rng.randint(5, 20),
            "profiles": [profile],
        }

    def bad(self, number: int) -> str:
        """The text of a file that must be refused: of a wrong form, or of a wrong content."""
        config = self.good(number)
        text, profile = json.dumps(config, indent=1), config["profiles"][0]
        match self._random.randrange(12):
            case 0:
                return text[: self._random.randrange(len(text) - 2)]
            case 1:
                return "profiles: [\n\tnonsense"
            case 2:
                return text.replace('"kind"', '"kynd"')
            case 3:
                return text.replace("kubescheduler.config.k8s.io/v1", "v7")
            case 4:
                profile["schedulerName"] = "another"
            case 5:
                profile["plugins"]["filter"] = {"enabled": [{"name": "Nobody"}]}
            case 6:
                config["clientConnection"]["qps"] = 5
            case 7:
                config["leaderElection"]["leaderElect"] = True
            case 8:
                config["podMaxBackoffSeconds"] = -1
            case 9:
                profile["pluginConfig"][1]["args"]["scoringStrategy"]["type"] = "Nonsense"
            case 10:
                config["extenders"] = [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "f"}]
            case _:
                profile["plugins"]["multiPoint"] = {"disabled": [{"name": "DynamicResources"}]}
        return json.dumps(config, indent=1)


@dataclass
class Change:
    """One file: when it was written, when its outcome was known, and what that was."""

    number: int
    is_good: bool
    trigger: str
    written: float
    known: float
    result: str


@dataclass
class Findings:
    changes: list[Change] = field(default_factory=list)
    sent: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    quiet_until: float = 0.0
    pauses: str = ""
    log: str = ""

    def deciders(self, name: str) -> set[int]:
        """The configurations that may have decided a pod."""
        begin, end = self.sent[name], self.seen[name]
        applied = [one for one in self.changes if one.result == APPLIED]
        starts = [(0, 0.0), *((one.number, one.written) for one in applied)]
        ends = [*(one.known for one in applied), float("inf")]
        return {
            number
            for (number, first), last in zip(starts, ends, strict=True)
            if first <= end and begin <= last
        }

    def mixed(self) -> list[str]:
        """Pods in a cell that no configuration chose which may have decided them."""
        found = []
        for name in self.seen:
            column, row, _ = self.nodes[name].split("-")
            if (row, column) not in map(cell, self.deciders(name)):
                found.append(f"{name} on {self.nodes[name]}, cells {self.deciders(name)}")
        return found

    def waits(self) -> dict[str, list[float]]:
        """Milliseconds from sent to seen bound, in order, by when the pod was sent."""
        # A file that is noticed by itself decides shortly before its outcome is known.
        swaps = [
            (max(one.written, one.known - NOTICED_SECONDS), one.known)
            for one in self.changes
            if one.result == APPLIED
        ]
        waits: dict[str, list[float]] = {
            "before the first file": [],
            "beside a swap": [],
            "else": [],
        }
        for name, seen in self.seen.items():
            sent = self.sent[name]
            if sent < self.quiet_until:
                kind = "before the first file"
            elif any(
                sent < known + BESIDE_SECONDS and seen > written - BESIDE_SECONDS
                for written, known in swaps
            ):
                kind = "beside a swap"
            else:
                kind = "else"
            waits[kind].append(1000 * (seen - sent))
        return {kind: sorted(found) for kind, found in waits.items()}


class Trial:
    """A ksched at work under load, and the file that it reads."""

    def __init__(
        self, options: argparse.Namespace, plane: ControlPlane, load: LoadGenerator
    ) -> None:
        self._options, self._plane, self._load = options, plane, load
        self._random = Random(options.seed)
        self._file = plane.folder / "reloaded.yaml"
        self._files = Files(plane.kubeconfig("ksched"), options.seed)
        (port,) = free_ports(1)
        self._port, self._url = port, f"http://{HOST}:{port}"
        self.findings = Findings()

    async def run(self) -> Findings:
        options, found = self._options, self.findings
        self._write(json.dumps(self._files.good(0)))
        flags = ("--config", self._file, f"--secure-port={self._port}", "--insecure-loopback")
        program = Path(sys.executable).with_name("ksched")
        log = self._plane.folder / "ksched.log"
        with ChildProcess("ksched", (program, "run", *flags, *options.flags), log) as scheduler:
            async with aiohttp.ClientSession() as session:
                await self._ready(session, scheduler)
                await self._load.create_pods(pod(f"stuck-{i}", "999") for i in range(STUCK))
                version = await self._load.resource_version()
                is_over = asyncio.Event()
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(self._watch(version))
                    sending = tasks.create_task(self._send(is_over))
                    await asyncio.sleep(options.quiet_seconds)
                    found.quiet_until = monotonic()
                    await self._change_all(session, scheduler)
                    is_over.set()
                    await sending
                    await self._until(lambda: len(found.seen) >= len(found.sent))
                    watching.cancel()
                scheduler.must_run(0)
                async with session.get(f"{self._url}/metrics") as answer:
                    found.pauses = _pauses(await answer.text())
        found.log = log.read_text(errors="replace")
        pods = (await self._load.get(PODS))["items"]
        found.nodes = {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}
        return found

    async def _until(self, condition: Callable[[], bool]) -> None:
        end = monotonic() + GRACE_SECONDS
        while not condition() and monotonic() < end:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)

    async def _ready(self, session: aiohttp.ClientSession, process: ChildProcess) -> None:
        async with asyncio.timeout(START_SECONDS):
            while True:
                process.must_run(0)
                try:
                    async with session.get(f"{self._url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.1)

    async def _send(self, is_over: asyncio.Event) -> None:
        sent, started = self.findings.sent, monotonic()
        async with asyncio.TaskGroup() as creations:
            while not is_over.is_set():
                await asyncio.sleep(started + len(sent) / self._options.rate - monotonic())
                name = f"p-{len(sent)}"
                sent[name] = monotonic()
                creations.create_task(self._load.create_pod(pod(name)))

    async def _watch(self, version: str) -> None:
        async for name in self._load.bound_pods(version):
            if name in self.findings.sent:
                self.findings.seen.setdefault(name, monotonic())

    async def _change_all(self, session: aiohttp.ClientSession, process: ChildProcess) -> None:
        number = 0
        for _ in range(self._options.files):
            is_good = self._random.random() < 0.5
            if is_good:
                number += 1
            text = json.dumps(self._files.good(number)) if is_good else self._files.bad(number + 1)
            trigger = self._random.choices(("request", "SIGHUP", "file changed"), (8, 1, 1))[0]
            written = monotonic()
            before = await self._count(session) if trigger != "request" else 0
            written = monotonic()
            self._write(text)
            if trigger == "request":
                async with session.post(f"{self._url}/reload") as answer:
                    result = (await answer.json(content_type=None))["result"]
            else:
                if trigger == "SIGHUP":
                    process.send_signal(signal.SIGHUP)
                while await self._count(session) == before:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.1)
                async with session.get(f"{self._url}/configz") as answer:
                    result = (await answer.json())["reload"]["lastReload"]["result"]
            known = monotonic()
            change = Change(number, is_good, trigger, written, known, result)
            self.findings.changes.append(change)
            process.must_run(0)
            await asyncio.sleep(self._random.uniform(0.1, 0.6))

    async def _count(self, session: aiohttp.ClientSession) -> float:
        async with session.get(f"{self._url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        name = "ksched_config_reloads_total{"
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def _write(self, text: str) -> None:
        """Replace the file at once, as a mounted ConfigMap is."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, self._file)


def _pauses(metrics: str) -> str:
    """The buckets of how long attempts were held up, without those that add nothing."""
    shown, before = [], "0.0"
    for line in metrics.splitlines():
        if line.startswith("ksched_config_reload_pause_seconds_bucket"):
            name, _, count = line.partition("} ")
            if count != before:
                shown.append(f"<= {name.partition('le=')[2]} s: {count}")
                before = count
    return ", ".join(shown)


# -- the report ---------------------------------------------------------------------------------


def problems_of(found: Findings) -> list[str]:
    problems = []
    for one in found.changes:
        wanted = APPLIED if one.is_good else REFUSED
        if one.result != wanted:
            problems.append(f"file {one.number} by {one.trigger}: {one.result}, wanted {wanted}")
    lost = sorted(name for name in found.sent if not found.nodes.get(name))
    if lost:
        problems.append(f"{len(lost)} pods lost: {', '.join(lost[:5])}")
    problems += [f"mixed: {text}" for text in found.mixed()]
    if "Traceback" in found.log:
        problems.append("the log has a traceback")
    return problems


def report(found: Findings) -> str:
    outcomes = Counter((one.trigger, one.result) for one in found.changes)
    lines = [
        f"{trigger}: {count} files {result}"
        for (trigger, result), count in sorted(outcomes.items())
    ]
    lines.append(f"pods: {len(found.sent)} sent, {len(found.seen)} seen bound")
    for kind, waits in found.waits().items():
        late = sum(one > LATE_MS for one in waits)
        lines.append(
            f"{kind}: {len(waits)} pods, p50 {quantile(waits, 0.5):.1f} ms, "
            f"p99 {quantile(waits, 0.99):.1f} ms, longest {waits[-1] if waits else 0:.1f} ms, "
            f"{late} over {LATE_MS:g} ms"
        )
    lines.append(f"attempts held up by reloads: {found.pauses}")
    return "\n".join(lines)


async def trial(options: argparse.Namespace, folder: Path) -> Findings:
    with ControlPlane.running(folder, Assets.find()) as plane:
        plane.kubectl("apply", "-f", str(RBAC))
        async with LoadGenerator.connected(plane) as load:
            await load.create_nodes(2 * ROWS * NODES_PER_CELL, node)
            return await Trial(options, plane, load).run()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--files", type=int, default=100)
    add("--rate", type=float, default=100.0, help="pods a second")
    add("--quiet-seconds", type=float, default=15.0, help="how long no file changes at first")
    add("--seed", type=int, default=0)
    add("flags", nargs="*", help="for ksched run, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = uvloop.run(trial(options, Path(folder)))
    print(report(found))
    problems = problems_of(found)
    for problem in problems:
        print(f"problem: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

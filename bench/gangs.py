"""python -m bench.gangs: gangs under kube-scheduler, its gates for them on, and under ksched.

The schedulers take turns on one real control plane. A gang's wait is from sending the creation of
its last pod to seeing its last pod bound.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

import uvloop

from bench.gang_cases import (
    ALL_GATES,
    CASES,
    FILLER_NAMESPACE,
    GATES,
    HOPELESS_CPU,
    HOPELESS_GANGS,
    HOPELESS_SIZE,
    PRIORITIES,
    Case,
    member,
    pod_group,
    priority_class,
    switched_on,
)
from bench.latency import open_loop, quantile
from bench.load_generator import CREATORS, NODES, LoadGenerator, share_out
from bench.process_usage import Usage, usage
from bench.schedulers import CONFIG, KUBE_SCHEDULER, Start, add_schedulers
from bench.table import Figures, render
from bench.workloads import NAMESPACE, Object, pod
from ksched.errors import KschedError
from lab.assets import KUBERNETES_VERSION, Assets
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

POD_GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups"
FILLERS = f"/api/v1/namespaces/{FILLER_NAMESPACE}/pods"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
HOPELESS = "hopeless"
NO_GANGS = Case(HOPELESS, 0, 0)
SERVER_FLAGS = (
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    switched_on(ALL_GATES),
    # No controller removes the finalizer of this one.
    "--disable-admission-plugins=PodGroupProtection",
)
SETTLE_SECONDS = 6.0
CALM_SHARE = 0.15
CALM_SECONDS = 3.0
CALM_TIMEOUT_SECONDS = 90.0

Results = dict[str, dict[str, list[Figures]]]


@dataclass
class _Burst:
    """When creations were sent and binds seen."""

    case: Case
    last_sent: dict[str, float] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    began: float = 0.0
    last: float = 0.0
    used: Usage = field(default_factory=lambda: Usage(0.0, 0))
    """By the scheduler, at the end or shortly before it ended by itself."""

    def seen(self, name: str) -> bool:
        """Take a bound pod down; whether it was the last of all."""
        gang = name.rpartition("-")[0]
        if name not in self.bound and gang in self.missing:
            self.bound.add(name)
            self.last = monotonic()
            self.missing[gang] -= 1
            if not self.missing[gang]:
                self.waits.append(self.last - self.last_sent[gang])
        return len(self.bound) == self.case.pods


class Bench:
    """A cluster that is made anew where a case needs another."""

    def __init__(self, plane: ControlPlane, load: LoadGenerator, timeout: float) -> None:
        self._plane, self._load, self._timeout = plane, load, timeout
        self._cluster: tuple[object, ...] = ()

    def starter(self, name: str, gates: Iterable[str]) -> Start:
        """How to start a scheduler for a case; one that loses its lease ends."""
        config = {"leaderElection": {"leaderElect": True, "resourceName": name}}
        if name == KUBE_SCHEDULER:
            return partial(self._plane.kube_scheduler, flags=[switched_on(gates)], config=config)
        return partial(self._plane.ksched, flags=[switched_on(GATES)], config=config)

    async def burst(self, case: Case, scheduler_name: str) -> Figures:
        """All gangs of a case come as fast as the API server takes them."""
        await self._prepare(case)
        for body in case.objects():
            await self._load.post(POD_GROUPS, body)
        burst = _Burst(case)
        version = await self._load.resource_version()
        with self.starter(scheduler_name, case.gates)() as scheduler:
            await asyncio.sleep(SETTLE_SECONDS)
            scheduler.must_run(0)
            before = usage(scheduler.pid)
            await self._send(burst, scheduler, version)
            if scheduler.exit_code is not None:
                say(f"{case.name}: {scheduler.name} ended with exit code {scheduler.exit_code}")
        in_order = sorted(1000 * wait for wait in burst.waits)
        seconds = burst.last - burst.began
        return Figures(
            bound=len(burst.bound),
            asked=case.pods,
            pods_per_second=len(burst.bound) / seconds if burst.bound else float("nan"),
            cpu_ms_per_pod=1000 * (burst.used.cpu_seconds - before.cpu_seconds) / case.pods,
            rss_mb=burst.used.rss_bytes / 2**20,
            p50_ms=quantile(in_order, 0.5),
            p99_ms=quantile(in_order, 0.99),
        )

    async def _send(self, burst: _Burst, scheduler: ChildProcess, version: str) -> None:
        for gang, _ in burst.case.members():
            burst.missing[gang] += 1

        async def watch() -> None:
            async for name in self._load.bound_pods(version):
                if burst.seen(name):
                    return

        async def create(one: tuple[str, Object]) -> None:
            gang, body = one
            burst.last_sent[gang] = monotonic()
            await self._load.create_pod(body)

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            burst.began = monotonic()
            await share_out(burst.case.members(), CREATORS, create)
            deadline = monotonic() + self._timeout
            while not watching.done() and scheduler.exit_code is None and monotonic() < deadline:
                await asyncio.wait([watching], timeout=0.5)
                burst.used = max(burst.used, usage(scheduler.pid))
            watching.cancel()

    async def singles(
        self, nodes: Case, scheduler_name: str, rate: float, seconds: float, gangs: int
    ) -> Figures:
        """Single pods at a fixed rate, beside gangs that fit nowhere and came before."""
        await self._prepare(nodes)
        for number in range(gangs):
            await self._load.post(POD_GROUPS, pod_group(number, HOPELESS_SIZE))
        await self._load.create_pods(_hopeless(gangs))
        with self.starter(scheduler_name, GATES)() as scheduler:
            await asyncio.sleep(SETTLE_SECONDS)
            await _until_calm(scheduler)
            bodies = [pod(index, "basic") for index in range(int(rate * seconds))]
            return Figures.of(await open_loop(self._load, scheduler, rate, bodies))

    async def _prepare(self, case: Case) -> None:
        """Delete what is left of the gangs; make the cluster anew if it is another or was used."""
        await self._load.clear_pods()
        await self._load.delete(POD_GROUPS)
        evicts = case.evictable_per_node > 0
        wanted = (case.nodes, case.node_cpu, case.racks, case.fragments)
        if wanted == self._cluster and not evicts:
            return
        say(f"creating {case.nodes} nodes")
        self._cluster = () if evicts else wanted
        await self._load.clear_pods(FILLERS)
        await self._load.delete(NODES)
        await self._load.create_nodes(case.nodes, case.node)
        await share_out(case.fillers(), CREATORS, partial(self._load.post, FILLERS))

    async def set_up(self) -> None:
        """Create what every case needs."""
        await self._load.post("/api/v1/namespaces", {"metadata": {"name": FILLER_NAMESPACE}})
        for name in PRIORITIES:
            await self._load.post(PRIORITY_CLASSES, priority_class(name))


def _hopeless(gangs: int) -> Iterator[Object]:
    for number in range(gangs):
        for index in range(HOPELESS_SIZE):
            yield member(number, index, HOPELESS_CPU)


async def _until_calm(scheduler: ChildProcess) -> None:
    """Wait until a scheduler does nothing much, or for long."""
    deadline = monotonic() + CALM_TIMEOUT_SECONDS
    share = 1.0
    while share > CALM_SHARE and monotonic() < deadline:
        before = usage(scheduler.pid).cpu_seconds
        await asyncio.sleep(CALM_SECONDS)
        scheduler.must_run(0)
        share = (usage(scheduler.pid).cpu_seconds - before) / CALM_SECONDS
    if share > CALM_SHARE:
        say(f"{scheduler.name} still uses {share:.0%} of a core beside gangs that wait")


async def measure(plane: ControlPlane, options: argparse.Namespace) -> str:
    results: Results = defaultdict(lambda: defaultdict(list))
    async with LoadGenerator.connected(plane) as load:
        bench = Bench(plane, load, options.timeout)
        await bench.set_up()
        for number in range(options.rounds):
            turns = options.schedulers[:: -1 if number % 2 else 1]
            for name in options.cases:
                await _one_case(bench, name, turns, options, results)
    medians = {
        case: {name: Figures.median_of(by_name[name]) for name in options.schedulers}
        for case, by_name in results.items()
    }
    return render(medians)


async def _one_case(
    bench: Bench, name: str, turns: list[str], options: argparse.Namespace, results: Results
) -> None:
    if name == HOPELESS:
        nodes = NO_GANGS.smaller(options.part)
        for gangs in (0, options.hopeless):
            title = f"{options.rate:g} pods/s" + (f", {gangs} hopeless" if gangs else "")
            for scheduler_name in turns:
                figures = await bench.singles(
                    nodes, scheduler_name, options.rate, options.seconds, gangs
                )
                _note(title, scheduler_name, figures, results)
        return
    case = CASES[name].smaller(options.part)
    for scheduler_name in turns:
        figures = await bench.burst(case, scheduler_name)
        _note(case.name, scheduler_name, figures, results)


def _note(title: str, scheduler_name: str, figures: Figures, results: Results) -> None:
    say(
        f"{title}: {scheduler_name} {figures.bound:.0f}/{figures.asked:.0f}, "
        f"{figures.pods_per_second:.0f} pods/s, {figures.cpu_ms_per_pod:.2f} ms/pod, "
        f"p50 {figures.p50_ms:.0f} ms, p99 {figures.p99_ms:.0f} ms"
    )
    results[title][scheduler_name].append(figures)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    known = (*CASES, HOPELESS)
    parser = argparse.ArgumentParser(prog="python -m bench.gangs", description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=known, default=known, metavar="CASE")
    parser.add_argument("--rounds", type=int, default=1, help="the table shows medians")
    add_schedulers(parser)
    parser.add_argument(
        "--part", type=int, default=1, metavar="N", help="the Nth part of the nodes and pods"
    )
    parser.add_argument("--hopeless", type=int, default=HOPELESS_GANGS, help="gangs of ten")
    parser.add_argument("--rate", type=float, default=100, help="hopeless: single pods a second")
    parser.add_argument("--seconds", type=float, default=20, help="hopeless: how long they come")
    parser.add_argument(
        "--timeout", type=float, default=120, help="seconds after the last creation"
    )
    return parser.parse_args(arguments)


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find(), SERVER_FLAGS) as plane,
        ):
            for name in ("rbac.yaml", "rbac-gangs.yaml"):
                plane.kubectl("apply", "-f", str(CONFIG / name))
            table = uvloop.run(measure(plane, options))
    except KschedError as error:
        say(f"bench.gangs: {error}")
        return 1
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"Kubernetes {KUBERNETES_VERSION}, {os.cpu_count()} cores shared with the control plane, "
        f"rounds: {options.rounds}, load average at the end {load}\n"
    )
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

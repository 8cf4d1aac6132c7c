"""python -m bench.permit: what pods held at Permit cost the others, on a real control plane.

Pods of the profile ``asked`` pass an async Permit that takes as long as their annotation says;
plain pods of the other profile arrive beside them at a fixed rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import monotonic
from typing import NamedTuple

import uvloop

from bench.latency import arrivals, quantile
from bench.load_generator import PODS, LoadGenerator
from bench.process_usage import usage
from bench.schedulers import RBAC
from bench.workloads import Object, in_gang, pod
from ksched.errors import KschedError
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

SECONDS = "example.com/permit-seconds"
PLUGIN = f'''
import asyncio

from ksched.framework import SUCCESS


class Asked:
    name = "Asked"
    timeout_seconds = 600.0
    permit_concurrency = 20000

    def __init__(self, args, handle):
        pass

    async def permit(self, state, pod, node_name):
        await asyncio.sleep(float(pod.pod.metadata.annotations["{SECONDS}"]))
        return SUCCESS
'''
PROFILES = [
    {
        "schedulerName": "default-scheduler",
        "plugins": {"permit": {"disabled": [{"name": "Asked"}]}},
    },
    {"schedulerName": "asked", "plugins": {"permit": {"enabled": [{"name": "Asked"}]}}},
]
START_SECONDS = 5.0
HELD_TIMEOUT_SECONDS = 300.0
EVENTS_SECONDS = 12.0
DELETED_SECONDS = 5.0
"""The API server is still busy with pods that were just deleted."""


def say(text: str) -> None:
    print(text, flush=True)


def plain(indices: Iterable[int], kind: str = "plain") -> list[Object]:
    bodies = [pod(index, "basic") for index in indices]
    for body in bodies:
        body["metadata"]["name"] = f"{kind}{body['metadata']['name']}"
    return bodies


def asked(indices: Iterable[int], seconds: float, kind: str = "asked") -> list[Object]:
    bodies = plain(indices, kind)
    for body in bodies:
        body["spec"]["schedulerName"] = "asked"
        body["metadata"]["annotations"] = {SECONDS: str(seconds)}
    return bodies


def foreign(indices: Iterable[int]) -> list[Object]:
    """Pods that wait for another scheduler."""
    bodies = plain(indices, "foreign")
    for body in bodies:
        body["spec"]["schedulerName"] = "another"
    return bodies


def install(folder: Path) -> None:
    """Offer the plugin to child processes as an installed package would."""
    package = folder / "asked-1.dist-info"
    package.mkdir(parents=True)
    (folder / "asked_plugin.py").write_text(PLUGIN)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: asked\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[ksched.plugins]\nAsked = asked_plugin:Asked\n")
    os.environ["PYTHONPATH"] = str(folder)


async def p99_of_plain(
    load: LoadGenerator, rate: float, seconds: float, beside: Sequence[Object]
) -> float:
    """The p99 in ms of plain pods that arrive in turn with others."""
    await load.clear_pods()
    await asyncio.sleep(DELETED_SECONDS)
    count = int(rate * seconds)
    own = plain(range(count))
    bodies = [body for pair in zip(own, beside, strict=True) for body in pair] if beside else own
    _, waits = await arrivals(load, rate * (2 if beside else 1), bodies)
    names = {body["metadata"]["name"] for body in own}
    return quantile(sorted(1000 * wait for name, wait in waits.items() if name in names), 0.99)


async def beside_calls(load: LoadGenerator, options: argparse.Namespace) -> None:
    """Plain pods beside as many others, which are asked about or not, in turns."""
    count = int(options.rate * options.duration)
    figures: dict[str, list[float]] = {"plain": [], "asked": []}
    for number in range(2 * options.rounds):
        kind = ("plain", "asked")[number % 2]
        others = (
            plain(range(count), "other")
            if kind == "plain"
            else asked(range(count), options.seconds)
        )
        figures[kind].append(await p99_of_plain(load, options.rate, options.duration, others))
    each = {kind: " ".join(f"{value:.0f}" for value in found) for kind, found in figures.items()}
    ratio = median(figures["asked"]) / median(figures["plain"])
    say(f"p99 of plain pods, ms: beside plain ones {each['plain']}, beside asked {each['asked']}")
    say(f"ratio of the medians: {ratio:.2f}")


async def burst(load: LoadGenerator, options: argparse.Namespace) -> None:
    """Many pods at once whose Permit takes some seconds."""
    await load.clear_pods()
    bodies = asked(range(options.burst), options.seconds)
    names = {body["metadata"]["name"] for body in bodies}
    bound: dict[str, float] = {}
    version = await load.resource_version()

    async def watch() -> None:
        async for name in load.bound_pods(version):
            if name in names:
                bound.setdefault(name, monotonic())
                if len(bound) == len(names):
                    return

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        began = monotonic()
        await load.create_pods(bodies)
        created = monotonic()
        await asyncio.wait([watching], timeout=options.timeout)
        watching.cancel()
    last = max(bound.values(), default=created)
    say(
        f"burst of {options.burst} pods whose Permit takes {options.seconds:g} s: created in "
        f"{created - began:.2f} s, {len(bound)} bound {last - created:.2f} s after the last one was"
    )


class Round(NamedTuple):
    """Plain pods at the fixed rate: how long they took, and what they cost the scheduler."""

    p50_ms: float
    p99_ms: float
    cpu_ms_per_pod: float


async def plain_round(
    load: LoadGenerator, scheduler: ChildProcess, options: argparse.Namespace, kind: str
) -> Round:
    bodies = plain(range(int(options.rate * options.duration)), kind)
    before = usage(scheduler.pid).cpu_seconds
    _, waits = await arrivals(load, options.rate, bodies)
    # Their Events are written by then.
    await asyncio.sleep(EVENTS_SECONDS)
    cpu = usage(scheduler.pid).cpu_seconds - before
    in_order = sorted(1000 * wait for wait in waits.values())
    return Round(quantile(in_order, 0.5), quantile(in_order, 0.99), 1000 * cpu / len(bodies))


async def crowd(load: LoadGenerator, scheduler: ChildProcess, options: argparse.Namespace) -> None:
    """Very many pods held for good: plain pods, memory, and the end of the process.

    For the comparison as many pods of another scheduler are pending: so many pods cost the API
    server something, too, which shares the machine.
    """
    await load.clear_pods()
    rounds, half = range(options.rounds), options.crowd // 2
    await load.create_pods(foreign(range(options.crowd)))
    before = [await plain_round(load, scheduler, options, f"early{one}") for one in rounds]
    await load.clear_pods()
    memory = [usage(scheduler.pid).rss_bytes]
    for indices in (range(half), range(half, options.crowd)):
        bodies = asked(indices, 590.0)
        if options.gang:
            for number, body in enumerate(bodies):
                in_gang(body, f"held-{indices.start}-{number // options.gang}", options.gang)
        await load.create_pods(bodies)
        await until_held(load, indices.stop)
        memory.append(usage(scheduler.pid).rss_bytes)
    per_pod = [(more - less) / half / 1024 for less, more in pairwise(memory)]
    after = [await plain_round(load, scheduler, options, f"late{one}") for one in rounds]
    scheduler.must_run(0)
    began = monotonic()
    cpu = usage(scheduler.pid).cpu_seconds + cpu_of_ended_children()
    code = await asyncio.to_thread(scheduler.stop, 60.0)
    took, cpu = monotonic() - began, cpu_of_ended_children() - cpu
    for name, *figures in zip(
        Round._fields, zip(*before, strict=True), zip(*after, strict=True), strict=True
    ):
        alone, beside = (" ".join(f"{value:.1f}" for value in values) for values in figures)
        ratio = median(figures[1]) / median(figures[0])
        say(
            f"plain pods, {name}: beside {options.crowd} of another scheduler {alone}, "
            f"beside {options.crowd} held {beside}, "
            f"ratio of the medians {ratio:.2f}"
        )
    say(
        f"memory per held pod, itself included: {per_pod[0]:.1f} KB each for the first half, "
        f"{per_pod[1]:.1f} KB for the second"
    )
    say(f"SIGTERM to exit with code {code}: {took:.2f} s, {cpu:.2f} s of them CPU time")


def cpu_of_ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def until_held(load: LoadGenerator, count: int) -> None:
    """Wait until the API server was told the node of so many held pods."""
    began = monotonic()
    while (held := (await load.text(PODS)).count('"nominatedNodeName"')) < count:
        if monotonic() - began > HELD_TIMEOUT_SECONDS:
            raise KschedError(f"only {held} of {count} pods are held")
        await asyncio.sleep(2)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.permit", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--burst", type=int, default=1000, help="pods at once; 0: not")
    parser.add_argument("--crowd", type=int, default=10_000, help="pods held for good; 0: not")
    parser.add_argument("--gang", type=int, default=0, help="held pods are in gangs so large")
    parser.add_argument("--seconds", type=float, default=2.0, help="what Permit takes")
    parser.add_argument("--rate", type=float, default=50.0, help="plain pods a second")
    parser.add_argument("--duration", type=float, default=20.0, help="seconds of arrivals; 0: not")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the burst")
    parser.add_argument("--program", type=Path, default=Path(sys.executable).with_name("ksched"))
    return parser.parse_args(arguments)


async def measure(plane: ControlPlane, options: argparse.Namespace) -> None:
    plane.kubectl("apply", "-f", str(RBAC))
    async with LoadGenerator.connected(plane) as load:
        await load.create_nodes(options.nodes)
        flags = ["--feature-gates=GenericWorkload=true,GangScheduling=true"] if options.gang else []
        with plane.ksched(
            config={"profiles": PROFILES}, flags=flags, program=options.program
        ) as scheduler:
            scheduler.must_run(START_SECONDS)
            if options.duration:
                await beside_calls(load, options)
            if options.burst:
                await burst(load, options)
            if options.crowd:
                await crowd(load, scheduler, options)


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        with tempfile.TemporaryDirectory(prefix="ksched-permit-") as folder:
            install(Path(folder) / "plugin")
            plane_folder = Path(folder) / "plane"
            plane_folder.mkdir()
            with ControlPlane.running(plane_folder, Assets.find()) as plane:
                uvloop.run(measure(plane, options))
    except KschedError as error:
        print(f"bench.permit: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

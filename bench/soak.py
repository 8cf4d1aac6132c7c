"""A long run beside hostile tenants: does anything grow? ``python -m bench.soak --minutes 60``.

Ordinary pods come at a fixed rate and go after a fixed time, so that there are always as many. One
tenant after another puts the pods of ``lab.hostile`` beside them, takes them away, and the next
follows. Memory, tasks, open descriptors and the lag of the event loop are written down every few
seconds; at the end a line is laid through each, and the exit code is 1 if one rises.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from itertools import count, cycle
from pathlib import Path
from time import monotonic

import aiohttp
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench.load_generator import PODS, LoadGenerator
from bench.plot import page
from bench.process_usage import open_descriptors, usage
from bench.schedulers import RBAC
from bench.slopes import Slope, slope
from bench.workloads import pod
from ksched.errors import KschedError
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import HOST, ControlPlane, free_ports
from lab.hostile import ATTACKS

EVIL = "evil"
WARM_UP_SHARE = 0.25
"""Of the time, before slopes are taken: rings fill, pools find their size."""

START_POLLS, START_POLL_SECONDS = 120, 0.5


@dataclass(frozen=True)
class Sample:
    """What was seen of the scheduler at one moment."""

    seconds: float
    rss_mb: float
    tasks: float
    descriptors: float
    lag_ms: float
    """The worst since the sample before, rounded up to a bucket of the histogram."""
    bound: float
    """Ordinary pods, since the beginning."""


WATCHED = ("rss_mb", "tasks", "descriptors", "lag_ms")


class Load:
    """Ordinary pods, always as many, and one attack after another."""

    def __init__(self, load: LoadGenerator, options: argparse.Namespace) -> None:
        self._load = load
        self._options = options
        self.bound = 0
        self.attack = ""

    async def ordinary(self) -> None:
        """Create pods on time and delete those that had theirs."""
        alive: deque[tuple[float, str]] = deque()
        started = monotonic()
        for index in count():
            await asyncio.sleep(started + index / self._options.rate - monotonic())
            body = pod(index, "mixed")
            await self._load.create_pod(body)
            alive.append((monotonic(), body["metadata"]["name"]))
            while alive and monotonic() - alive[0][0] > self._options.lifetime:
                await self._load.delete(f"{PODS}/{alive.popleft()[1]}")

    async def count_bound(self) -> None:
        seen: deque[str] = deque(maxlen=100_000)
        names: set[str] = set()
        async for name in self._load.bound_pods(await self._load.resource_version()):
            if name in names:
                continue
            if len(seen) == seen.maxlen:
                names.discard(seen[0])
            seen.append(name)
            names.add(name)
            self.bound += 1

    async def hostile(self) -> None:
        pods = f"/api/v1/namespaces/{EVIL}/pods"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EVIL}}
        await self._load.post("/api/v1/namespaces", body)
        for number, name in zip(count(), cycle(ATTACKS), strict=False):
            self.attack = name
            for manifest in ATTACKS[name](f"e{number}", "node-00000"):
                await self._load.post(pods, manifest)
            await asyncio.sleep(self._options.attack_seconds / 2)
            await self._load.delete(f"{pods}?gracePeriodSeconds=0")
            self.attack = ""
            await asyncio.sleep(self._options.attack_seconds / 2)


class Probe:
    """Looks at the scheduler from outside."""

    def __init__(self, scheduler: ChildProcess, url: str, session: aiohttp.ClientSession) -> None:
        self._scheduler = scheduler
        self._url = url
        self._session = session
        self._lags: dict[str, float] = {}

    async def ready(self) -> None:
        """Wait until the scheduler answers."""
        for _ in range(START_POLLS):
            self._scheduler.must_run(0)
            try:
                async with self._session.get(f"{self._url}/metrics"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(START_POLL_SECONDS)
        raise self._scheduler.failure("does not answer")

    async def sample(self, seconds: float, bound: int) -> Sample:
        async with self._session.get(f"{self._url}/metrics") as answer:
            answer.raise_for_status()
            text = await answer.text()
        tasks, lags = 0.0, dict[str, float]()
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                if one.name == "scheduler_event_loop_tasks":
                    tasks = one.value
                elif one.name == "scheduler_event_loop_lag_seconds_bucket":
                    lags[one.labels["le"]] = one.value
        lag = worst_lag(self._lags, lags)
        self._lags = lags
        pid = self._scheduler.pid
        rss = usage(pid).rss_bytes / 2**20
        return Sample(seconds, rss, tasks, open_descriptors(pid), 1000 * lag, bound)


def worst_lag(before: dict[str, float], after: dict[str, float]) -> float:
    """The bound of the highest bucket of a histogram that was hit since."""
    worst, below = 0.0, 0.0
    highest = max((float(bound) for bound in after if bound != "+Inf"), default=0.0)
    for bound in sorted(after, key=float):
        hits = after[bound] - before.get(bound, 0.0)
        if hits > below:
            worst = highest if bound == "+Inf" else float(bound)
        below = hits
    return worst


async def soak(plane: ControlPlane, options: argparse.Namespace) -> list[Sample]:
    """Run for as long as was asked for; returns what was seen."""
    plane.kubectl("apply", "-f", str(RBAC))
    (port,) = free_ports(1)
    flags = (f"--secure-port={port}", "--insecure-loopback", "--leader-elect=false")
    async with (
        LoadGenerator.connected(plane) as load,
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as tasks,
    ):
        await load.create_nodes(options.nodes)
        with plane.ksched(flags=flags) as scheduler:
            work = Load(load, options)
            going = [tasks.create_task(work.count_bound()), tasks.create_task(work.ordinary())]
            if not options.peaceful:
                going.append(tasks.create_task(work.hostile()))
            probe = Probe(scheduler, f"http://{HOST}:{port}", session)
            samples = await _watch(probe, scheduler, work, options)
            for task in going:
                task.cancel()
    return samples


async def _watch(
    probe: Probe, scheduler: ChildProcess, work: Load, options: argparse.Namespace
) -> list[Sample]:
    samples: list[Sample] = []
    await probe.ready()
    with _csv(options.out / "soak.csv") as write:
        began = monotonic()
        while (seconds := monotonic() - began) < options.minutes * 60:
            scheduler.must_run(0)
            samples.append(await probe.sample(seconds, work.bound))
            write(samples[-1])
            say(f"{seconds:6.0f} s  {_told(samples[-1])}  {work.attack}")
            await asyncio.sleep(began + options.every * len(samples) - monotonic())
    return samples


@contextmanager
def _csv(path: Path) -> Iterator[Callable[[Sample], object]]:
    with path.open("w", newline="", buffering=1) as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Sample))
        yield lambda sample: writer.writerow(astuple(sample))


def _told(sample: Sample) -> str:
    return (
        f"{sample.rss_mb:6.1f} MB  {sample.tasks:4.0f} tasks  {sample.descriptors:3.0f} fds  "
        f"lag {sample.lag_ms:6.1f} ms  {sample.bound:6.0f} bound"
    )


def judge(samples: list[Sample]) -> dict[str, Slope]:
    """The slope of everything that is watched, after the warm-up."""
    settled = samples[int(len(samples) * WARM_UP_SHARE) :]
    seconds = [sample.seconds for sample in settled]
    return {name: slope(seconds, [getattr(one, name) for one in settled]) for name in WATCHED}


def report(samples: list[Sample], out: Path) -> bool:
    """Write the page, print the slopes; tells whether nothing rises."""
    slopes = judge(samples)
    notes = "\n".join(f"{name:12} {found}" for name, found in slopes.items())
    minutes = [sample.seconds / 60 for sample in samples]
    curves = {name: [getattr(one, name) for one in samples] for name in (*WATCHED, "bound")}
    title = f"soak: {minutes[-1]:.0f} minutes" if minutes else "soak"
    (out / "soak.html").write_text(page(title, minutes, curves, notes))
    print(notes)
    print(f"{out / 'soak.csv'}\n{out / 'soak.html'}")
    return not any(found.rises for found in slopes.values())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60.0)
    add("--nodes", type=int, default=1000)
    add("--rate", type=float, default=20.0, help="ordinary pods a second")
    add("--lifetime", type=float, default=60.0, help="seconds that an ordinary pod stays")
    add("--attack-seconds", type=float, default=20.0, help="one attack, and the quiet after it")
    add("--every", type=float, default=5.0, help="seconds between two samples")
    add("--peaceful", action="store_true", help="without hostile tenants")
    add("--out", type=Path, default=Path("build/soak"))
    return parser.parse_args(arguments)


def main() -> int:
    options = parse(sys.argv[1:])
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-soak-") as folder,
            ControlPlane.running(Path(folder), Assets.find()) as plane,
        ):
            samples = uvloop.run(soak(plane, options))
    except KschedError as error:
        say(f"soak: {error}")
        return 2
    return 0 if report(samples, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())

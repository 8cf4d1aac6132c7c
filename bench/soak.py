"""A long run beside hostile tenants: does anything grow? ``python -m bench.soak --minutes 60``.

Ordinary pods come at a fixed rate and go after a fixed time, so that there are always as many;
every tenth has a volume. One tenant after another puts the pods of ``lab.hostile`` beside them,
takes them away, and the next follows. Nodes change and are replaced, good and bad configuration
files are written, the lease is taken from its holder, and a second replica comes and is killed; the
one that is measured campaigns again whenever it lost the lease. Memory, tasks, open descriptors and
the lag of the event loop are written down every few seconds. At the end a line is laid through
each, and the exit code is 1 if one rises, if one in a hundred lags is longer than 20 ms, or if one
in twenty ordinary pods was not bound.
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
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench.churn import ELECTION, Churn, Claims, Daemon
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

VOLUME_EVERY = 10
MOST_LAG_MS = 20.0
LEAST_BOUND = 0.95
"""Of the ordinary pods: a scheduler that does nothing does not grow either."""
START_POLLS, START_POLL_SECONDS = 120, 0.5

Lags = dict[str, float]
"""A histogram: how many were at most as long as each bound."""


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
        self._claims = Claims(load)
        self.created = self.bound = 0
        self.attack = ""

    async def ordinary(self) -> None:
        """Create pods on time and delete those that had theirs."""
        alive: deque[tuple[float, int, str]] = deque()
        started = monotonic()
        for index in count():
            await asyncio.sleep(started + index / self._options.rate - monotonic())
            body = pod(index, "mixed")
            if index % VOLUME_EVERY == 0:
                await self._claims.add_to(body, index)
            await self._load.create_pod(body)
            self.created += 1
            alive.append((monotonic(), index, body["metadata"]["name"]))
            while alive and monotonic() - alive[0][0] > self._options.lifetime:
                _, oldest, name = alive.popleft()
                await self._load.delete(f"{PODS}/{name}")
                if oldest % VOLUME_EVERY == 0:
                    await self._claims.remove(oldest)

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
        self.lags: Lags = {}
        """Since the start of the process."""

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
        self._scheduler.must_run(0)
        async with self._session.get(f"{self._url}/metrics") as answer:
            answer.raise_for_status()
            text = await answer.text()
        tasks, lags = 0.0, Lags()
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                if one.name == "scheduler_event_loop_tasks":
                    tasks = one.value
                elif one.name == "scheduler_event_loop_lag_seconds_bucket":
                    lags[one.labels["le"]] = one.value
        lag = worst_lag(self.lags, lags)
        self.lags = lags
        pid = self._scheduler.pid
        rss = usage(pid).rss_bytes / 2**20
        return Sample(seconds, rss, tasks, open_descriptors(pid), 1000 * lag, bound)

    async def last_reload(self) -> dict[str, Any] | None:
        async with self._session.get(f"{self._url}/configz") as answer:
            answer.raise_for_status()
            found: dict[str, Any] | None = (await answer.json())["reload"]["lastReload"]
        return found


def worst_lag(before: Lags, after: Lags) -> float:
    """The bound of the highest bucket of a histogram that was hit since."""
    worst, below = 0.0, 0.0
    highest = max((float(bound) for bound in after if bound != "+Inf"), default=0.0)
    for bound in sorted(after, key=float):
        hits = after[bound] - before.get(bound, 0.0)
        if hits > below:
            worst = highest if bound == "+Inf" else float(bound)
        below = hits
    return worst


def lag_quantile(before: Lags, after: Lags, share: float) -> float:
    """A quantile of what was observed between, interpolated within its bucket."""
    hits = {float(bound): seen - before.get(bound, 0.0) for bound, seen in after.items()}
    wanted = share * max(hits.values(), default=0.0)
    lower, below = 0.0, 0.0
    for bound in sorted(hits):
        if hits[bound] >= wanted and hits[bound] > below:
            within = (wanted - below) / (hits[bound] - below)
            return lower if bound == inf else lower + within * (bound - lower)
        lower, below = bound, hits[bound]
    return 0.0


class Found(NamedTuple):
    """What was seen, the lag that one in a hundred reached, and how many ordinary pods came."""

    samples: list[Sample]
    lag_p99_ms: float
    created: int


async def soak(plane: ControlPlane, options: argparse.Namespace) -> Found:
    """Run for as long as was asked for; returns what was seen."""
    plane.kubectl("apply", "-f", str(RBAC))
    port, other_port = free_ports(2)
    flags = (f"--secure-port={port}", "--insecure-loopback", "--on-lease-lost=standby")
    async with (
        LoadGenerator.connected(plane) as load,
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as tasks,
    ):
        await load.create_nodes(options.nodes)
        with plane.ksched(flags=flags, config=ELECTION) as scheduler:
            probe = Probe(scheduler, f"http://{HOST}:{port}", session)
            await probe.ready()
            work, churn = Load(load, options), Churn(plane, load)
            daemon = Daemon(scheduler, plane.folder / "ksched.config.yaml", probe.last_reload)
            running = [
                work.count_bound(),
                work.ordinary(),
                churn.nodes(options.node_seconds, options.nodes),
                churn.configurations(options.config_seconds, daemon),
                churn.replicas(options.replica_seconds, other_port),
                *(() if options.peaceful else (work.hostile(),)),
            ]
            going = [tasks.create_task(one) for one in running]
            found = await _watch(probe, work, options)
            for task in going:
                task.cancel()
            # The second replica ends with its task.
            await asyncio.wait(going)
            say(", ".join(f"{what}: {times}" for what, times in sorted(churn.happened.items())))
    return found


async def _watch(probe: Probe, work: Load, options: argparse.Namespace) -> Found:
    samples: list[Sample] = []
    settled: Lags = {}
    with _csv(options.out / "soak.csv") as write:
        began = monotonic()
        while (seconds := monotonic() - began) < options.minutes * 60:
            samples.append(await probe.sample(seconds, work.bound))
            if seconds <= WARM_UP_SHARE * options.minutes * 60:
                settled = probe.lags
            write(samples[-1])
            say(f"{seconds:6.0f} s  {_told(samples[-1])}  {work.attack}")
            await asyncio.sleep(began + options.every * len(samples) - monotonic())
    return Found(samples, 1000 * lag_quantile(settled, probe.lags, 0.99), work.created)


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


def report(found: Found, out: Path) -> bool:
    """Write the page, print the slopes; tells whether nothing rises, all in time and bound."""
    samples, lag_p99_ms, created = found
    slopes = judge(samples)
    is_in_time = lag_p99_ms <= MOST_LAG_MS
    notes = "\n".join(f"{name:12} {rise}" for name, rise in slopes.items())
    notes += f"\nlag p99      {lag_p99_ms:.1f} ms, at most {MOST_LAG_MS:.0f} wanted"
    bound = samples[-1].bound if samples else 0.0
    is_bound = bound >= LEAST_BOUND * created
    notes += f"\nbound        {bound:.0f} of {created} pods, at least {LEAST_BOUND:.0%} wanted"
    minutes = [sample.seconds / 60 for sample in samples]
    curves = {name: [getattr(one, name) for one in samples] for name in (*WATCHED, "bound")}
    title = f"soak: {minutes[-1]:.0f} minutes" if minutes else "soak"
    (out / "soak.html").write_text(page(title, minutes, curves, notes))
    print(notes)
    print(f"{out / 'soak.csv'}\n{out / 'soak.html'}")
    return is_in_time and is_bound and not any(rise.rises for rise in slopes.values())


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
    add("--node-seconds", type=float, default=1.0, help="between two changes of nodes")
    add("--config-seconds", type=float, default=30.0, help="between two configuration files")
    add("--replica-seconds", type=float, default=120.0, help="between kills of the other replica")
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
            found = uvloop.run(soak(plane, options))
    except KschedError as error:
        say(f"soak: {error}")
        return 2
    return 0 if report(found, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())

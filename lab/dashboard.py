"""The dashboard in a real browser: what it shows, how soon, and how smoothly.

    python -m lab.dashboard --nodes 5000 --pods-per-second 100 --folder /tmp/pictures

Prints the time to the first paint, frame times, complaints of the console, the CPU time that the
scheduler spent on the page, and how long the explanation of a pod takes and delays the event loop;
writes screenshots, light and dark.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import uvloop

from bench.workloads import node, pod, stuck_pod
from ksched.daemon.observation import Observation
from ksched.metrics import Metrics
from ksched.testing.harness import Cluster, cluster
from ksched.web.web_server import WebServer
from lab.browser import Page, opened

LOOPBACK = "127.0.0.1"
SHOWN = "document.querySelectorAll('#decision-rows a, .tile').length > 10"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
FRAMES = """new Promise((done) => {
  const times = []; let last = performance.now(), end = last + %d;
  const step = (now) => {
    times.push(now - last);
    last = now;
    now < end ? requestAnimationFrame(step) : done(times);
  };
  requestAnimationFrame(step);
})"""


class Smoothness(NamedTuple):
    """Milliseconds."""

    first_paint: float
    frame_p50: float
    frame_p99: float
    longest_frame: float


@asynccontextmanager
async def served(nodes: int) -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster whose scheduler serves its dashboard; yields the address of the page."""
    observation = Observation(Metrics())
    bodies = [node(number) for number in range(nodes)]
    async with (
        cluster(
            bodies, observer=observation, metrics=observation.metrics, check_declarations=False
        ) as running,
        asyncio.TaskGroup() as tasks,
    ):
        observation.attach(running.scheduler)
        probing = tasks.create_task(observation.probe_event_loop(running.clock))
        server = WebServer(running.scheduler, observation.metrics, live={}, ready={}, access=None)
        async with server.listening(LOOPBACK, 0) as url:
            yield running, f"{url}/ui/"
        probing.cancel()


async def arrivals(running: Cluster, per_second: float) -> None:
    """Create pods until cancelled."""
    number = 0
    while True:
        await running.create(pod(number, "basic"))
        number += 1
        await asyncio.sleep(1 / per_second)


async def smoothness(page: Page, seconds: float) -> Smoothness:
    """Measure frames while the page lives on; the first paint was when it was opened."""
    paint = await page.evaluate(PAINTED)
    frames = sorted((await page.evaluate(FRAMES % int(1000 * seconds)))[1:])
    return Smoothness(paint, frames[len(frames) // 2], frames[int(0.99 * len(frames))], frames[-1])


class Explained(NamedTuple):
    """How long a reader waits for it, and lags of the event loop meanwhile and before."""

    seconds: float
    lag_p99_ms: float
    lag_most_ms: float
    before_p99_ms: float
    before_most_ms: float


async def explain_pending(running: Cluster, page: Page, picture: Path) -> Explained:
    """Open the page of a pod that fits nowhere and wait for its explanation."""
    await running.create(stuck_pod(0))
    before = await lags(asyncio.sleep(3.0))
    began = perf_counter()
    await page.evaluate("location.hash = 'pod/default/p-stuck-000000'")
    meanwhile = await lags(page.until_text("#details-body", "would make it fit"))
    seconds = perf_counter() - began
    await page.screenshot(picture)
    return Explained(seconds, *meanwhile, *before)


async def lags(waited_for: Awaitable[None]) -> tuple[float, float]:
    """The lag, in milliseconds, of 99 in 100 wake-ups and of the latest, while something lasts."""
    found: list[float] = []

    async def probe() -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(0.002)
            found.append(1000 * (perf_counter() - began) - 2)

    async with asyncio.TaskGroup() as tasks:
        probing = tasks.create_task(probe())
        await waited_for
        probing.cancel()
    found.sort()
    return found[int(0.99 * len(found))], found[-1]


async def measure(options: argparse.Namespace) -> list[str]:
    """Return the complaints of the console."""
    async with served(options.nodes) as (running, url), asyncio.TaskGroup() as tasks:
        creating = tasks.create_task(arrivals(running, options.pods_per_second))
        await asyncio.sleep(options.seconds)
        used = process_time()
        await asyncio.sleep(options.seconds)
        alone = process_time() - used
        async with opened(url, width=1500, height=1900) as page:
            await page.until(SHOWN)
            found = await smoothness(page, options.seconds)
            used = process_time()
            await asyncio.sleep(options.seconds)
            watched = process_time() - used
            for theme in ("light", "dark"):
                await page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
                await asyncio.sleep(2.5)
                await page.screenshot(options.folder / f"dashboard-{theme}.png")
            explained = await explain_pending(running, page, options.folder / "dashboard-pod.png")
        creating.cancel()
    print(f"{options.nodes} nodes, {options.pods_per_second:g} pods/s")
    print("first paint {:.0f} ms; frames p50 {:.1f}, p99 {:.1f}, longest {:.1f} ms".format(*found))
    share = 100 / options.seconds
    print(f"CPU of the scheduler: {alone * share:.1f} % alone, {watched * share:.1f} % read")
    print(
        "{:.1f} s until a pending pod is explained; event-loop lag p99 {:.1f}, most {:.1f} ms, "
        "before it {:.1f}, {:.1f} ms".format(*explained)
    )
    print(f"complaints of the console: {page.complaints or 'none'}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    return page.complaints


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.dashboard", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods-per-second", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=Path())
    return 1 if uvloop.run(measure(parser.parse_args(arguments))) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""python -m bench.preemptors: what a wave of preemptors costs the pods beside it.

Small pods arrive at a fixed rate on full nodes that have just room for them, first alone, then
while as many preemptors as nodes arrive at once, each of which evicts three pods.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.latency import SETTLE_SECONDS, open_loop
from bench.load_generator import LoadGenerator
from bench.perf import CLASSES, Preemption, pod_of
from bench.schedulers import Start, add_schedulers, starters
from bench.table import Figures, render
from ksched.errors import KschedError
from lab.assets import Assets
from lab.control_plane import ControlPlane

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def measure(
    load: LoadGenerator, start: Start, options: argparse.Namespace, *, has_preemptors: bool
) -> Figures:
    """Let the small pods come, with or without preemptors; the figures are of the small pods."""
    await load.clear_pods()
    await load.delete("/api/v1/nodes")
    case = Preemption()
    await case.prepare(load, options.nodes)
    count = int(options.rate * options.seconds)
    others = [pod_of(f"p-other-{index}", {"cpu": "10m"}) for index in range(count)]
    with start() as scheduler:
        await asyncio.sleep(SETTLE_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            if has_preemptors:
                tasks.create_task(load.create_pods(case.preemptors(options.nodes)))
            return Figures.of(await open_loop(load, scheduler, options.rate, others))


async def compare(plane: ControlPlane, options: argparse.Namespace) -> str:
    results: dict[str, dict[str, Figures]] = {}
    async with LoadGenerator.connected(plane) as load:
        for name, value in CLASSES.items():
            await load.post(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for has_preemptors in (False, True):
            title = f"{options.rate:g} pods/s"
            title += f", {options.nodes} preemptors" if has_preemptors else ""
            results[title] = {
                name: await measure(load, start, options, has_preemptors=has_preemptors)
                for name, start in starters(plane, options.schedulers).items()
            }
    return render(results)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.preemptors", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="and as many preemptors")
    parser.add_argument("--rate", type=float, default=100, help="small pods a second")
    parser.add_argument("--seconds", type=float, default=30, help="how long they come")
    add_schedulers(parser)
    options = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find()) as plane,
        ):
            table = uvloop.run(compare(plane, options))
    except KschedError as error:
        print(f"bench.preemptors: {error}", file=sys.stderr)
        return 1
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

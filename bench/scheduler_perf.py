"""python -m bench.scheduler_perf: kube-scheduler's own benchmark, outside the process.

    python -m bench.scheduler_perf misc/PreemptionBasic
    python -m bench.scheduler_perf misc/SchedulingBasic/5000Nodes misc/Unschedulable
    python -m bench.scheduler_perf volumes/SchedulingCSIPVs --part 10

The operations of a test case run against a real control plane, one of its own for each scheduler.
Feature gates of a workload are not set: both schedulers run with their defaults. As in
scheduler_perf, only what is between the start and the end of its collection of metrics counts.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.latency import quantile
from bench.load_generator import LoadGenerator
from bench.perf_config import PerfCase, find_root, load
from bench.perf_operations import Executor
from bench.process_usage import usage
from bench.schedulers import add_schedulers, starters
from bench.table import Figures, render
from ksched.errors import KschedError
from lab.assets import Assets
from lab.control_plane import ControlPlane

SERVER_FLAGS = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",)
"""As scheduler_perf has it: its pods have priorities without a class."""
TIMEOUT_SECONDS = 300.0


async def run(plane: ControlPlane, case: PerfCase, scheduler_name: str) -> Figures:
    """Run a test case with one scheduler."""
    start = starters(plane, [scheduler_name])[scheduler_name]
    async with LoadGenerator.connected(plane) as generator:
        with start() as scheduler:
            executor = Executor(
                generator, case, TIMEOUT_SECONDS, lambda: usage(scheduler.pid).cpu_seconds
            )
            await executor.run()
            scheduler.must_run(0)
            rss = usage(scheduler.pid).rss_bytes
    waits = executor.waits
    in_order = sorted(1000 * (bound - sent) for sent, bound in waits)
    began, ended = executor.collected
    last = max((bound for _, bound in waits), default=math.nan)
    return Figures(
        bound=len(waits),
        asked=executor.asked,
        pods_per_second=len(waits) / (last - began.at),
        cpu_ms_per_pod=1000 * (ended.cpu_seconds - began.cpu_seconds) / max(1, executor.asked),
        rss_mb=rss / 2**20,
        p50_ms=quantile(in_order, 0.5),
        p99_ms=quantile(in_order, 0.99),
    )


def measure(case: PerfCase, schedulers: Sequence[str]) -> dict[str, Figures]:
    """Run a test case with each scheduler on a new control plane."""
    found = {}
    for name in schedulers:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find(), SERVER_FLAGS) as plane,
        ):
            try:
                found[name] = figures = uvloop.run(run(plane, case, name))
            except ExceptionGroup as group:
                raise group.exceptions[0] from group
        _say(
            f"{case.name}/{case.workload}: {name} {figures.bound:.0f}/{figures.asked:.0f}, "
            f"{figures.pods_per_second:.0f} pods/s, {figures.cpu_ms_per_pod:.2f} ms/pod, "
            f"p99 {figures.p99_ms:.0f} ms, RSS {figures.rss_mb:.0f} MB"
        )
    return found


def compare(
    cases: Sequence[PerfCase], schedulers: Sequence[str], rounds: int
) -> dict[str, dict[str, Figures]]:
    """Return the medians of all rounds; the schedulers swap turns each round."""
    found: dict[str, dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        for case in cases:
            for name, figures in measure(case, schedulers[:: -1 if number % 2 else 1]).items():
                found[f"{case.name}/{case.workload}"][name].append(figures)
    return {
        case: {name: Figures.median_of(by_name[name]) for name in schedulers}
        for case, by_name in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduler_perf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="+", metavar="TOPIC/CASE[/WORKLOAD]")
    parser.add_argument("--part", type=int, default=1, help="a part of the nodes and pods")
    parser.add_argument("--rounds", type=int, default=1, help="the table shows medians")
    add_schedulers(parser)
    options = parser.parse_args()
    try:
        cases = [load(find_root(), wanted, options.part) for wanted in options.cases]
        results = compare(cases, options.schedulers, options.rounds)
    except KschedError as error:
        _say(f"bench.scheduler_perf: {error}")
        return 1
    load_average = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"{os.cpu_count()} cores, part 1/{options.part}, load average at the end {load_average}\n"
    )
    print(render(results))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

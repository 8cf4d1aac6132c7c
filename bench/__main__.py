"""python -m bench: kube-scheduler and ksched in turns on one real control plane."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.bind_limit import bind_limit
from bench.claim_limit import claim_limit
from bench.drain import drain
from bench.latency import latency
from bench.load_generator import LoadGenerator
from bench.schedulers import Start, add_schedulers, starters
from bench.table import BindLimit, Figures, render
from bench.workloads import WORKLOADS
from ksched.errors import KschedError
from ksched.testing.device_workloads import DEVICE_WORKLOADS
from lab.assets import KUBERNETES_VERSION, Assets
from lab.control_plane import ControlPlane

# Those with devices are made for few nodes: some take kube-scheduler minutes on 5000.
EVERYDAY = [name for name in WORKLOADS if name == "claims" or name not in DEVICE_WORKLOADS]

Results = dict[str, dict[str, list[Figures]]]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=3000, help="pods of one drain")
    parser.add_argument("--rounds", type=int, default=1, help="the table shows medians")
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=EVERYDAY)
    add_schedulers(parser)
    parser.add_argument("--rate", type=float, default=100, help="open loop: pods a second")
    parser.add_argument("--seconds", type=float, default=20, help="open loop: how long; 0: not")
    parser.add_argument(
        "--stuck", type=int, default=1000, help="open loop: pods that fit nowhere; 0: no such run"
    )
    parser.add_argument("--timeout", type=float, default=300, help="seconds one drain may take")
    return parser.parse_args(arguments)


async def measure(plane: ControlPlane, options: argparse.Namespace) -> str:
    results: Results = defaultdict(lambda: defaultdict(list))
    limits: list[BindLimit] = []
    start_by_name = starters(plane, options.schedulers)
    async with LoadGenerator.connected(plane) as load:
        say(f"creating {options.nodes} nodes")
        await load.create_nodes(options.nodes)
        for number in range(options.rounds):
            # Whoever goes second may find a warmer or a fuller server; they take turns at that too.
            turns = list(start_by_name.items())
            turns = turns[:: -1 if number % 2 else 1]
            await one_round(load, options, turns, results, plane.server_pids)
            limits.append(await limit_of_the_server(load, options))
    medians = {
        case: {name: Figures.median_of(by_name[name]) for name in options.schedulers}
        for case, by_name in results.items()
    }
    return render(medians, BindLimit.median_of(limits))


async def limit_of_the_server(load: LoadGenerator, options: argparse.Namespace) -> BindLimit:
    say("the API server's own limit")
    return BindLimit(
        binds_only=await bind_limit(load, options.pods, with_events=False),
        with_events=await bind_limit(load, options.pods, with_events=True),
        with_claims={
            workload: await claim_limit(load, workload, options.pods)
            for workload in options.workloads
            if workload in DEVICE_WORKLOADS
        },
    )


async def one_round(
    load: LoadGenerator,
    options: argparse.Namespace,
    turns: list[tuple[str, Start]],
    results: Results,
    server_pids: Sequence[int],
) -> None:
    for workload in options.workloads:
        for name, start in turns:
            run = await drain(load, start, workload, options.pods, options.timeout, server_pids)
            figures = Figures.of(run)
            say(f"{workload}: {name} {figures.pods_per_second:.0f} pods/s")
            results[workload][name].append(figures)
    backlogs = [] if not options.seconds else [0, options.stuck] if options.stuck else [0]
    for stuck in backlogs:
        case = f"{options.rate:g} pods/s" + (f", {stuck} stuck" if stuck else "")
        for name, start in turns:
            waits = await latency(load, start, options.rate, options.seconds, stuck)
            say(f"{case}: {name} p50 {waits.p50_ms:.1f} ms, p99 {waits.p99_ms:.1f} ms")
            results[case][name].append(Figures.of(waits))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find()) as plane,
        ):
            table = uvloop.run(measure(plane, options))
    except KschedError as error:
        say(f"bench: {error}")
        return 1
    print(
        f"Kubernetes {KUBERNETES_VERSION}, {options.nodes} nodes, {options.pods} pods a drain, "
        f"{os.cpu_count()} cores shared with the control plane, rounds: {options.rounds}\n"
    )
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

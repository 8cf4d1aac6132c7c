"""``ksched bench``: scheduling throughput, in process."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ksched.commands import Subparsers
from ksched.errors import ConfigError

if TYPE_CHECKING:
    from ksched.benchmark import Figures

DESCRIPTION = """\
Measure the scheduling core without a network: queue, cycle, assume and confirm. Each workload runs
on a cluster of its own, which is empty but for gangsfull (80 % in use) and gangsevict (no room).
A number is the size of a gang, one without a number is as large as the workload; besidehopeless are
single pods while a fifth as many gangs of ten wait in vain, gangsheld are held at Permit.

  ksched bench                          every workload on 5000 nodes
  ksched bench basic --nodes 100000     one workload on more nodes

columns:
  decisions/s   in wall-clock time  CPU µs      per decision
  rows read     nodes passed to plugins per decision, all plugins together
  first, last   CPU µs per decision in the first and in the last thousand
  longest       ms for which a gang's decision did not yield to the event loop
  undone        placements of members whose gang did not fit
"""
HEADINGS = (
    *("workload", "placed", "decisions/s", "CPU µs", "rows read", "first µs", "last µs"),
    *("longest ms", "undone", "peak RSS MB"),
)


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "bench",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help="workloads to run (default: all)")
    add("--nodes", type=int, default=5000, metavar="N", help="default 5000")
    add("--pods", type=int, default=5000, metavar="N", help="pods per workload, default 5000")
    add("--seed", type=int, default=0, metavar="N", help="seed of the tie-break (default 0)")
    add("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import msgspec
    import uvloop

    from ksched.benchmark import WORKLOADS, measure

    workloads: list[str] = arguments.workloads or list(WORKLOADS)
    _check(workloads, WORKLOADS, arguments.nodes, arguments.pods)
    if not arguments.json:
        print(f"{arguments.nodes} nodes, {arguments.pods} pods of each workload", flush=True)
        print(_row(HEADINGS), flush=True)
    results: list[Figures] = []
    for workload in workloads:
        figures = uvloop.run(measure(workload, arguments.nodes, arguments.pods, arguments.seed))
        results.append(figures)
        if not arguments.json:
            print(_row(_cells(figures)), flush=True)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    unplaced = [figures.workload for figures in results if figures.placed < figures.wanted]
    if unplaced:
        print(f"not all pods found a node: {', '.join(unplaced)}", file=sys.stderr)
    return 0


def _check(workloads: list[str], known: tuple[str, ...], nodes: int, pods: int) -> None:
    unknown = [name for name in workloads if name not in known]
    problems = [f"{name}: no such workload, wanted {', '.join(known)}" for name in unknown]
    problems += [
        f"--{flag}: must be at least 1, got {count}"
        for flag, count in (("nodes", nodes), ("pods", pods))
        if count < 1
    ]
    if problems:
        raise ConfigError(problems)


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        figures.workload,
        f"{figures.placed:,}",
        f"{figures.decisions_per_second:,.0f}",
        f"{figures.cpu_micros_per_decision:,.0f}",
        f"{figures.rows_per_decision:,.1f}",
        f"{figures.first_micros:,.0f}",
        f"{figures.last_micros:,.0f}",
        f"{figures.longest_ms:,.1f}" if figures.longest_ms else "-",
        f"{figures.undone:,}",
        f"{figures.peak_rss_mb:,.0f}",
    )


def _row(cells: tuple[str, ...]) -> str:
    return f"{cells[0]:<14}" + "".join(f"{cell:>12}" for cell in cells[1:])

"""``ksched demo``: an embedded cluster, a scripted workload and a live view."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ksched.commands import Subparsers
from ksched.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from ksched.demo.result import Outcome
    from ksched.demo.show import Options

DESCRIPTION = """\
Show ksched at work: an in-memory API server, simulated nodes, and a scripted workload of a minute
and a half, with deployments, taints, affinities, GPUs, a gang, a burst and a failing node. Without
a terminal, one line per decision. Nothing is persisted, nothing leaves this machine.

keys:
  q quit    p pause the script    n add a node    b burst of 200 pods

  ksched demo                            watch it
  ksched demo --once --speed 3           watch it in half a minute, then a summary
  ksched demo --json                     in simulated time: the node of every pod, or why not
"""


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "demo",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--nodes", type=int, default=36, metavar="N", help="initial nodes (default 36)")
    add("--pods", type=int, default=300, metavar="N", help="approximate pods (default 300)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the tie-break (default 0)")
    add(
        "--speed",
        type=float,
        default=None,
        metavar="X",
        help="2 runs the script twice as fast, 0 in simulated time without waiting "
        "(default 1, with --json 0)",
    )
    add("--once", action="store_true", help="exit when the script has ended and all is settled")
    add(
        "--json",
        action="store_true",
        help="print only every pod's node or reason at the end; implies --once",
    )
    add(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port for kubectl on 127.0.0.1 (default: a free port)",
    )
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from ksched.demo.show import Options

    chosen: float | None = arguments.speed
    default = 0.0 if arguments.json else 1.0
    speed = default if chosen is None else chosen
    _check(arguments.nodes, arguments.pods, speed)
    options = Options(
        nodes=arguments.nodes,
        pods=arguments.pods,
        seed=arguments.seed,
        speed=speed or 1.0,
        once=arguments.once or arguments.json or not speed,
        port=arguments.port if speed else None,
    )
    try:
        ended = _run(options, is_virtual=not speed, is_silent=arguments.json)
        _report(ended, arguments.json)
    except KeyboardInterrupt:
        # Stopped before anything was shown, or while time is simulated.
        return 0
    return 0


def _check(nodes: int, pods: int, speed: float) -> None:
    from ksched.demo.fleet import FEWEST_NODES

    problems = []
    if nodes < FEWEST_NODES:
        problems.append(f"--nodes: must be at least {FEWEST_NODES}, got {nodes}")
    if pods < 1:
        problems.append(f"--pods: must be at least 1, got {pods}")
    if speed < 0:
        problems.append(f"--speed: must not be negative, got {speed:g}")
    if problems:
        raise ConfigError(problems)


def _run(options: Options, *, is_virtual: bool, is_silent: bool) -> Outcome:
    import uvloop

    from ksched.demo.show import show
    from ksched.testing import virtual_time

    lines = None if is_silent else sys.stdout
    if is_virtual:
        return virtual_time.run(show(options, lines=lines))
    console = None if is_silent else _live_console()
    if console is not None:
        lines = None
    return uvloop.run(show(options, console=console, lines=lines))


def _live_console() -> Console | None:
    """Return the terminal, if it can show a live view."""
    from rich.console import Console

    console = Console()
    is_able = console.is_terminal and not console.is_dumb_terminal
    return console if is_able and console.encoding.startswith("utf") else None


def _report(ended: Outcome, as_json: bool) -> None:
    import msgspec

    from ksched.demo.result import summary

    if as_json:
        text = msgspec.json.format(msgspec.json.encode(ended), indent=2).decode()
    else:
        text = summary(ended)
    print(text, flush=True)

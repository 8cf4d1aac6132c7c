"""``ksched check-plugin module:Class``: does a plugin keep the contract, on random clusters?"""

from __future__ import annotations

import argparse

from ksched.commands import Subparsers

DESCRIPTION = """\
Check a plugin on random clusters: the contract of every extension point; that asking it changes
nothing and is answered alike every time; that filter_depends_on and score_depends_on are true; what
it costs at 100 and 5,000 nodes; that it can be cancelled at every await; and forty pods in a
running scheduler. Labels and values are taken from the texts of the plugin's own module.

exit codes: 0 no findings, 1 findings, 2 bad usage or no such plugin
"""

DEFAULT_NODES = 30
DEFAULT_BUDGET_MS = 20.0


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "check-plugin",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "plugin",
        metavar="PLUGIN",
        help="module:Class, or the name of an installed or in-tree plugin",
    )
    add(
        "--args",
        metavar="FILE",
        help="the plugin's arguments as YAML or JSON, or a configuration file that has them",
    )
    add("--seed", type=int, default=0, help="of the random clusters (default: 0)")
    add("--nodes", type=_positive, default=DEFAULT_NODES, help="nodes of them (default: 30)")
    add(
        "--budget-ms",
        type=float,
        default=DEFAULT_BUDGET_MS,
        metavar="MS",
        help="CPU time that the plugin may take for a pod at 5,000 nodes (default: 20)",
    )
    add("-o", "--output", choices=("text", "json"), default="text", help="(default: text)")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from ksched.testing.conformance.kit import examine
    from ksched.testing.conformance.target import find_target, read_args

    target = find_target(arguments.plugin)
    if arguments.args:
        target = target.with_args(read_args(arguments.args, target.name), arguments.args)
    report = examine(
        target, seed=arguments.seed, nodes=arguments.nodes, budget_ms=arguments.budget_ms
    )
    print(report.to_json() if arguments.output == "json" else report.to_text())
    return 0 if report.is_clean else 1


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number

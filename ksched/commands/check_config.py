"""``ksched check-config FILE``: whether ``ksched run --config FILE`` would start."""

from __future__ import annotations

import argparse
import asyncio
import sys

from ksched.commands import Subparsers
from ksched.configuration.model import SchedulerConfiguration


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "check-config",
        help=summary,
        description="Read a KubeSchedulerConfiguration, build its profiles, and list every problem "
        "with the path of its field. Exit code 0 if it can be used, 2 if not.",
    )
    parser.add_argument("file", metavar="FILE", help="the configuration file")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from ksched.configuration.flags import add_run_flags, run_options
    from ksched.framework.runtime.registry import available

    path: str = arguments.file
    run_parser = argparse.ArgumentParser()
    add_run_flags(run_parser)
    options = run_options(run_parser.parse_args([f"--config={path}"]), available())
    asyncio.run(_build(options.configuration))
    for note in options.notes:
        print(f"warning: {note}", file=sys.stderr)
    names = ", ".join(profile.scheduler_name for profile in options.configuration.profiles)
    print(f"{path}: ok, profiles: {names}")
    return 0


async def _build(configuration: SchedulerConfiguration) -> None:
    from ksched.scheduling.plugin_inventory import try_to_build

    try_to_build(configuration)

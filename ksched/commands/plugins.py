"""``ksched plugins``: available plugins with origin, extension points, profiles and problems."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import TYPE_CHECKING

from ksched.commands import Subparsers

if TYPE_CHECKING:
    from ksched.configuration.model import SchedulerConfiguration
    from ksched.scheduling.plugin_inventory import PluginEntry

DESCRIPTION = """\
List every plugin that a profile may enable: those of installed packages (entry point group
"ksched.plugins"), then the in-tree ones; with package and version, extension points, the profiles
that enable them, and problems. A broken package does no harm unless a profile enables its plugin.

exit codes: 0, or 2 if a profile enables a plugin that has a problem
"""


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "plugins",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="configuration file with the profiles")
    add("--json", action="store_true", help="print a JSON list")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from ksched.scheduling.plugin_inventory import inventory

    # Problems of a plugin are in its line.
    logging.getLogger("ksched").addHandler(logging.NullHandler())
    configuration = _configuration(arguments.config)

    async def listed() -> list[PluginEntry]:
        return inventory(configuration)

    entries = asyncio.run(listed())
    print(_json(entries) if arguments.json else _table(entries))
    return 2 if any(entry.profiles and entry.problems for entry in entries) else 0


def _configuration(path: str | None) -> SchedulerConfiguration:
    from ksched.configuration.flags import add_run_flags, run_options
    from ksched.framework.runtime.registry import available

    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    flags = parser.parse_args([f"--config={path}"] if path else [])
    return run_options(flags, available()).configuration


def _json(entries: list[PluginEntry]) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(entries), indent=2).decode()


def _table(entries: list[PluginEntry]) -> str:
    rows = [("PLUGIN", "PACKAGE", "ENABLED IN", "EXTENSION POINTS"), *map(_cells, entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for number, row in enumerate(rows):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*padded, row[3]]).rstrip())
        if number:
            lines += [f"    problem: {text}" for text in entries[number - 1].problems]
    return "\n".join(lines)


def _cells(entry: PluginEntry) -> tuple[str, str, str, str]:
    return (
        entry.name or "?",
        f"{entry.package} {entry.version}".rstrip(),
        ", ".join(entry.profiles) or "-",
        ", ".join(entry.extension_points) or "-",
    )

"""``ksched reload``: lets a running scheduler load its configuration file again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from ksched.commands import Subparsers
from ksched.commands.scheduler_client import ADDRESS_HELP, add_server_arguments, fetch

DESCRIPTION = f"""\
Let a running scheduler load its configuration file again, now instead of within four seconds, and
say what became of it: which plugins are new, and how many of the pending pods are decided otherwise
from now on. A file that is wrong, or that needs a restart, changes nothing and is told in full.

Every replica reads its own file: with several, each has to be told, or wait for its own look.
Reading it again is all that this can do; the file is the one of the process's --config.

{ADDRESS_HELP}
exit codes: 0 the file is what decides, 1 it was refused or the scheduler cannot be reached
"""

REFUSED = 422
PATIENCE_SECONDS = 60.0


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "reload",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    add_server_arguments(parser, "post to /reload")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    body = fetch(
        arguments,
        "/reload",
        method="POST",
        readable=[REFUSED],
        timeout_seconds=PATIENCE_SECONDS,
    )
    outcome: dict[str, Any] = msgspec.json.decode(body)
    if arguments.output == "json":
        print(body.decode().rstrip())
    elif outcome["problems"]:
        print(f"refused, nothing changed: {outcome['file']}", file=sys.stderr)
        for problem in outcome["problems"]:
            print(f"error: {problem}", file=sys.stderr)
    else:
        print("\n".join(_lines(outcome)))
    return 1 if outcome["problems"] else 0


def _lines(outcome: dict[str, Any]) -> list[str]:
    lines = [f"{outcome['result']}: {outcome['file']}, hash {outcome['configurationHash']}"]
    if outcome["rebuiltPlugins"]:
        lines.append(f"plugins built anew: {', '.join(outcome['rebuiltPlugins'])}")
    found = outcome["comparison"]
    if found is not None:
        lines.append(
            f"of {found['pending']} pending pods {found['compared']} were compared: "
            f"{found['fitNow']} fit now, {found['fitNoLonger']} fit no longer, "
            f"{found['otherNode']} get another node, {found['otherReason']} have another reason"
        )
        lines += [f"  {example}" for example in found["examples"]]
    return lines

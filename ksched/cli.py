"""The command line: parse, build, call. The commands themselves are in ``commands``.

Exit codes: 0 done or stopped by a signal, 1 failure, 2 bad usage or configuration, 130 interrupted
by Ctrl-C where nothing was to be finished.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from ksched import __version__
from ksched.commands import (
    apiserver,
    bench,
    check_config,
    check_plugin,
    demo,
    explain,
    groups,
    kubelet,
    plugins,
    reload,
    replay,
    run,
    shadow,
    what_if,
)
from ksched.errors import ConfigError, KschedError
from ksched.redaction import redact_text

# Each adds its parser and the function that runs it; the order is that of the help.
COMMANDS = (
    run,
    reload,
    explain,
    what_if,
    shadow,
    replay,
    groups,
    demo,
    check_config,
    plugins,
    check_plugin,
    apiserver,
    kubelet,
    bench,
)

INTERRUPTED = 128 + signal.SIGINT

EPILOG = """\
first steps:
  make run                                              see it work, no cluster needed
  ksched apiserver --kubeconfig-out /tmp/kubeconfig     an API server with ten nodes
  ksched run --kubeconfig /tmp/kubeconfig -v 2          a scheduler for it, or for your cluster
  ksched COMMAND --help                                 all options of a command
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of ``ksched`` and ``python -m ksched``."""
    sys.exit(execute(arguments))


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; bad usage raises ``SystemExit(2)``."""
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    if not hasattr(parsed, "execute"):
        parser.print_help(sys.stderr)
        return 2
    try:
        code: int = parsed.execute(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Python would report it again when it
        # flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {redact_text(problem)}", file=sys.stderr)
        return 2
    except KschedError as error:
        print(f"error: {redact_text(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ksched",
        description="A kube-scheduler in Python.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ksched {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser

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
from importlib import import_module
from typing import NoReturn

from ksched import __version__
from ksched.errors import ConfigError, KschedError
from ksched.redaction import redact_text

# The modules of ``ksched.commands`` and what the help says of each, in its order.
COMMANDS = {
    "run": "schedule pods",
    "reload": "let a running scheduler load its configuration file again",
    "explain": "why a pod is pending or placed",
    "what-if": "what becomes of the pods if nodes are drained or added, workloads scaled",
    "shadow": "compare a live scheduler's decisions with those of a configuration",
    "replay": "make the decisions of a journal again",
    "groups": "list the pod groups of a running scheduler and what each waits for",
    "demo": "an embedded cluster, a scripted workload and a live view",
    "check-config": "check a configuration file",
    "plugins": "list in-tree plugins and those of installed packages",
    "check-plugin": "check a plugin of your own on random clusters",
    "apiserver": "an in-memory API server with simulated nodes",
    "kubelet": "simulated nodes for any API server",
    "bench": "measure scheduling throughput, in process",
}

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
    # NumPy would start a thread for every core, though nothing here multiplies large matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = build_parser(words)
    parsed = parser.parse_args(words)
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


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of a command line; only the module of its command is loaded."""
    parser = argparse.ArgumentParser(
        prog="ksched",
        description="A kube-scheduler in Python.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ksched {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name in words:
            import_module(f"ksched.commands.{name.replace('-', '_')}").add_parser(commands, summary)
        else:
            commands.add_parser(name, help=summary)
    return parser

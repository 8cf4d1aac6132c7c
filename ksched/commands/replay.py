"""``ksched replay``: makes the decisions of a journal again."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ksched.commands import Subparsers
from ksched.commands.read_only_access import read_configuration
from ksched.commands.structured_output import structured
from ksched.daemon import logs
from ksched.errors import ConfigError

if TYPE_CHECKING:
    from ksched.configuration.model import SchedulerConfiguration
    from ksched.journal.replay_report import ReplaySummary

DESCRIPTION = """\
Decide again what a scheduler decided, from the journal that ksched run --journal wrote: on the
recorded state and with the recorded configuration, or with another one to see what it would change.
Needs no cluster.

  ksched replay FILE                        are all decisions the same?
  ksched replay DIR                         all files of a journal
  ksched replay DIR --config new.yaml       what another configuration would have decided
  ksched replay FILE --pod default/web      only the decisions about a pod
  ksched replay FILE --at 2026-03-01T12:00:05Z
                                            only the decisions of that second
  ksched replay FILE --pod default/web --test-out test_web.py
                                            the decision as a test for pytest, with its own journal
  ksched replay FILE -o json                for programs

exit codes: 0 all the same, 3 some differ, 1 failure, 2 bad usage
"""
DIFFERENT = 3


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "replay",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", nargs="+", metavar="FILE", help="file of a journal, or its folder")
    add("--config", metavar="FILE", help="another configuration (default: the recorded one)")
    add("--pod", default="", metavar="NAME", help="only this pod: NAMESPACE/NAME, or NAME")
    add("--at", default="", metavar="TIME", help="only this second, as 2026-03-01T12:00:05Z")
    add("--test-out", default="", metavar="FILE", help="write the first such decision as a test")
    add("-o", "--output", choices=("wide", "json", "yaml"), default="", help="default: a summary")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import asyncio

    logs.configure(0, "text")
    at = _time(arguments.at)
    configuration = read_configuration(arguments.config) if arguments.config else None
    if arguments.test_out:
        return _write_test(arguments, at)
    summary = asyncio.run(_replay(arguments, configuration, at))
    print(_text(summary, arguments.output))
    return DIFFERENT if summary.different else 0


def _time(text: str) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problem = f"--at: got {text}, wanted a time as 2026-03-01T12:00:05Z"
        raise ConfigError([problem]) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _pod(arguments: argparse.Namespace) -> str:
    pod: str = arguments.pod
    return pod if "/" in pod or not pod else f"default/{pod}"


def _write_test(arguments: argparse.Namespace, at: float | None) -> int:
    from pathlib import Path

    from ksched.journal.incident import write_test
    from ksched.journal.reading import journal_paths
    from ksched.journal.replaying import Replayer

    replayer, test = Replayer(pod=_pod(arguments), at=at), Path(arguments.test_out)
    decided = write_test(journal_paths(arguments.file), replayer.is_wanted, test)
    print(f"{test}: the decision about {decided.pod}; run it with pytest")
    return 0


async def _replay(
    arguments: argparse.Namespace, configuration: SchedulerConfiguration | None, at: float | None
) -> ReplaySummary:
    from ksched.journal.reading import JournalFile, journal_paths
    from ksched.journal.replaying import Replayer

    replayer = Replayer(configuration, pod=_pod(arguments), at=at)
    for path in journal_paths(arguments.file):
        await replayer.run(JournalFile(path))
    return replayer.report.summary()


def _text(summary: ReplaySummary, output: str) -> str:
    if output in ("json", "yaml"):
        return structured(summary, output)
    from ksched.journal.replay_rendering import render

    return render(summary, wide=output == "wide")

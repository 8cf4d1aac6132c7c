"""One decision of a journal as a test: a small journal that ends with it, and a file for pytest."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from ksched.clock import rfc3339_micro
from ksched.errors import KschedError
from ksched.journal import records
from ksched.journal.reading import JournalFile
from ksched.journal.records import AnyRecord, Assumed, Began, Decided, Together

_TEST: Final = '''\
"""{pod} at {at}: {outcome}. Made by ``ksched replay --test-out``."""

from pathlib import Path

from ksched.testing import replay_journal

JOURNAL = Path(__file__).with_name({journal!r})


def test_{name}():
    summary = replay_journal(JOURNAL)
    assert (summary.decisions, summary.different) == (1, 0), summary.differences
'''


class NoDecision(KschedError):
    """No decision of the journal is meant."""


def write_test(
    paths: Iterable[Path], is_wanted: Callable[[Decided | Together], bool], test: Path
) -> Decided:
    """Write the first decision that is wanted as ``test`` and a journal beside it."""
    for path in paths:
        decided = _find(path, is_wanted)
        if decided is not None:
            break
    else:
        raise NoDecision("--test-out: no decision of the journal is meant by --pod and --at")
    journal = test.with_suffix(".jsonl.gz")
    name = re.sub(r"\W+", "_", f"{decided.pod} {'is placed' if decided.node else 'is rejected'}")
    text = _TEST.format(
        pod=decided.pod,
        at=rfc3339_micro(decided.at),
        outcome=_outcome(decided),
        journal=journal.name,
        name=name.lower(),
    )
    try:
        with gzip.open(journal, "wb") as file:
            file.writelines(records.encode(one) + b"\n" for one in _up_to(path, decided))
        test.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise NoDecision(f"--test-out: cannot write {test}: {problem.strerror}") from problem
    return decided


def _outcome(decided: Decided) -> str:
    text = f"placed on {decided.node}" if decided.node else decided.message
    return text.replace("\\", "").replace('"', "'").replace("\n", " ").rstrip(".")


def _find(path: Path, is_wanted: Callable[[Decided | Together], bool]) -> Decided | None:
    for record in JournalFile(path):
        if isinstance(record, Decided) and is_wanted(record):
            return record
    return None


def _up_to(path: Path, wanted: Decided) -> Iterator[AnyRecord]:
    """The records up to a decision; of earlier ones only that their pods have a node."""
    file = JournalFile(path)
    yield file.header
    late: list[AnyRecord] = []
    for record in file:
        if isinstance(record, Began):
            yield from late[1:]
            late = [record]
        elif isinstance(record, Decided):
            if record == wanted:
                yield from (*late, record)
                return
            if record.node and not record.message:
                yield Assumed(uid=record.uid, node=record.node)
            yield from late[1:]
            late = []
        elif late:
            late.append(record)
        elif not isinstance(record, Together):
            yield record

"""Reads a file of a journal; the file of a process that was killed ends where it ends."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ksched.errors import KschedError
from ksched.journal import records
from ksched.journal.records import FORMAT, AnyRecord, Header
from ksched.journal.segments import journal_files

_CHUNK_BYTES: Final = 1 << 20
_GZIP: Final = 31
_LONGEST_LINE_BYTES: Final = 1 << 26


class JournalUnreadable(KschedError):
    """A file is no journal, or of a version that is not known here; the text names it."""


def journal_paths(names: list[str]) -> list[Path]:
    """The files that are meant: a folder stands for all of its journal, oldest first."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        files = journal_files(path) if path.is_dir() else [path]
        if not files:
            raise JournalUnreadable(f"{name}: there is no journal in this folder")
        found += files
    return found


class JournalFile:
    """One file: ``header``, then all other records by iteration, once.

    ``note`` says afterwards if the end is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        self._records = self._read()
        first = next(self._records, None)
        if not isinstance(first, Header):
            raise JournalUnreadable(f"{path}: no header at its begin, so this is no journal")
        self.header = first

    def __iter__(self) -> Iterator[AnyRecord]:
        return self._records

    def _read(self) -> Iterator[AnyRecord]:
        for number, line in enumerate(self._lines(), 1):
            try:
                if number == 1:
                    self._check_format(line)
                yield records.decode(line)
            except msgspec.MsgspecError as problem:
                raise JournalUnreadable(f"{self.path}: line {number}: {problem}") from problem

    def _check_format(self, line: bytes) -> None:
        content = msgspec.json.decode(line)
        found = content.get("format") if isinstance(content, dict) else None
        if isinstance(found, int) and found > FORMAT:
            raise JournalUnreadable(
                f"{self.path}: format {found}, this version of ksched reads up to {FORMAT}"
            )

    def _lines(self) -> Iterator[bytes]:
        """Whole lines; what the last write did not finish is left out."""
        rest = b""
        try:
            for data in self._decompressed():
                first, *others = data.split(b"\n")
                rest += first
                for line in others:
                    yield rest
                    rest = line
                if len(rest) > _LONGEST_LINE_BYTES:
                    raise JournalUnreadable(f"{self.path}: a line is too long for a journal")
        except OSError as problem:
            raise JournalUnreadable(f"{self.path}: {problem.strerror or problem}") from problem
        if rest:
            self.note = f"{self.path}: the last record is incomplete, it is left out"

    def _decompressed(self) -> Iterator[bytes]:
        stream = zlib.decompressobj(_GZIP)
        with open(self.path, "rb") as file:
            is_first = True
            while data := file.read(_CHUNK_BYTES):
                while data:
                    try:
                        yield stream.decompress(data, _CHUNK_BYTES)
                    except zlib.error as problem:
                        if is_first:
                            raise JournalUnreadable(
                                f"{self.path}: not compressed as a journal is: {problem}"
                            ) from problem
                        self.note = f"{self.path}: damaged, what follows is left out"
                        return
                    is_first = False
                    data = stream.unconsumed_tail
        if not stream.eof:
            self.note = f"{self.path}: not ended properly, up to its last record it is complete"

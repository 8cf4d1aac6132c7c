"""The files of a journal: compressed, rotated, and bounded in all.

Each file is complete in itself: it begins with the whole state. What was written is readable after
the process was killed, up to the last flush. Used by one thread at a time.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from ksched.errors import KschedError

PATTERN: Final = "journal-*.jsonl.gz"
_GZIP: Final = 31
"""zlib's window bits for the format of gzip."""
_LEVEL: Final = 1
_SHARES: Final = 8
"""The state may take this part of the limit; then a file has two of them at most."""
SMALLEST_LIMIT: Final = 1 << 20


class JournalTooSmall(KschedError):
    """The state of the cluster alone takes more room than a file of the journal may have."""


def journal_files(folder: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    return sorted(folder.glob(PATTERN))


class Segments:
    """Writes to the newest file, and deletes the oldest so that all have at most ``limit_bytes``.

    ``begin``, ``write`` and ``close`` do file I/O and raise ``OSError``.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit_bytes = folder, limit_bytes
        self._file: BinaryIO | None = None
        self._compress = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._size = 0
        self._full_bytes = limit_bytes // _SHARES
        self._number = 0
        self.written_bytes = 0
        """In all files, since the start."""

    @property
    def is_full(self) -> bool:
        """Whether another file should be begun."""
        return self._size >= self._full_bytes

    def begin(self, stamp: str) -> None:
        """End the current file and begin another; ``stamp`` is the time, for its name."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._delete_oldest()
        self._number += 1
        path = self._folder / f"journal-{stamp}-{os.getpid()}-{self._number:04}.jsonl.gz"
        self._file = open(path, "wb", buffering=0, opener=_for_its_owner)  # noqa: SIM115
        self._compress = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._size = 0

    def state_is_written(self) -> None:
        """Call when the file has the whole state; raises ``JournalTooSmall`` if that is too much.

        What follows it may have half as much, so that not every file is nothing but a state.
        """
        share = self._limit_bytes // _SHARES
        if self._size > share:
            problem = f"the state of the cluster takes {self._size} bytes"
            raise JournalTooSmall(f"{self._folder}: {problem}, more than {share}, its eighth")
        self._full_bytes = max(share, self._size + share // 2)

    def write(self, lines: bytes) -> None:
        """Append whole lines, so that they can be read even if this process is killed."""
        if self._file is None:
            raise OSError("no file of the journal is open")
        compressed = self._compress.compress(lines) + self._compress.flush(zlib.Z_SYNC_FLUSH)
        if self._size + len(compressed) > 2 * self._limit_bytes // _SHARES:
            self._abandon()
            raise JournalTooSmall(
                f"{self._folder}: a file of the journal would have more than "
                f"{2 * self._limit_bytes // _SHARES} bytes, a quarter of its limit"
            )
        self._append(compressed)

    def close(self) -> None:
        """End the current file, if there is one."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            file.write(self._compress.flush(zlib.Z_FINISH))
        finally:
            file.close()

    def _abandon(self) -> None:
        """Leave the current file as it is: what follows would not fit to what was written."""
        assert self._file is not None
        file, self._file = self._file, None
        file.close()
        if not self._size:
            Path(file.name).unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            # A file without a buffer may take a part.
            count = self._file.write(view) or 0
            view = view[count:]
            self._size += count
            self.written_bytes += count

    def _delete_oldest(self) -> None:
        sizes = {path: path.stat().st_size for path in journal_files(self._folder)}
        total = sum(sizes.values())
        for path, size in sizes.items():
            if total <= self._limit_bytes * (_SHARES - 2) // _SHARES:
                return
            path.unlink(missing_ok=True)
            total -= size


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

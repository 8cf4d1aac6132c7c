"""Files that are read again while the process runs, of which none may be waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 4 << 20
"""A ConfigMap or Secret has 1 MiB at most."""


def read_regular(path: str | Path) -> bytes:
    """Read a file, or what a link leads to; ``OSError`` for a pipe, a device or one too large."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"more than {MAX_FILE_BYTES >> 20} MiB", str(path))
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)

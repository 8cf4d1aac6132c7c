"""Room on the interpreter's stack for deep expressions.

The parser bounds nesting as cel-go does (250 levels), which is more than Python's default of 1000
frames bears. Calls between Python functions take no C stack, so a higher limit is safe. The limit
holds for all threads: it stays as high as the deepest block that is open in any of them needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_FRAMES_IN_USE = 1000
"""More than a daemon's own calls have on the stack."""
_LOCK = Lock()
_OPEN: list[int] = []
"""The limit before the first block, then what each open block wants."""


@contextmanager
def room_for(frames: int) -> Iterator[None]:
    """Let functions nest so deep for the length of the block."""
    wanted = frames + _FRAMES_IN_USE
    with _LOCK:
        if not _OPEN:
            _OPEN.append(sys.getrecursionlimit())
        _OPEN.append(wanted)
        sys.setrecursionlimit(max(_OPEN))
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.remove(wanted)
            sys.setrecursionlimit(max(_OPEN))
            if len(_OPEN) == 1:
                _OPEN.clear()

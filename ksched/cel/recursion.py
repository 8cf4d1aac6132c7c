"""The recursion limit for deep expressions.

The parser accepts 250 levels of nesting, as cel-go does, for which Python's default of 1000 frames
is too low. Calls between Python functions use no C stack, so a higher limit is safe. The limit is
shared by all threads: it is the highest that any open block needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_FRAMES_IN_USE = 1000
"""More frames than the caller of an evaluation has on the stack."""
_LOCK = Lock()
_OPEN: list[int] = []
"""The limit before the first block, then the limits of the open blocks."""


@contextmanager
def room_for(frames: int) -> Iterator[None]:
    """Allow this many more frames within the block."""
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

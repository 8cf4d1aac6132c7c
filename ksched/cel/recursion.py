"""Room on the interpreter's stack for deep expressions.

The parser bounds nesting as cel-go does (250 levels), which is more than Python's default of 1000
frames bears. Calls between Python functions take no C stack, so a higher limit is safe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES_IN_USE = 1000
"""More than a daemon's own calls have on the stack."""


@contextmanager
def room_for(frames: int) -> Iterator[None]:
    """Let functions nest so deep for the length of the block."""
    before = sys.getrecursionlimit()
    wanted = frames + _FRAMES_IN_USE
    if wanted <= before:
        yield
        return
    sys.setrecursionlimit(wanted)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)

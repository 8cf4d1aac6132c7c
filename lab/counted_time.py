"""Virtual time that passes with the work that is done: so much for every call of a function.

On a virtual loop nothing takes time, so nothing is ever late, and a computation in slices never
gives way. Where calls take time, both happen as they do on a real loop, at the same moments on
every machine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ksched.testing.virtual_time import VirtualLoop


@contextmanager
def calls_take_time(seconds: float) -> Iterator[None]:
    """Let each call take so long, of Python's functions and of built-in ones."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    keep_busy = loop.keep_busy

    def pass_time(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            keep_busy(seconds)

    before = sys.getprofile()
    sys.setprofile(pass_time)
    try:
        yield
    finally:
        sys.setprofile(before)

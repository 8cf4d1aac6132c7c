"""Single keys from the terminal, without Enter."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Report every key while the block runs; does nothing if there is no keyboard.

    Ctrl-C stays a signal. The terminal is left as it was found.
    """
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = os.read(descriptor, 64)
        if not data:
            # The terminal is gone; its hang-up signal ends the demo, not this.
            loop.remove_reader(descriptor)
        for key in data.decode(errors="ignore"):
            on_key(key)

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, read)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

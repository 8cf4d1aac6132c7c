"""How soon a thread that computes lets another one in, for whoever needs that sooner than usual.

The interval is one of the whole process: of several who ask, the first makes it short and the last
makes it what it was.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

SWITCH_SECONDS: Final = 0.0005
"""How long a thread keeps the interpreter lock at most while turns are short."""


class _Turns:
    """Counts those who need short turns; they may be in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual_seconds = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._usual_seconds = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_SECONDS)
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                sys.setswitchinterval(self._usual_seconds)


SHORT_TURNS: Final = _Turns()

"""What foreign code raised or returned, told in words that are safe to print and to send.

Does not belong here: what is done about it (see ``runtime.guard``).
"""

from __future__ import annotations

import reprlib
import signal
from typing import Final

SHOWN_LENGTH: Final = 100
TOLD_LENGTH: Final = 1000
"""How much of an exception's text goes into a pod's condition."""

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = SHOWN_LENGTH


def shown(got: object) -> str:
    """A value as a developer would read it, cut short; also one that cannot be printed."""
    try:
        return _as_text(_repr.repr(got)[:SHOWN_LENGTH])
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        return f"<{type(got).__name__}>"


def told(problem: BaseException) -> str:
    """An exception as type and text, cut short; also one whose text cannot be had."""
    name = type(problem).__name__
    try:
        return f"{name}: {_as_text(str(problem)[:TOLD_LENGTH])}"
    except BaseException as another:
        if is_interrupt(another):
            raise
        return f"{name}: (no text)"


def is_text(value: object) -> bool:
    """Whether a value is a string that can be sent; half a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_interrupt(problem: BaseException) -> bool:
    """Whether an exception is the user's Ctrl-C and not the doing of whom it was raised in.

    A program that handles the signal itself, as ``ksched run`` does, never sees it as an exception.
    """
    return (
        isinstance(problem, KeyboardInterrupt)
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _as_text(value: str) -> str:
    return value.encode(errors="backslashreplace").decode()

"""Text of values and exceptions from code outside this project, safe to print and to send.

Does not belong here: handling of the failure (see ``runtime.guard``).
"""

from __future__ import annotations

import reprlib
import signal
from typing import Final

REPR_LENGTH: Final = 100
ERROR_LENGTH: Final = 1000
"""How much of an exception's text goes into a pod's condition."""

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = REPR_LENGTH


def safe_repr(got: object) -> str:
    """Return a bounded ``repr``; never raises, even if the object's own ``__repr__`` does."""
    try:
        return _as_text(_repr.repr(got)[:REPR_LENGTH])
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        return f"<{type(got).__name__}>"


def safe_error_text(problem: BaseException) -> str:
    """Return type and text of an exception, bounded; never raises, even if ``str`` does."""
    name = type(problem).__name__
    try:
        return f"{name}: {_as_text(str(problem)[:ERROR_LENGTH])}"
    except BaseException as another:
        if is_interrupt(another):
            raise
        return f"{name}: (no text)"


def is_text(value: object) -> bool:
    """Whether a value is a string that can be encoded; a lone surrogate cannot."""
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
    """Whether an exception is the user's Ctrl-C rather than raised by the called code.

    A program that handles SIGINT itself, as ``ksched run`` does, never gets it as an exception.
    """
    return (
        isinstance(problem, KeyboardInterrupt)
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _as_text(value: str) -> str:
    return value.encode(errors="backslashreplace").decode()

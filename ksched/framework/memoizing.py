"""Memoized functions of an event's object: every waiting group evaluates the same function."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_SIZE = 2
"""An event has an old and a new version of the object."""

_memos: list[list[tuple[Any, Any]]] = []


def memoize_last(compute: Callable[[K], V]) -> Callable[[K], V]:
    """Memoize a function of an immutable object for its most recent arguments."""
    known: list[tuple[K, V]] = []
    _memos.append(known)

    @wraps(compute)
    def answer(about: K) -> V:
        for one, said in known:
            if one is about:
                return said
        said = compute(about)
        known[:] = [(about, said), *known[: _SIZE - 1]]
        return said

    return answer


def forget_memoized() -> None:
    """Release what was memoized: an object may be large, and it is for its event alone."""
    for known in _memos:
        known.clear()

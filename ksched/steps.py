"""Long computations as generators: they pause, so that whoever runs them can do other work."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that pauses at each ``yield``, and its result."""


def at_once(steps: Steps[T]) -> T:
    """Run a computation without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result

"""Which lines have allocated the memory that is in use, if the interpreter keeps track of it.

It does if it was started with ``PYTHONTRACEMALLOC=N``, which costs time and memory on every
allocation; then one look holds everything up while it is copied.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Final

from ksched.web.profile_encoding import Frame, Profile, Sample, ValueType

_TYPES: Final = ValueType("inuse_objects", "count"), ValueType("inuse_space", "bytes")
_NANOS: Final = 1_000_000_000
_BATCH: Final = 200
"""Allocations that are counted between two looks at the clock."""


def is_tracked() -> bool:
    return tracemalloc.is_tracing()


def heap_profile(wall: float) -> Profile:
    """Return objects and bytes by the lines that allocated them."""
    return Profile(_TYPES, _samples(), time_nanos=int(wall * _NANOS))


def _samples() -> Iterator[Sample | None]:
    found: dict[tracemalloc.Traceback, list[int]] = {}
    for number, trace in enumerate(tracemalloc.take_snapshot().traces):
        values = found.setdefault(trace.traceback, [0, 0])
        values[0] += 1
        values[1] += trace.size
        if number % _BATCH == 0:
            yield None
    for traceback, values in found.items():
        # From the oldest to the most recent; functions are not recorded.
        stack = [Frame(one.filename, one.filename, 0, one.lineno) for one in reversed(traceback)]
        yield Sample(stack, values)

"""How a daemon keeps the garbage collector from scanning its cache."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

FIRST_SYNC_SECONDS: Final = 60.0
GC_THRESHOLDS: Final = (5_000, 1, 4_800)
"""The middle generation has at most 15,000 objects: with a million, the terms of hostile pods, one
collection took 210 ms, with 250,000 it took 52. Each object is scanned as often as with larger
generations, and in a gang of 5,000 pods there was no garbage to find."""


async def spare_first_objects(first_sync: Callable[[], Awaitable[None]]) -> None:
    """Do not scan objects while the first sync creates them, nor ever after it.

    During the first sync every object is live, and collections among them double the time.
    Afterwards they are frozen without a collection: the little garbage of the start does not
    justify the time to find it just when the first pods can be scheduled. The objects of an earlier
    scheduler are garbage by then.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.disable()
    try:
        with anyio.move_on_after(FIRST_SYNC_SECONDS):
            await first_sync()
    finally:
        gc.enable()
    _freeze()


def freeze_existing_objects() -> None:
    gc.collect()
    _freeze()


def _freeze() -> None:
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)

"""The garbage collector during the first sync and after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ksched.daemon import garbage_collection
from ksched.daemon.garbage_collection import GC_THRESHOLDS, spare_first_objects


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def test_nothing_is_collected_during_the_sync_and_its_objects_are_frozen() -> None:
    found: list[list[int]] = []

    async def sync() -> None:
        assert not gc.isenabled()
        found.append([1])

    await spare_first_objects(sync)
    assert gc.isenabled()
    assert gc.get_threshold() == GC_THRESHOLDS
    assert gc.get_freeze_count() > 0
    assert not any(one is found for one in gc.get_objects(generation=2))


async def test_a_sync_that_takes_too_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import anyio

    monkeypatch.setattr(garbage_collection, "FIRST_SYNC_SECONDS", 0.01)
    await spare_first_objects(anyio.sleep_forever)
    assert gc.isenabled()
    assert gc.get_threshold() == GC_THRESHOLDS

"""What many pods have changed is published in slices, between cycles, though no pod comes."""

from __future__ import annotations

import pytest

from ksched.cache.snapshot import Snapshot
from ksched.scheduling import sweeping
from ksched.testing import cluster, make_node, make_pod


async def test_changed_nodes_are_published_in_slices_and_never_during_a_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "SNAPSHOT_SLICE", 4)
    nodes = [make_node(f"n{number}").capacity(cpu="1") for number in range(10)]
    async with cluster(nodes) as c:
        for number in range(10):
            await c.create(make_pod(f"p{number}").req(cpu="1").node(f"n{number}"))
        cache, cycle = c.scheduler.cache, c.scheduler.cycle
        await c.settle()
        assert len(cache.changed_nodes) == 10
        update, published = cache.update_snapshot, []

        def spied(at_most: int | None = None) -> Snapshot:
            assert not cycle.is_running
            before = len(cache.changed_nodes)
            snapshot = update(at_most)
            published.append(before - len(cache.changed_nodes))
            return snapshot

        monkeypatch.setattr(cache, "update_snapshot", spied)
        cycle.is_running = True
        await c.advance(sweeping.SWEEP_SECONDS + 1)
        assert not published
        cycle.is_running = False
        await c.advance(2)
        assert published == [4, 4, 2]

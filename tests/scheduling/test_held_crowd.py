"""Thousands of pods held at Permit: what they cost other pods, in memory, and at the end.

Counted, so that a busy machine does not matter; ``bench/permit.py`` measures the same on a real
control plane.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from typing import Any

import pytest

from ksched.framework import SUCCESS, Status
from ksched.testing import Cluster, cluster, make_node, make_pod

HELD = 2000
PLAIN = 40
CALLS_RATIO = 1.1
"""How many more functions may be called for a plain pod; its latency may rise to 1.2."""
BYTES_PER_HELD_POD = 10 * 1024


class Held:
    """An async Permit that holds pods whose name begins with ``held`` for good."""

    name = "Held"
    timeout_seconds = 3600.0
    permit_concurrency = 2 * HELD

    async def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        if pod.name.startswith("held"):
            await asyncio.sleep(3000)
        return SUCCESS


def large_cluster() -> Any:
    nodes = [make_node(f"n{number}").capacity(cpu="1000", pods="1000") for number in range(5)]
    return cluster(nodes, plugins=[Held()], check_declarations=False)


async def hold(c: Cluster, first: int, count: int) -> None:
    for number in range(first, first + count):
        await c.create(make_pod(f"held{number}").req(cpu="100m"))
    await c.settle()


async def calls_for_plain_pods(c: Cluster, kind: str) -> float:
    """Python functions that were called for one plain pod, from its creation to its bind."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for number in range(PLAIN):
            await c.create(make_pod(f"{kind}{number}").req(cpu="100m"))
            await c.settle()
    finally:
        sys.setprofile(before)
    assert all(c.bound(f"{kind}{number}") for number in range(PLAIN))
    return calls / PLAIN


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer's own calls would be counted")
async def test_plain_pods_cost_the_same_beside_them() -> None:
    async with large_cluster() as c:
        await calls_for_plain_pods(c, "warm")
        alone = await calls_for_plain_pods(c, "early")
        await hold(c, 0, HELD)
        assert len(c.scheduler.waiting) == HELD
        beside = await calls_for_plain_pods(c, "late")
    assert beside <= CALLS_RATIO * alone


async def test_a_held_pod_takes_less_than_ten_kilobytes() -> None:
    async with large_cluster() as c:
        await hold(c, 0, 100)
        gc.collect()
        tracemalloc.start()
        try:
            await hold(c, 100, 500)
            gc.collect()
            # What the API server keeps of it, in this process, is not the scheduler's.
            kept = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(False, "*/ksched/apiserver/*")]
            )
            size = sum(one.size for one in kept.statistics("filename"))
        finally:
            tracemalloc.stop()
        assert len(c.scheduler.waiting) == 600
    assert size / 500 < BYTES_PER_HELD_POD


async def test_the_end_does_not_wait_for_them() -> None:
    async with large_cluster() as c:
        await hold(c, 0, HELD)
        began = c.clock.now()
    assert c.clock.now() - began < 0.5
    assert len(c.scheduler.waiting) == 0
    assert c.scheduler.cache.statistics().assumed_pods == 0
    assert c.scheduler.permit_calls.sizes() == {"Held": (0, 0)}

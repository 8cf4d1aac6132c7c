"""The clock of the event loop, and clocks that are derived from it."""

from __future__ import annotations

import asyncio

from ksched.clock import LoopClock


class Late(LoopClock):
    def now(self) -> float:
        return super().now() + 100.0


async def test_a_clock_that_is_made_in_a_loop_is_the_loops_own() -> None:
    assert LoopClock().now == asyncio.get_running_loop().time


def test_a_clock_that_is_made_before_its_loop_finds_it() -> None:
    clock = LoopClock()

    async def difference() -> float:
        return asyncio.get_running_loop().time() - clock.now()

    assert abs(asyncio.run(difference())) < 1.0


async def test_a_derived_clock_keeps_its_own_time() -> None:
    assert Late().now() - LoopClock().now() > 99.0

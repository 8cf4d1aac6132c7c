from __future__ import annotations

import asyncio
import contextlib

import pytest

from ksched.testing import virtual_time
from ksched.testing.virtual_time import VirtualLoop


async def test_an_hour_of_sleep_ends_at_the_exact_second() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(3600)
    assert loop.time() == 3600.0


async def test_timeouts_follow_the_virtual_clock() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(300):
            await asyncio.sleep(301)
    assert asyncio.get_running_loop().time() == 300.0


def test_waiting_for_nothing_is_an_error_instead_of_a_hang() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(AssertionError, match="deadlock"):
        virtual_time.run(wait_for_ever())


async def test_idle_comes_after_everything_of_this_instant_and_before_the_clock_moves() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_time.VirtualLoop)
    seen: list[str] = []

    async def work(name: str, seconds: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append(name)
        await asyncio.sleep(seconds)
        seen.append(f"{name} again")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work("a", 0.0))
        tasks.create_task(work("b", 1e-6))
        await loop.idle()
        assert seen == ["a", "b", "a again"]
        assert loop.time() == 0.0
    assert seen[-1] == "b again"


@pytest.mark.real_time
async def test_real_time_tests_run_on_uvloop() -> None:
    assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")


async def test_a_timer_a_trifle_ahead_of_another_does_not_set_it_off() -> None:
    loop = asyncio.get_running_loop()

    async def wait_for(deadline: float) -> int:
        rounds = 0
        while loop.time() < deadline:
            rounds += 1
            assert rounds < 1000, "busy for ever, and the clock stands still"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await asyncio.Event().wait()
        return rounds

    trifle = 2**-40
    waits = [asyncio.sleep(60 - trifle), *(wait_for(60.0) for _ in range(3))]
    assert await asyncio.gather(*waits) == [None, 1, 1, 1]


async def test_timers_that_came_due_while_busy_fire_afterwards() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    woken = asyncio.create_task(asyncio.sleep(3, "late"))
    await asyncio.sleep(1)
    loop.keep_busy(20)

    assert loop.time() == 21.0
    assert await woken == "late"
    assert loop.time() == 21.0

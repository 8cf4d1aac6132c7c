"""qps on average, burst at once, first come first served."""

from __future__ import annotations

import asyncio

import pytest

from ksched.client.rate_limit import RateLimiter


async def pass_all(limiter, clock, count):
    """The second at which each of ``count`` simultaneous callers passes, in order of asking."""
    passed = []

    async def one(number):
        await limiter.acquire()
        passed.append((number, clock.now()))

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
    assert [number for number, _ in passed] == list(range(count))
    return [round(at, 6) for _, at in passed]


async def test_burst_passes_at_once_and_the_rest_at_the_rate(clock):
    limiter = RateLimiter(qps=10, burst=3, clock=clock)
    assert await pass_all(limiter, clock, 7) == [0, 0, 0, 0.1, 0.2, 0.3, 0.4]


async def test_bucket_fills_up_again_but_not_beyond_the_burst(clock):
    limiter = RateLimiter(qps=10, burst=3, clock=clock)
    await pass_all(limiter, clock, 5)
    await clock.sleep(100)
    start = clock.now()
    assert [at - start for at in await pass_all(limiter, clock, 5)] == pytest.approx(
        [0, 0, 0, 0.1, 0.2]
    )


@pytest.mark.parametrize("qps", [-1, 0])
async def test_no_rate_means_no_limit(clock, qps):
    limiter = RateLimiter(qps=qps, burst=1, clock=clock)
    assert await pass_all(limiter, clock, 50) == [0] * 50


async def test_free_token_costs_no_suspension(clock):
    limiter = RateLimiter(qps=1, burst=2, clock=clock)
    assert [limiter.acquire_nowait() for _ in range(4)] == [0, 0, 1, 2]


async def test_cancelled_caller_gives_its_token_back(clock):
    limiter = RateLimiter(qps=1, burst=1, clock=clock)
    await limiter.acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await limiter.acquire()
    await limiter.acquire()
    assert clock.now() == pytest.approx(1.0)

from __future__ import annotations

import asyncio

from bench.loop_steps import LoopSteps
from ksched.clock import cpu_seconds

SECONDS = 0.02


def compute() -> None:
    end = cpu_seconds() + SECONDS
    while cpu_seconds() < end:
        pass


async def computing() -> None:
    await asyncio.sleep(0)
    compute()


def recorded() -> LoopSteps:
    steps = LoopSteps()

    async def main() -> None:
        with steps.recorded():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(computing())
                tasks.create_task(computing())
            asyncio.get_running_loop().call_soon(compute)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())
    return steps


def test_a_long_step_is_named_by_where_it_began() -> None:
    steps = recorded()
    long = {where: len(found) for where, found in steps.steps.items() if max(found) >= SECONDS}
    [task, callback] = sorted(long, key=lambda where: -long[where])
    assert task.startswith("computing > sleep:")
    assert (long[task], callback) == (2, "compute")
    assert callback in steps.render(2)


def test_what_runs_in_one_turn_is_added_up() -> None:
    steps = recorded()
    assert max(steps.turns) >= 2 * SECONDS


def test_nothing_is_recorded_afterwards() -> None:
    before = asyncio.Handle._run
    steps = recorded()
    assert asyncio.Handle._run is before
    count = len(steps.turns)
    asyncio.run(computing())
    assert len(steps.turns) == count

"""A simulated process that stops and goes on; the others do not notice."""

from __future__ import annotations

import asyncio

from lab.freezing import Freezer, context_of


async def test_a_frozen_process_takes_no_step_and_what_was_due_happens_late() -> None:
    loop = asyncio.get_running_loop()
    freezer = Freezer(loop)
    steps: list[tuple[str, float]] = []

    async def live(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            steps.append((name, loop.time()))

    async def with_a_child(name: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(live(name))

    lives = [loop.create_task(with_a_child(name), context=context_of(name)) for name in ("a", "b")]
    await asyncio.sleep(1.5)
    freezer.freeze("a")
    await asyncio.sleep(2)
    freezer.thaw("a")
    await asyncio.sleep(1.1)
    for life in lives:
        life.cancel()

    assert steps == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("a", 3.5), ("b", 4), ("a", 4.5)]


async def test_an_answer_that_came_during_the_frost_is_read_before_the_time_out() -> None:
    loop = asyncio.get_running_loop()
    freezer = Freezer(loop)
    answer: asyncio.Future[str] = loop.create_future()

    async def ask() -> str:
        async with asyncio.timeout(1):
            return await answer

    asking = loop.create_task(ask(), context=context_of("a"))
    await asyncio.sleep(0.5)
    freezer.freeze("a")
    await asyncio.sleep(5)
    answer.set_result("late")
    await asyncio.sleep(5)
    assert not asking.done()
    freezer.thaw("a")

    assert await asking == "late"


async def test_steps_of_the_same_turn_of_the_loop_are_taken_back() -> None:
    loop = asyncio.get_running_loop()
    freezer = Freezer(loop)
    steps: list[str] = []

    def freeze() -> None:
        steps.append("freeze")
        freezer.freeze("a")

    loop.call_soon(freeze)
    loop.call_soon(steps.append, "a", context=context_of("a"))
    loop.call_soon(steps.append, "b", context=context_of("b"))
    await asyncio.sleep(1)
    assert steps == ["freeze", "b"]
    freezer.thaw("a")
    await asyncio.sleep(0)

    assert steps == ["freeze", "b", "a"]

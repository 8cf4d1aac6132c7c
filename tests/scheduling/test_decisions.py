"""The ring of recent decisions."""

from __future__ import annotations

import asyncio
import gc

import pytest

from ksched.scheduling.decisions import UNREAD_DECISIONS, Decision, DecisionLog, Result


def decision(pod: str, attempts: int = 1) -> Decision:
    return Decision(
        at=0.0,
        pod=pod,
        uid=pod,
        profile="default-scheduler",
        result=Result.SCHEDULED,
        node_name="n1",
        message="",
        attempts=attempts,
        evaluated_nodes=1,
        feasible_nodes=1,
        duration_seconds=0.0,
        algorithm_seconds=0.0,
        waited_seconds=0.0,
    )


def test_the_newest_decisions_are_kept_oldest_first() -> None:
    log = DecisionLog(length=3)
    for number in range(5):
        log.record(decision(f"p{number}"))
    assert [one.pod for one in log] == ["p2", "p3", "p4"]
    assert len(log) == 3


def test_decisions_about_a_pod_are_found() -> None:
    log = DecisionLog()
    for attempts, pod in enumerate(["a", "b", "a"]):
        log.record(decision(pod, attempts))
    assert [one.attempts for one in log.of("a")] == [0, 2]
    assert log.of("nobody") == []


def test_observers_hear_of_what_comes_after_them() -> None:
    log, heard = DecisionLog(), list[str]()
    log.record(decision("early"))
    log.observe(lambda one: heard.append(one.pod))
    log.record(decision("late"))
    assert heard == ["late"]


def test_a_decision_made_while_they_are_read_does_not_disturb_the_reader() -> None:
    log = DecisionLog(length=2)
    log.record(decision("a"))
    log.record(decision("b"))
    for one in log:
        log.record(decision(f"{one.pod}-again"))
    assert [one.pod for one in log] == ["a-again", "b-again"]


# -- readers -------------------------------------------------------------------------------------


async def read(log: DecisionLog) -> list[str]:
    return [one.pod async for one in log]


async def test_every_reader_gets_all_decisions_since_it_began() -> None:
    log = DecisionLog()
    log.record(decision("before"))
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(read(log))
        await asyncio.sleep(0)
        log.record(decision("a"))
        second = tasks.create_task(read(log))
        await asyncio.sleep(0)
        log.record(decision("b"))
        await asyncio.sleep(1)
        log.record(decision("c"))
        log.close()
    assert (first.result(), second.result()) == (["a", "b", "c"], ["b", "c"])


async def test_after_the_end_there_is_nothing_to_wait_for_until_work_begins_anew() -> None:
    log = DecisionLog()
    log.close()
    assert await read(log) == []
    log.open()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read(log))
        await asyncio.sleep(0)
        log.record(decision("a"))
        log.close()
    assert reading.result() == ["a"]


async def test_a_reader_that_leaves_costs_nothing_more() -> None:
    log = DecisionLog()

    async def first() -> str:
        async for one in log:
            return one.pod
        return ""

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(first())
        cancelled = tasks.create_task(read(log))
        await asyncio.sleep(0)
        assert len(log._streams) == 2
        log.record(decision("a"))
        cancelled.cancel()
    assert reading.result() == "a"
    del reading, cancelled
    gc.collect()
    assert log._streams == []


async def test_a_slow_reader_misses_the_oldest_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = DecisionLog()
    stream = aiter(log)
    for number in range(UNREAD_DECISIONS + 3):
        log.record(decision(f"p{number}"))
    assert stream.missed == 3
    assert (await anext(stream)).pod == "p3"
    assert len([one for one in caplog.records if "too slowly" in one.message]) == 1

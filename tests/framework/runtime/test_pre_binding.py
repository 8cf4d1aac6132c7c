"""Calling off pods whose PreBind is under way."""

from __future__ import annotations

import asyncio

import pytest

from ksched.framework import SUCCESS, Status, error
from ksched.framework.runtime.pre_binding import PreBindingPods


async def sleep(seconds: float, journal: list[str]) -> Status:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        journal.append("stopped")
        raise
    return SUCCESS


async def test_undisturbed_work_ends_as_it_likes() -> None:
    pods = PreBindingPods()

    assert await pods.run("a", sleep(1, [])) is SUCCESS
    assert not pods.cancel("a", "too late")


async def test_a_pod_that_is_called_off_ends_with_the_cause() -> None:
    pods, journal = PreBindingPods(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(pods.run("a", sleep(60, journal)))
        other = tasks.create_task(pods.run("b", sleep(2, journal)))
        await asyncio.sleep(1)
        assert pods.cancel("a", "needed elsewhere")
        assert pods.cancel("a", "said twice")
        assert await work == error("needed elsewhere")
        assert await other is SUCCESS

    assert journal == ["stopped"]
    assert asyncio.get_running_loop().time() == 2


async def test_work_that_does_not_notice_is_called_off_all_the_same() -> None:
    pods = PreBindingPods()

    async def stubborn() -> Status:
        pods.cancel("a", "needed elsewhere")
        return SUCCESS

    assert await pods.run("a", stubborn()) == error("needed elsewhere")


async def test_a_cancellation_from_outside_goes_through() -> None:
    pods = PreBindingPods()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(pods.run("a", sleep(60, [])))
        await asyncio.sleep(1)
        work.cancel()

    assert work.cancelled()
    assert not pods.cancel("a", "too late")


async def test_a_failure_goes_through_and_leaves_nothing_behind() -> None:
    pods = PreBindingPods()

    async def broken() -> Status:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await pods.run("a", broken())
    assert not pods.cancel("a", "too late")

"""One plugin's method, called so that its faults stay its own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ksched.framework.runtime.guard import MAX_LOGGED_PROBLEMS, Hook, PluginFailure, activity_of
from ksched.framework.status import SUCCESS, Code, Status, unschedulable


class Plugin:
    name = "Odd"
    timeout_seconds = 5.0

    def __init__(self, answer: Any = SUCCESS, seconds: float = 0) -> None:
        self.answer, self.seconds = answer, seconds

    def now(self, *args: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def later(self, *args: Any) -> Any:
        await asyncio.sleep(self.seconds)
        return self.now()


def hook(plugin: Plugin, method: str = "now") -> Hook:
    return Hook(plugin, getattr(plugin, method), "Reserve")


async def failure_of(one: Hook) -> Status:
    with pytest.raises(PluginFailure) as caught:
        one.status(await one.acall())
    return caught.value.status


@pytest.mark.parametrize(
    ("point", "text"),
    [
        ("Filter", 'running "Odd" filter plugin'),
        ("Score", 'running Score plugins: plugin "Odd" failed with'),
        ("PreBind", 'running PreBind plugin "Odd"'),
    ],
)
def test_failures_are_told_in_upstreams_words(point: str, text: str) -> None:
    assert activity_of(point, "Odd") == text


@pytest.mark.parametrize("method", ["now", "later"])
async def test_an_answer_is_signed_with_the_plugins_name(method: str) -> None:
    one = hook(Plugin(unschedulable("full")), method)
    status = one.status(await one.acall())
    assert (status.plugin, status.reasons) == ("Odd", ("full",))


@pytest.mark.parametrize("method", ["now", "later"])
async def test_an_exception_becomes_an_error_with_its_cause(method: str) -> None:
    problem = ValueError("boom")
    with pytest.raises(PluginFailure) as caught:
        await hook(Plugin(problem), method).acall()
    status = caught.value.status
    assert (status.code, status.plugin) == (Code.ERROR, "Odd")
    assert status.message == 'running Reserve plugin "Odd": ValueError: boom'
    assert caught.value.__cause__ is problem


async def test_a_failure_that_a_plugin_passes_on_is_not_wrapped_again() -> None:
    inner = PluginFailure(Status(Code.ERROR, ("inner",), "Other"))
    assert await failure_of(hook(Plugin(inner))) == inner.status


async def test_no_answer_in_time_is_an_error() -> None:
    status = await failure_of(hook(Plugin(seconds=6), "later"))
    assert status.message == 'running Reserve plugin "Odd": no answer within 5s'
    assert asyncio.get_running_loop().time() == 5


async def test_a_timeout_of_the_plugins_own_is_its_exception() -> None:
    status = await failure_of(hook(Plugin(TimeoutError("my own")), "later"))
    assert status.message.endswith("TimeoutError: my own")


async def test_a_cancellation_from_outside_is_obeyed() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await hook(Plugin(seconds=4), "later").acall()


async def test_a_cancellation_from_inside_is_the_plugins_fault() -> None:
    status = await failure_of(hook(Plugin(asyncio.CancelledError()), "later"))
    assert status.message.endswith('plugin "Odd": CancelledError: ')


async def test_the_same_problem_is_logged_once_and_not_endlessly_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = Plugin()
    one = hook(plugin)
    with caplog.at_level(logging.ERROR):
        for number in range(3 * MAX_LOGGED_PROBLEMS):
            plugin.answer = ValueError(str(number // 2))
            await failure_of(one)
    assert len(caplog.records) == MAX_LOGGED_PROBLEMS
    assert all(record.exc_info for record in caplog.records)

"""A plugin's start, stop and tasks: who is called when, and what a broken one cannot do."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ksched.framework import SUCCESS
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.plugin_tasks import MAX_TASKS, PluginLives, PluginTasks
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import Cluster, cluster, make_pod


class Lively:
    """Notes its calls; ``on_start`` and ``on_stop`` say what else it does."""

    name = "Lively"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.handle: Any = None

    async def on_start(self) -> None: ...

    async def on_stop(self) -> None: ...

    async def start(self, handle: Any) -> None:
        self.calls.append("start")
        self.handle = handle
        await self.on_start()

    async def stop(self) -> None:
        self.calls.append("stop")
        await self.on_stop()

    def filter(self, state: Any, pod: Any, node: Any) -> Any:
        self.calls.append("filter")
        return SUCCESS


class Handles:
    """Stands for a profile's handle."""

    def with_tasks(self, tasks: PluginTasks) -> Any:
        self.tasks = tasks
        return self


def failures(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.plugin, record.err)  # type: ignore[attr-defined]
        for record in caplog.records
        if record.message == "plugin failed"
    ]


async def test_start_comes_before_the_first_attempt_and_stop_after_the_last() -> None:
    plugin = Lively()
    async with cluster(1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"
        assert plugin.calls == ["start", "filter"]
    assert plugin.calls == ["start", "filter", "stop"]


async def test_both_may_be_synchronous_and_either_may_be_missing() -> None:
    calls = []

    class Starts:
        name = "Starts"

        def filter(self, state: Any, pod: Any, node: Any) -> Any:
            return SUCCESS

        def start(self, handle: Any) -> None:
            calls.append(handle.profile_name)

    class Stops:
        name = "Stops"
        filter = Starts.filter

        def stop(self) -> None:
            calls.append("stop")

    async with cluster(1, plugins=[Starts(), Stops()]) as c:
        await c.settle()
        assert calls == ["default-scheduler"]
    assert calls == ["default-scheduler", "stop"]


async def test_a_plugin_of_two_profiles_starts_once_and_others_in_order() -> None:
    plugin, other = Lively(), Lively()
    lives = PluginLives([(plugin, Handles()), (other, Handles()), (plugin, Handles())])
    await lives.start()
    assert (plugin.calls, other.calls) == (["start"], ["start"])
    await lives.stop()
    assert (plugin.calls, other.calls) == (["start", "stop"], ["start", "stop"])


class Ticking(Lively):
    """Has a task that ticks every second for as long as it may."""

    ticks = 0
    has_ended = False

    async def on_start(self) -> None:
        self.handle.tasks.start_soon(self.tick)

    async def tick(self) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                self.ticks += 1
        finally:
            self.has_ended = True


async def test_a_task_runs_beside_the_attempts_and_ends_with_the_scheduler() -> None:
    plugin = Ticking()
    async with cluster(1, plugins=[plugin]) as c:
        await c.advance(5.5)
        assert plugin.ticks == 5
        assert c.scheduler.plugin_lives.sizes()["Lively"] == 1
    assert plugin.has_ended
    assert c.scheduler.plugin_lives.sizes() == {}


async def test_a_lost_lease_stops_it_and_the_next_one_starts_it_again() -> None:
    plugin = Ticking()
    async with cluster(1, plugins=[plugin], start=False) as c, asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(c.scheduler.watch())
        for _ in range(2):
            plugin.has_ended = False
            lead = tasks.create_task(c.scheduler.schedule())
            await c.advance(3)
            assert not plugin.has_ended
            lead.cancel()
            await asyncio.wait([lead])
            assert plugin.has_ended
        watch.cancel()
    assert plugin.calls == ["start", "stop"] * 2


async def test_a_task_that_fails_is_logged_with_its_plugin_and_ends_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Ticking):
        async def on_start(self) -> None:
            await super().on_start()
            for problem in (ValueError("no such rack"), SystemExit(3), asyncio.CancelledError()):
                self.handle.tasks.start_soon(self.fail, problem, name=type(problem).__name__)

        async def fail(self, problem: BaseException) -> None:
            await asyncio.sleep(1)
            raise problem

    plugin = Failing()
    async with cluster(1, plugins=[plugin]) as c:
        await c.advance(2.5)
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"
        assert plugin.ticks == 2
    assert sorted(failures(caplog)) == [
        ("Lively", "task CancelledError: CancelledError: "),
        ("Lively", "task SystemExit: SystemExit: 3"),
        ("Lively", "task ValueError: ValueError: no such rack"),
    ]


async def test_a_start_that_fails_ends_the_scheduler_and_stops_what_began() -> None:
    first, broken, never = Ticking(), Lively(), Lively()
    broken.name, never.name = "Broken", "Never"

    async def on_start() -> None:
        raise ConnectionError("no route to the planner")

    broken.on_start = on_start  # type: ignore[method-assign]
    lives = PluginLives([(one, Handles()) for one in (first, broken, never)])
    with pytest.raises(PluginFailure, match='Start plugin "Broken": ConnectionError: no route'):
        await lives.start()
    await lives.stop()
    assert (first.calls, broken.calls, never.calls) == (["start", "stop"], ["start", "stop"], [])
    assert first.has_ended


async def test_a_start_that_fails_comes_out_of_the_scheduler() -> None:
    def fail(handle: Any) -> None:
        raise RuntimeError("broken")

    plugin = Lively()
    plugin.start = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(ExceptionGroup) as caught:
        async with cluster(1, plugins=[plugin]) as c:
            await c.advance(60)
    assert caught.value.subgroup(PluginFailure) is not None


async def test_a_start_has_a_deadline() -> None:
    plugin = Lively()
    plugin.timeout_seconds = 5.0  # type: ignore[attr-defined]
    plugin.on_start = asyncio.Event().wait  # type: ignore[assignment]
    lives = PluginLives([(plugin, Handles())])
    began = asyncio.get_running_loop().time()
    with pytest.raises(PluginFailure, match="no answer within 5s"):
        await lives.start()
    assert asyncio.get_running_loop().time() - began == 5


async def swallow() -> None:
    """Goes on for ten seconds, whoever cancels it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 10
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            continue


async def test_who_hangs_at_the_end_is_let_go_and_told(caplog: pytest.LogCaptureFixture) -> None:
    class Hanging(Ticking):
        async def on_start(self) -> None:
            await super().on_start()
            self.handle.tasks.start_soon(swallow, name="stubborn")

        async def on_stop(self) -> None:
            await swallow()

    hanging, other = Hanging(), Ticking()
    lives = PluginLives([(hanging, Handles()), (other, Handles())])
    await lives.start()
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    await lives.stop()
    assert asyncio.get_running_loop().time() - began <= 4
    assert other.calls == ["start", "stop"]
    assert hanging.has_ended
    assert other.has_ended
    told = [text for _, text in failures(caplog)]
    assert "went on for 1s after its call was cancelled" in told
    assert "no answer within 2s" in told
    assert "task Lively: stubborn went on for 1s after it was cancelled" in told
    await asyncio.sleep(20)


async def test_a_scheduler_that_is_cancelled_in_start_ends_at_once() -> None:
    plugin = Lively()
    plugin.on_start = asyncio.Event().wait  # type: ignore[assignment]
    async with cluster(1, plugins=[plugin], start=False) as c:
        await _cancel_while_starting(c)
    assert plugin.calls == ["start", "stop"]


async def _cancel_while_starting(c: Cluster) -> None:
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(c.scheduler.watch())
        lead = tasks.create_task(c.scheduler.schedule())
        await c.advance(1)
        began = c.clock.now()
        lead.cancel()
        await asyncio.wait([lead])
        assert c.clock.now() == began
        watch.cancel()


async def test_no_task_can_be_started_too_late_or_in_a_crowd() -> None:
    tasks = PluginTasks(Lively())
    for _ in range(MAX_TASKS):
        tasks.start_soon(asyncio.sleep, 60)
    with pytest.raises(RuntimeError, match='plugin "Lively" has 1000 tasks'):
        tasks.start_soon(asyncio.sleep, 60)
    await asyncio.wait(tasks.cancel())
    with pytest.raises(RuntimeError, match='plugin "Lively" has stopped'):
        tasks.start_soon(asyncio.sleep, 60)


async def test_only_the_handle_of_start_has_tasks() -> None:
    handles: list[Any] = []

    def make(args: Any, handle: Any) -> Lively:
        handles.append(handle)
        return Lively()

    async with cluster(1, plugins={"Lively": make}):
        with pytest.raises(RuntimeError, match="the handle that start"):
            _ = handles[0].tasks


async def test_a_plugin_without_them_is_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with cluster(1) as c:
        assert isinstance(c.scheduler, Scheduler)
        assert c.scheduler.plugin_lives.sizes() == {}
    assert not caplog.records


async def test_plugins_come_and_go_while_others_live_on() -> None:
    log: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def start(self, handle: Any) -> None:
            log.append(f"start {self.name}")
            if self.name == "broken":
                raise ValueError("no")

        def stop(self) -> None:
            log.append(f"stop {self.name}")

    def those(*plugins: Named) -> list[tuple[Any, Any]]:
        return [(plugin, Handles()) for plugin in plugins]

    a, b, c, broken = (Named(name) for name in ("a", "b", "c", "broken"))
    lives = PluginLives(those(a, b))
    await lives.start_more(those(b, c))
    assert not lives.unstarted(those(c)), "nothing runs yet, so nothing is missing"
    await lives.start()
    assert lives.unstarted(those(b, c))
    with pytest.raises(PluginFailure):
        await lives.start_more(those(b, c, broken))
    assert log == ["start a", "start b", "start c", "start broken", "stop broken", "stop c"]
    await lives.start_more(those(b, c))
    lives.replace(those(b, c))
    del log[:]
    await lives.stop_others(used=[a])
    assert log == []
    await lives.stop_others(used=[])
    assert log == ["stop a"]
    await lives.stop()
    assert log == ["stop a", "stop c", "stop b"]


async def test_plugins_that_are_being_started_are_stopped_with_the_others() -> None:
    log: list[str] = []

    class Named:
        def __init__(self, name: str, seconds: float = 0.0) -> None:
            self.name, self.seconds = name, seconds

        async def start(self, handle: Any) -> None:
            log.append(f"start {self.name}")
            await asyncio.sleep(self.seconds)
            log.append(f"started {self.name}")

        async def stop(self) -> None:
            log.append(f"stop {self.name}")

    def those(*plugins: Named) -> list[tuple[Any, Any]]:
        return [(plugin, Handles()) for plugin in plugins]

    old, quick, slow, late = Named("old"), Named("quick"), Named("slow", 5.0), Named("late")
    lives = PluginLives(those(old))
    await lives.start()
    del log[:]
    starting = asyncio.get_running_loop().create_task(
        lives.start_more(those(old, quick, slow, late))
    )
    await asyncio.sleep(1.0)
    await lives.stop()
    assert starting.done()
    await starting
    await asyncio.sleep(10.0)
    begun, ended = log[:3], log[3:]
    assert begun == ["start quick", "started quick", "start slow"]
    assert ended == ["stop slow", "stop quick", "stop old"]
    assert lives.sizes() == {}
    assert not lives.unstarted(those(old, quick, slow, late)), "nothing runs"

    await lives.start()
    await lives.start_more(those(old, quick))
    assert lives.sizes() == {"old": 0, "quick": 0}
    await lives.stop()

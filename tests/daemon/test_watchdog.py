"""A loop that hangs: what is said, what is written, and when the process ends."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.daemon import watchdog
from ksched.daemon.watchdog import LOOKS, Watchdog, whereabouts
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Resource,
    Status,
    unschedulable,
)
from ksched.testing import FakePlugin, cluster, make_node, make_pod

LIMIT_SECONDS = 10.0
STEP_SECONDS = LIMIT_SECONDS / LOOKS


# -- what the stack tells


def here() -> Any:
    return whereabouts(sys._getframe(1))


@pytest.mark.parametrize(
    ("point", "activity"),
    [
        ("pre_enqueue", 'running PreEnqueue plugin "Slow"'),
        ("pre_filter", 'running PreFilter plugin "Slow"'),
        ("filter", 'running "Slow" filter plugin'),
        ("pre_score", 'running PreScore plugin "Slow"'),
        ("reserve", 'running Reserve plugin "Slow"'),
        ("permit", 'running Permit plugin "Slow"'),
        ("pre_bind", 'running PreBind plugin "Slow"'),
    ],
)
async def test_the_stack_names_plugin_and_pod(point: str, activity: str) -> None:
    seen = []

    def answer(*args: Any) -> Status:
        seen.append(here())
        return SUCCESS

    answers: dict[str, Any] = {point: answer}
    if point == "pre_score":
        answers["score"] = 0
    plugin = FakePlugin("Slow", **answers)
    async with cluster(nodes=2, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web")
    assert {(at.activity, at.plugin, at.pod.key) for at in seen} == {
        (activity, "Slow", "default/web")
    }


@pytest.mark.parametrize("point", ["pre_filter", "permit", "pre_bind"])
async def test_the_stack_names_an_async_plugin_that_does_not_wait(point: str) -> None:
    seen = []

    async def answer(state: Any, pod: Any, other: Any) -> Status:
        await asyncio.sleep(0)
        seen.append(here())
        return SUCCESS

    answers: dict[str, Any] = {point: SUCCESS}
    plugin = FakePlugin("Slow", **answers)
    setattr(plugin, point, answer)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
    assert [(at.plugin, at.pod and at.pod.key) for at in seen] == [("Slow", "default/web")]


async def test_the_stack_names_a_hint() -> None:
    seen = []

    def hint(pod: Any, old: Any, new: Any) -> Any:
        seen.append(here())

    events = [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD), hint)]
    plugin = FakePlugin("Slow", filter=unschedulable("no"), events_to_register=events)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        await c.create(make_node("n2"))
        await c.settle()
    assert [(at.plugin, at.pod.key) for at in seen] == [("Slow", "default/web")]


async def test_the_stack_names_the_pod_where_the_scheduler_itself_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    async with cluster(nodes=1) as c:
        update = c.scheduler.cache.update_snapshot

        def update_snapshot() -> None:
            seen.append(here())
            update()

        monkeypatch.setattr(c.scheduler.cache, "update_snapshot", update_snapshot)
        await c.create(make_pod("web"))
        await c.settle()
    assert [(at.activity, at.plugin, at.pod.key) for at in seen] == [
        ("scheduling the pod", "", "default/web")
    ]


def test_a_stack_without_plugins_names_nothing() -> None:
    assert here() == ("", "", None)
    assert whereabouts(None) == ("", "", None)


# -- when what happens


class Dog(Watchdog):
    """A watchdog whose acts are noted, and whose loop is at the same thing all the time."""

    def __init__(self, remaining: float = 5.0) -> None:
        self.acts: list[object] = []
        self.fed = self.silent = 0
        super().__init__(
            LIMIT_SECONDS,
            lambda: remaining,
            lambda pod, activity, hung, seconds: self.acts.append((pod, activity, hung, seconds)),
            self.acts.append,
        )

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_SECONDS)):
            self.look(STEP_SECONDS)

    def eat(self) -> None:
        self._fed += 1
        self.look(STEP_SECONDS)


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> PodInfo:
    """The pod that the loop of every dog is at."""
    pod = TemplateRegistry(ResourceAxis()).pod_info(make_pod("web").obj())
    at = watchdog.Whereabouts("running it", "Slow", pod)
    monkeypatch.setattr(watchdog, "whereabouts", lambda frame: at)
    return pod


def test_silence_is_told_then_quarantined_then_ended(
    pod: PodInfo, caplog: pytest.LogCaptureFixture
) -> None:
    dog = Dog()
    dog.eat()
    dog.wait(2.75)
    assert caplog.messages == []
    dog.wait(0.25)
    assert caplog.messages == ["event loop hangs"]
    fields = caplog.records[0].__dict__
    assert (fields["plugin"], fields["pod"]) == ("Slow", "default/web")
    dog.wait(1.75)
    assert dog.acts == []
    dog.wait(0.25)
    assert dog.acts == [(pod, "running it", 5.0, 5.0)]
    dog.wait(4.75)
    assert len(dog.acts) == 1
    dog.wait(0.25)
    assert dog.acts[1:] == [1]
    assert caplog.messages[-1] == "event loop hangs, ending the process"


def test_a_loop_that_goes_on_is_left_alone(caplog: pytest.LogCaptureFixture, pod: PodInfo) -> None:
    dog = Dog()
    for _ in range(5):
        dog.eat()
        dog.wait(4)
    assert dog.acts == []
    assert caplog.messages.count("event loop runs again") == 4


def test_who_does_not_lead_writes_nothing(pod: PodInfo) -> None:
    dog = Dog(remaining=0.0)
    dog.eat()
    dog.wait(LIMIT_SECONDS)
    assert dog.acts == [1]


def test_a_process_that_was_frozen_did_not_hang(pod: PodInfo) -> None:
    dog = Dog()
    dog.eat()
    dog.look(3600.0)
    dog.eat()
    assert dog.acts == []

"""Pods held at Permit are visible: by whom, since when and until when, wherever one looks."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ksched.daemon.inspection import log_queue
from ksched.daemon.observation import gauges
from ksched.framework import SUCCESS, PermitResult, Status, wait
from ksched.framework.handle import Handle
from ksched.scheduling.permit_waits import REASON
from ksched.testing import Cluster, FakePlugin, PermitGate, PodEvent, cluster, make_pod
from ksched.web.rendering import json_pieces
from ksched.web.views import queue_view, story_view


class Asks:
    """Answers when it is told to; one pod at a time."""

    name = "Asks"
    permit_concurrency = 1
    timeout_seconds = 100.0

    def __init__(self, args: Any = None, handle: Handle | None = None) -> None:
        self.answer: asyncio.Future[Status | PermitResult] | None = None

    def events_to_register(self) -> list[Any]:
        return []

    async def permit(self, state: Any, pod: Any, node_name: str) -> Status | PermitResult:
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


def waits(c: Cluster, pod: str) -> list[PodEvent]:
    return [event for event in c.events(pod) if event.reason == REASON]


def held_by(c: Cluster) -> dict[str, float]:
    """What the gauge says."""
    return {
        sample.labels["plugin"]: sample.value
        for family in gauges(c.scheduler)
        if family.name == "scheduler_permit_waiting_pods"
        for sample in family.samples
        if sample.value
    }


def holds(c: Cluster, pod: str) -> list[tuple[str, str, float, float]]:
    """By plugin, how many seconds ago it began to hold a pod, and in how many it will end."""
    waiting, now = c.scheduler.waiting.get(c.uid(pod)), c.clock.now()
    assert waiting is not None
    return [
        (hold.plugin, hold.holding.value, now - hold.since, hold.until - now)
        for hold in waiting.holds()
    ]


async def test_each_plugin_that_holds_a_pod_is_known_with_its_times() -> None:
    asks = Asks()
    gate = PermitGate("Gate", timeout_seconds=60, events_to_register=[])
    async with cluster(nodes=2, plugins=[gate, asks]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        await c.advance(3)
        await c.create(make_pod("b"))
        await c.advance(1)
        assert holds(c, "a") == [("Gate", "waiting", 4, 56), ("Asks", "asked", 4, 96)]
        assert holds(c, "b") == [("Gate", "waiting", 1, 59), ("Asks", "queued", 1, 899)]
        assert held_by(c) == {"Gate": 2, "Asks": 2}
        gate.allow("default/a")
        assert holds(c, "a") == [("Asks", "asked", 4, 96)]
        assert held_by(c) == {"Gate": 1, "Asks": 2}
        assert asks.answer is not None
        asks.answer.set_result(PermitResult(wait(), 10))
        await c.settle()
        assert holds(c, "a") == [("Asks", "waiting", 0, 10)]
        assert holds(c, "b")[1] == ("Asks", "asked", 0, 100)
        assert held_by(c) == {"Gate": 1, "Asks": 2}
        gate.reject("not today", "default/b")
        await c.settle()
        assert held_by(c) == {"Asks": 1}
        await c.advance(10)
        assert not len(c.scheduler.waiting)
        assert held_by(c) == {}


@pytest.mark.parametrize("end", ["allow", "reject", "delete", "time out", "stop"])
async def test_no_end_of_a_wait_is_left_in_the_counts(end: str) -> None:
    gate = PermitGate("Gate", timeout_seconds=60, events_to_register=[])
    async with cluster(nodes=1, plugins=[gate, Asks()]) as c:
        await c.create(make_pod("a"), make_pod("b"))
        await c.settle()
        assert held_by(c) == {"Gate": 2, "Asks": 2}
        if end == "allow":
            for waiting in c.scheduler.waiting:
                waiting.settle(SUCCESS)
        elif end == "reject":
            gate.reject("no")
        elif end == "delete":
            await c.delete("a", grace_seconds=0)
            await c.delete("b", grace_seconds=0)
        elif end == "time out":
            await c.advance(60)
        else:
            c.scheduler.drain()
        await c.settle()
        assert held_by(c) == {}
        assert not len(c.scheduler.waiting)


# -- Events and the log --------------------------------------------------------------------------


async def test_one_event_is_written_when_a_wait_passes_ten_seconds() -> None:
    gate = PermitGate("Gate", timeout_seconds=60)
    async with cluster(nodes=1, plugins=[gate, Asks()]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        await c.advance(9.5)
        assert waits(c, "a") == []
        await c.advance(1)
        note = (
            "Waiting on permit to go to n1: Gate waits, since 10s, for 50s more at most; "
            "Asks is still to answer, since 10s, for 1m30s more at most"
        )
        [event] = waits(c, "a")
        assert (event.type, event.note, event.count) == ("Normal", note, 1)
        await c.advance(45)
        assert waits(c, "a") == [event]
        assert event.controller == "default-scheduler"


@pytest.mark.parametrize("end", ["allow", "reject", "delete"])
async def test_a_wait_that_ends_sooner_has_no_event(end: str) -> None:
    gate = PermitGate("Gate", timeout_seconds=60, events_to_register=[])
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        await c.advance(9.9)
        if end == "allow":
            gate.allow()
        elif end == "reject":
            gate.reject("no")
        else:
            await c.delete("a", grace_seconds=0)
        await c.advance(5)
        assert waits(c, "a") == []


async def test_each_wait_of_a_pod_has_its_event() -> None:
    gate = PermitGate("Gate", timeout_seconds=20, events_to_register=[])
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        for number in range(1, 4):
            await c.advance(19)
            assert sum(event.count for event in waits(c, "a")) == number
            await c.advance(1)
            c.scheduler.queue.activate([c.queued("a").pod])
            await c.settle()


async def test_events_of_many_waiting_pods_are_bounded_by_the_recorder() -> None:
    gate = PermitGate("Gate", timeout_seconds=600)
    async with cluster(nodes=20, plugins=[gate]) as c:
        recorder = c.scheduler.recorder
        recorder._queue_limit = 10
        await c.create(*(make_pod(f"p{number}") for number in range(200)))
        await c.settle()
        await c.advance(15)
        written = sum(len(waits(c, f"p{number}")) for number in range(200))
        assert written >= 1
        assert written + recorder.dropped == 200
        gate.allow()
        await c.settle()
        assert all(c.bound(f"p{number}") for number in range(200))


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ksched")


async def test_a_wait_is_logged_as_a_decision_is(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(nodes=1, plugins=[PermitGate("Gate", timeout_seconds=60), Asks()]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        await c.advance(12)
    lines = [vars(one) for one in caplog.records if "waits on permit" in one.message]
    assert [(one["message"], one["pod"], one["node"], one["plugins"]) for one in lines] == [
        ("pod waits on permit", "default/a", "n1", "Gate,Asks"),
        ("pod still waits on permit", "default/a", "n1", "Gate,Asks"),
    ]
    assert [(one["since_seconds"], one["at_most_seconds"]) for one in lines] == [(0, 60), (10, 50)]


async def test_a_plugin_that_allows_at_once_is_no_wait(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(nodes=1, plugins=[FakePlugin("Kind", permit=SUCCESS)]) as c:
        await c.create(make_pod("a"))
        await c.advance(12)
        assert c.bound("a") == "n1"
        assert held_by(c) == {}
    assert not [one for one in caplog.records if "permit" in one.message]


# -- pages ---------------------------------------------------------------------------------------


async def test_queue_and_story_show_who_holds_a_pod() -> None:
    async with cluster(nodes=1, plugins=[PermitGate("Gate", timeout_seconds=60)]) as c:
        await c.create(make_pod("a"), make_pod("b"))
        await c.settle()
        await c.advance(5)
        page = queue_view(c.scheduler, 1)
        shown = list(page["pods"]["waiting on permit"])
        story = story_view(c.scheduler, "default/a")
        assert page["counts"]["waiting on permit"] == 2
        assert [(one["pod"], one["node"]) for one in shown] == [("default/a", "n1")]
        [hold] = shown[0]["heldBy"]
        assert (hold["plugin"], hold["state"]) == ("Gate", "waiting")
        assert hold["since"] < hold["until"]
        assert story is not None
        assert story["place"] == "waiting on permit"
        assert story["heldBy"] == [hold]


async def test_a_pod_that_comes_free_while_the_page_is_written_does_no_harm() -> None:
    gate = PermitGate("Gate", timeout_seconds=60)
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("a"), make_pod("b"))
        await c.settle()
        pieces = json_pieces(queue_view(c.scheduler, 10))
        start = b"".join(next(pieces) for _ in range(5))
        gate.allow()
        await c.settle()
        assert b'"heldBy": []' in start + b"".join(pieces)


async def test_the_signal_for_the_queue_names_them_too(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(nodes=1, plugins=[PermitGate("Gate", timeout_seconds=60)]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        caplog.clear()
        log_queue(c.scheduler)
    [line] = [vars(one) for one in caplog.records if "waits on permit" in one.message]
    assert (line["pod"], line["plugin"], line["state"]) == ("default/a", "Gate", "waiting")

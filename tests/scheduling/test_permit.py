"""Pods that wait for permission, and how waiting ends.

framework/runtime/waiting_pods_map.go, schedule_one.go: bindingCycle (v1.36).

Covers ``ksched.framework.runtime.deadlines`` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    PermitResult,
    Resource,
    pending,
    wait,
)
from ksched.queue.places import Place
from ksched.testing import After, Call, Checkers, FakePlugin, PermitGate, cluster, make_pod

WITHOUT_GATE = {
    "schedulerName": "without-gate",
    "plugins": {"permit": {"disabled": [{"name": "Gate"}]}},
}


def reservers(journal: list[Call]) -> list[FakePlugin]:
    return [FakePlugin(name, journal=journal, reserve=SUCCESS) for name in ("A", "B")]


def undone(journal: list[Call], pod: str = "default/web") -> list[str]:
    """The plugins that were asked to undo, in order."""
    return [call.plugin for call in journal if (call.method, call.pod) == ("unreserve", pod)]


def waiting(seconds: float) -> PermitResult:
    return PermitResult(wait(), seconds)


async def test_a_pod_rejected_while_it_waits_becomes_unschedulable_and_frees_its_place() -> None:
    journal: list[Call] = []
    gate = PermitGate("Gate", journal=journal, events_to_register=[])
    config = {"profiles": [{"schedulerName": "default-scheduler"}, WITHOUT_GATE]}
    async with cluster(nodes=1, config=config, plugins=[*reservers(journal), gate]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.create(make_pod("other").req(cpu="3").scheduler("without-gate"))
        await c.settle()
        assert gate.held() == ["default/web"]
        assert c.place("web") is Place.IN_FLIGHT
        assert c.pod("web")["status"]["nominatedNodeName"] == "n1"
        assert c.bound("other") is None
        gate.reject("the others are missing")
        await c.settle()
        assert undone(journal) == ["B", "A"]
        condition = c.condition("web")
        assert condition is not None
        assert condition["reason"] == "Unschedulable"
        assert c.message("web") == "0/1 nodes are available: 1 the others are missing."
        assert c.events("web")[-1].note == c.message("web")
        assert "nominatedNodeName" not in c.pod("web")["status"]
        assert c.place("web") is Place.UNSCHEDULABLE
        queued = c.queued("web")
        assert (queued.unschedulable_count, queued.consecutive_errors_count) == (1, 0)
        assert c.bound("other") == "n1"
        checkers.check_books()


async def test_waiting_ends_with_the_shortest_time_that_a_plugin_allows() -> None:
    plugins = [
        FakePlugin("Long", permit=waiting(100), events_to_register=[]),
        FakePlugin("Short", permit=waiting(90), events_to_register=[]),
    ]
    async with cluster(nodes=1, plugins=plugins) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web"))
        await c.advance(89)
        assert len(c.scheduler.waiting) == 1
        await c.advance(1)
        why = "rejected due to timeout after waiting 1m30s at plugin Short"
        assert c.message("web") == f"0/1 nodes are available: 1 {why}."
        assert c.place("web") is Place.UNSCHEDULABLE
        assert len(c.scheduler.waiting) == 0
        checkers.check_books()


async def test_no_pod_waits_longer_than_a_quarter_of_an_hour() -> None:
    async with cluster(nodes=1, plugins=[FakePlugin("Long", permit=waiting(1e6))]) as c:
        await c.create(make_pod("web"))
        await c.advance(15 * 60)
        assert "after waiting 15m0s at plugin Long" in c.message("web")


async def test_every_plugin_that_waits_must_allow() -> None:
    one, two = PermitGate("One"), PermitGate("Two")
    async with cluster(nodes=1, plugins=[one, two]) as c:
        await c.create(make_pod("web"))
        await c.advance(10)
        one.allow()
        await c.advance(10)
        assert (one.held(), two.held()) == ([], ["default/web"])
        assert c.bound("web") is None
        two.allow()
        await c.settle()
        assert c.bound("web") == "n1"


async def test_what_comes_after_the_decision_to_wait_is_ignored() -> None:
    gate = PermitGate(timeout_seconds=10)
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        [held] = c.scheduler.waiting
        await c.advance(10)
        held.allow(gate.name)
        await c.settle()
        assert c.bound("web") is None
        assert "timeout after waiting 10s" in c.message("web")


async def test_a_pod_deleted_while_it_waits_leaves_nothing_behind() -> None:
    journal: list[Call] = []
    gate = PermitGate(journal=journal)
    async with cluster(nodes=1, plugins=[*reservers(journal), gate]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        await c.delete("web")
        await c.settle()
        checkers.check_books()
        assert undone(journal) == ["B", "A"]
        assert (len(c.scheduler.waiting), c.place("web")) == (0, Place.ABSENT)
        assert c.events("web") == []


async def test_a_pod_that_is_being_deleted_does_not_go_on_waiting() -> None:
    gate = PermitGate()
    held = make_pod("web").merge({"metadata": {"finalizers": ["example.com/slow"]}})
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(held)
        await c.settle()
        await c.delete("web")
        await c.settle()
        assert gate.held() == []
        assert c.exists("web")


@pytest.mark.parametrize("point", ["pre_filter", "reserve", "permit"])
async def test_a_pod_deleted_while_an_async_plugin_is_asked_does_not_wait_for_permission(
    point: str,
) -> None:
    answers: dict[str, Any] = {"permit": waiting(600), point: After(5, SUCCESS)}
    if point == "permit":
        answers["permit"] = After(5, waiting(600))
    plugin = FakePlugin("Slow", **answers)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.advance(1)
        await c.delete("web")
        await c.advance(5)
        assert len(c.scheduler.waiting) == 0
        checkers.check_books()


@pytest.mark.parametrize("point", ["pre_filter", "reserve", "permit"])
async def test_a_pod_bound_elsewhere_while_an_async_plugin_is_asked_stays_there(
    point: str,
) -> None:
    answers: dict[str, Any] = {point: After(5, SUCCESS)}
    plugin = FakePlugin("Slow", **answers)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.advance(1)
        await c.add_nodes(1)
        await c.bind("web", "n2")
        await c.advance(5)
        assert c.bound("web") == "n2"
        assert c.place("web") is Place.ABSENT
        checkers.check_books()
        await c.create(make_pod("next"))
        await c.advance(6)
        assert c.bound("next") is not None


async def test_a_preempted_waiting_pod_backs_off_as_after_an_error() -> None:
    gate = PermitGate()
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        [held] = c.scheduler.waiting
        held.preempt("preempted")
        await c.settle()
        condition = c.condition("web")
        assert condition is not None
        assert condition["reason"] == "SchedulerError"
        assert c.message("web") == "waiting on permit for pod: preempted"
        assert c.place("web") is Place.BACKOFF
        queued = c.queued("web")
        assert (queued.unschedulable_count, queued.consecutive_errors_count) == (0, 1)


async def test_an_answer_of_pending_skips_the_backoff_when_its_event_comes() -> None:
    awaited = ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD))
    moody = FakePlugin("Moody", permit=pending("later"), events_to_register=[awaited])
    async with cluster(nodes=1, plugins=[moody]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web") == "0/1 nodes are available: 1 later."
        moody.answers["permit"] = SUCCESS
        await c.add_nodes(1)
        await c.settle()
        assert c.bound("web") is not None
        assert Place.BACKOFF not in [step.target for step in c.story("web")]


async def test_a_waiting_pod_does_not_hold_up_the_others() -> None:
    hold = FakePlugin(
        "Hold",
        permit=lambda state, pod, node: waiting(60) if pod.name == "slow" else SUCCESS,
        pre_bind=After(0, SUCCESS),
    )
    async with cluster(nodes=1, plugins=[hold]) as c:
        await c.create(make_pod("slow"), make_pod("quick"))
        await c.settle()
        assert (c.bound("slow"), c.bound("quick")) == (None, "n1")


async def test_a_bare_wait_lasts_as_long_as_the_plugin_declares() -> None:
    class Gate(FakePlugin):
        permit_wait_seconds = 7.0

    gate = Gate("Gate", permit=wait("for the others"), events_to_register=[])
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("web"))
        await c.advance(6.9)
        assert c.place("web") is Place.IN_FLIGHT
        await c.advance(0.1)
        assert c.place("web") is Place.UNSCHEDULABLE
        assert "rejected due to timeout after waiting 7s at plugin Gate" in c.message("web")

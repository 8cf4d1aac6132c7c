"""Pods that held up a scheduler are left alone for a while, by every scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ksched.api.decoding import decode_pod
from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.daemon.inspection import compare_with_api_server, log_queue
from ksched.daemon.observation import gauges
from ksched.framework import SUCCESS
from ksched.queue.places import Place
from ksched.scheduling.quarantine import LONGEST_SECONDS, REASON, marking_patch, quarantine_seconds
from ksched.testing import Cluster, FakePlugin, cluster, make_node, make_pod
from ksched.web.views import queue_view, story_view

ACTIVITY = 'running "Slow" filter plugin'


def pod_info(data: dict[str, Any]) -> PodInfo:
    return TemplateRegistry(ResourceAxis()).pod_info(decode_pod(Raw(msgspec.json.encode(data))))


def info(hangs: int = 0, wall: float = 0.0) -> PodInfo:
    data = make_pod("web").to_dict()
    pod = pod_info(data)
    for _ in range(hangs):
        patch = msgspec.json.decode(marking_patch(pod, ACTIVITY, 5.0, wall))
        data["status"] = patch["status"]
        pod = TemplateRegistry(ResourceAxis()).pod_info(
            decode_pod(msgspec.Raw(msgspec.json.encode(data)))
        )
    return pod


@pytest.mark.parametrize(
    ("hangs", "pause"), [(0, 0), (1, 300), (2, 600), (4, 2400), (5, 3600), (70, 3600)]
)
def test_each_hang_doubles_the_pause(hangs: int, pause: float) -> None:
    wall = 1_800_000_000.0
    pod = info(hangs, wall).pod
    assert quarantine_seconds(pod, wall) == pause
    assert quarantine_seconds(pod, wall + pause) == 0
    # By a clock that is a day behind.
    assert quarantine_seconds(pod, wall - 86_400) == (LONGEST_SECONDS if hangs else 0)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no mark",
        "(hang 1); not tried again before noon",
        "(hang 1); not tried again before 0001-01-01T00:00:00+23:00",
        f"(hang {'9' * 50}); not tried again before 2040-01-01T00:00:00Z",
    ],
)
def test_a_mark_that_cannot_be_read_counts_for_nothing(message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": REASON, "message": message}
    pod = make_pod("web").merge({"status": {"conditions": [condition]}}).obj()
    assert quarantine_seconds(pod, 0.0) == 0


async def mark(c: Cluster, name: str) -> None:
    """What the watchdog of a scheduler that hangs does."""
    pod = TemplateRegistry(ResourceAxis()).pod_info(
        decode_pod(msgspec.Raw(msgspec.json.encode(c.pod(name))))
    )
    body = msgspec.json.decode(marking_patch(pod, ACTIVITY, 5.0, c.scheduler.clock.wall()))
    await c.patch(name, body, subresource="status")
    await c.settle()


async def test_no_plugin_sees_a_quarantined_pod_until_the_pause_is_over() -> None:
    plugin = FakePlugin("Slow", pre_enqueue=SUCCESS, pre_filter=SUCCESS)
    async with cluster(plugins=[plugin]) as c:
        await c.create(make_pod("victim"), make_pod("other"))
        await c.settle()
        await mark(c, "victim")
        assert c.place("victim") is Place.ABSENT
        before = len(plugin.calls())
        await c.create(make_node("n1"))
        await c.advance(290)
        assert c.bound("other") == "n1"
        assert c.bound("victim") is None
        assert {call.pod for call in plugin.calls()[before:]} == {"default/other"}
        # Changes of the pod do not set it free, and do not prolong it.
        await c.patch("victim", {"metadata": {"labels": {"a": "b"}}})
        await c.settle()
        assert c.place("victim") is Place.ABSENT
        await c.advance(11)
        assert c.bound("victim") == "n1"
        condition = c.condition("victim")
        assert condition is not None
        assert condition["status"] == "True"


async def test_a_scheduler_that_starts_leaves_it_alone_from_the_beginning() -> None:
    plugin = FakePlugin("Slow", pre_enqueue=SUCCESS, filter=SUCCESS)
    async with cluster(nodes=1, plugins=[plugin], start=False) as c:
        await c.create(make_pod("victim"))
        await mark(c, "victim")
        async with c.scheduler:
            await c.create(make_pod("other"))
            await c.settle()
            assert c.bound("other") == "n1"
            assert {call.pod for call in plugin.calls()} == {"default/other"}
            await c.advance(301)
            assert c.bound("victim") == "n1"


async def test_another_outcome_ends_the_quarantine() -> None:
    async with cluster() as c:
        await c.create(make_pod("victim"))
        await c.settle()
        await mark(c, "victim")
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        await c.patch("victim", {"status": {"conditions": [condition]}}, subresource="status")
        await c.create(make_node("n1"))
        await c.advance(20)
        assert c.bound("victim") == "n1"


async def test_a_quarantined_pod_may_be_deleted() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("victim").merge({"spec": {"schedulingGates": [{"name": "a/b"}]}}))
        await c.settle()
        await mark(c, "victim")
        await c.delete("victim", grace_seconds=0)
        await c.advance(400)
        assert not c.exists("victim")


async def test_quarantined_pods_are_visible(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ksched.daemon")
    async with cluster() as c:
        await c.create(make_pod("victim"))
        await c.settle()
        before = list(queue_view(c.scheduler, 10)["pods"]["quarantined"])
        await mark(c, "victim")
        page = queue_view(c.scheduler, 10)
        [shown] = page["pods"]["quarantined"]
        story = story_view(c.scheduler, "default/victim")
        log_queue(c.scheduler)
        assert (before, page["counts"]["quarantined"]) == ([], 1)
        assert shown["pod"] == "default/victim"
        assert story is not None
        assert (story["place"], story["quarantinedUntil"]) == ("quarantined", shown["until"])
        assert quarantined_pods(c) == 1
        assert [one for one in caplog.records if one.message == "pod is quarantined"]
        await c.advance(301)
        assert quarantined_pods(c) == 0
        assert queue_view(c.scheduler, 10)["counts"]["quarantined"] == 0


async def test_a_quarantined_pod_is_not_missed() -> None:
    """It is in no place of the queue, but known all the same."""
    async with cluster() as c:
        await c.create(make_pod("victim"))
        await c.settle()
        await mark(c, "victim")
        found = await compare_with_api_server(c.scheduler)
        assert found is not None
        assert not found


def quarantined_pods(c: Cluster) -> float:
    [family] = [one for one in gauges(c.scheduler) if one.name == "scheduler_quarantined_pods"]
    return float(family.samples[0].value)

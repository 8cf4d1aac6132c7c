"""What a user reads about a pod whose attempt failed, and that it is not written too often.

schedule_one.go: handleSchedulingFailure (v1.36).
"""

from __future__ import annotations

from ksched.framework import SUCCESS, unschedulable
from ksched.queue.places import Place
from ksched.testing import After, FakePlugin, cluster, make_node, make_pod
from ksched.testing.harness import Cluster

TOO_BIG = "0/1 nodes are available: 1 Insufficient cpu."


def patches(c: Cluster, pod: str) -> int:
    path = f"/api/v1/namespaces/default/pods/{pod}/status"
    return sum((audit.path, audit.verb) == (path, "patch") for audit in c.requests)


async def test_the_condition_is_patched_only_when_it_changes() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web").req(cpu="100"))
        await c.advance(1)
        first = c.condition("web")
        assert first is not None
        assert (first["status"], first["reason"]) == ("False", "Unschedulable")
        assert first["message"].startswith(TOO_BIG)
        assert first["lastTransitionTime"] == "2023-11-14T22:13:20Z"
        assert first["observedGeneration"] == 1
        await c.advance(1000)
        assert c.queued("web").attempts > 10
        assert patches(c, "web") == 1
        await c.add_nodes(1)
        await c.advance(100)
        second = c.condition("web")
        assert second is not None
        assert second["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        assert patches(c, "web") == 2


async def test_repeated_failures_are_counted_in_one_event() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web").req(cpu="100"))
        await c.advance(4000)
        attempts = c.queued("web").attempts
        assert attempts > 40
        events = c.events("web")
        # The reference to the pod changes once, when its condition is written.
        assert len(events) == 2
        assert events[-1].count > attempts // 2
        assert {(event.type, event.reason) for event in events} == {("Warning", "FailedScheduling")}


async def test_a_long_message_is_cut_in_the_event_and_whole_in_the_condition() -> None:
    essay = "ä" * 2000
    async with cluster(nodes=1, plugins=[FakePlugin("Poet", filter=unschedulable(essay))]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert f"1 {essay}." in c.message("web")
        for event in c.events("web"):
            assert len(event.note.encode()) in (1023, 1024)
            assert event.note.endswith("ä ...")


async def test_text_with_percent_signs_is_shown_as_it_is() -> None:
    plugin = FakePlugin("Full", filter=unschedulable("disk 100%s full"))
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert "1 disk 100%s full." in c.events("web")[0].note


async def test_a_pod_comes_back_in_the_version_that_came_while_it_was_tried() -> None:
    moody = FakePlugin("Moody", pre_filter=After(5, unschedulable("no")), events_to_register=[])
    async with cluster(nodes=1, plugins=[moody]) as c:
        await c.create(make_pod("web"))
        await c.advance(1)
        await c.patch("web", {"metadata": {"labels": {"app": "new"}}})
        await c.advance(4)
        assert c.place("web") is Place.UNSCHEDULABLE
        assert c.queued("web").pod.labels == {"app": "new"}


async def test_an_event_that_comes_while_a_pod_is_tried_is_not_lost() -> None:
    gate = FakePlugin("Slow", pre_filter=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("web").req(cpu="100"))
        await c.advance(1)
        await c.add_nodes([make_node("large").capacity(cpu="128")])
        await c.advance(4)
        # The attempt decided on a snapshot without the new node, and is repeated.
        assert c.message("web").startswith(TOO_BIG)
        await c.advance(5)
        assert c.bound("web") == "large"


async def test_success_leaves_no_trace_of_earlier_failures() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web").req(cpu="100"))
        await c.settle()
        await c.add_nodes([make_node("large").capacity(cpu="128")])
        await c.advance(3)
        assert c.bound("web") == "large"
        condition = c.condition("web")
        assert condition is not None
        assert condition["status"] == "True"
        await c.advance(300)
        assert c.condition("web") == condition

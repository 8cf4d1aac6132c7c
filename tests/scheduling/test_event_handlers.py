"""Watched changes: facts to the cache first, then wake-ups to the queue.

eventhandlers.go (v1.36).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ksched.cache.pod_info import PodInfo
from ksched.framework import SUCCESS
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.places import Place
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import FakePlugin, PodBuilder, cluster, make_node, make_pod

WEB = make_pod("web").req(cpu="3")


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    """A scheduler that does not run; its handlers are called by the tests."""
    async with cluster(start=False, plugins=[FakePlugin("Spy", filter=SUCCESS)]) as c:
        yield c.scheduler


async def pop(scheduler: Scheduler) -> QueuedPodInfo:
    queued = await scheduler.queue.pop()
    assert queued is not None
    return queued


async def reject(scheduler: Scheduler, *pods: PodBuilder) -> None:
    """Let pods wait for an event that concerns the plugin Spy, which takes any."""
    for pod in pods:
        scheduler.pods.added(pod.obj())
    for _ in pods:
        queued = await pop(scheduler)
        scheduler.queue.add_unschedulable_if_not_present(queued, frozenset({"Spy"}))


def place(scheduler: Scheduler, pod: PodBuilder) -> Place:
    return scheduler.queue.place_of(pod.obj().metadata.uid)


def cause(scheduler: Scheduler, pod: PodBuilder) -> str:
    """Why a pod was moved last."""
    return scheduler.queue.story(pod.obj().metadata.uid)[-1].cause


def assume(scheduler: Scheduler, pod: PodBuilder, node_name: str = "n1") -> PodInfo:
    assumed = scheduler.cache.pod_info(pod.obj()).on_node(node_name)
    scheduler.cache.assume_pod(assumed)
    return assumed


def used(scheduler: Scheduler, node_name: str = "n1") -> int:
    info = scheduler.cache.get_node(node_name)
    return info.requested_of("cpu") if info else 0


# -- whose pod is it ------------------------------------------------------------------------------


async def test_pods_of_other_schedulers_are_not_queued(scheduler: Scheduler) -> None:
    other = WEB.scheduler("somebody-else")
    scheduler.pods.added(other.obj())
    assert place(scheduler, other) is Place.ABSENT
    assert scheduler.pending.get(other.obj().metadata.uid) is None


async def test_a_pod_that_changes_hands_leaves_the_queue_and_may_come_back(
    scheduler: Scheduler,
) -> None:
    ours, theirs = WEB.obj(), WEB.scheduler("somebody-else").obj()
    scheduler.pods.added(ours)
    scheduler.pods.modified(ours, theirs)
    assert place(scheduler, WEB) is Place.ABSENT
    scheduler.pods.modified(theirs, ours)
    assert place(scheduler, WEB) is Place.ACTIVE


async def test_a_pod_that_changes_hands_while_it_is_tried_does_not_come_back(
    scheduler: Scheduler,
) -> None:
    ours = WEB.obj()
    scheduler.pods.added(ours)
    queued = await pop(scheduler)
    scheduler.pods.modified(ours, WEB.scheduler("somebody-else").obj())
    assert scheduler.queue.add_unschedulable_if_not_present(queued) is Place.ABSENT


async def test_a_pod_that_changes_hands_while_it_waits_for_permission_is_sent_back(
    scheduler: Scheduler,
) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    scheduler.pods.added(WEB.obj())
    held = scheduler.waiting.hold(assume(scheduler, WEB), "n1", {"Gate": 60})
    scheduler.pods.modified(WEB.obj(), WEB.scheduler("somebody-else").obj())
    assert held.settled.result().reasons == ("removed",)


async def test_a_successor_under_the_same_name_is_another_pod(scheduler: Scheduler) -> None:
    old, new = WEB.uid("u1"), WEB.uid("u2")
    scheduler.pods.added(old.obj())
    scheduler.pods.modified(old.obj(), new.obj())
    assert place(scheduler, old) is Place.ABSENT
    assert place(scheduler, new) is Place.ACTIVE


# -- assigned pods ----------------------------------------------------------------------------


async def test_assigned_pods_of_everybody_are_counted_and_wake_others(
    scheduler: Scheduler,
) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    runs = make_pod("runs").req(cpu="1").scheduler("somebody-else").node("n1")
    resized = runs.label(app="web")
    waits = [make_pod(f"waits-{number}") for number in range(3)]
    for step, expected in (
        (lambda: scheduler.pods.added(runs.obj()), "AssignedPodAdd"),
        (lambda: scheduler.pods.modified(runs.obj(), resized.obj()), "AssignedPodUpdatePodLabel"),
        (lambda: scheduler.pods.deleted(resized.obj()), "AssignedPodDelete"),
    ):
        pod = waits.pop()
        await reject(scheduler, pod)
        step()
        assert cause(scheduler, pod) == expected
        assert place(scheduler, pod) is Place.BACKOFF
    assert used(scheduler) == 0


async def test_a_bound_pod_leaves_the_queue_and_enters_the_cache(scheduler: Scheduler) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    scheduler.pods.added(WEB.obj())
    scheduler.pods.modified(WEB.obj(), WEB.node("n1").obj())
    assert place(scheduler, WEB) is Place.ABSENT
    assert used(scheduler) == 3000


async def test_a_confirmed_pod_is_counted_once(scheduler: Scheduler) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    scheduler.pods.added(WEB.obj())
    assume(scheduler, WEB)
    scheduler.pods.modified(WEB.obj(), WEB.node("n1").obj())
    assert used(scheduler) == 3000
    assert not scheduler.cache.is_assumed(WEB.obj().metadata.uid)


# -- pods whose binding was lost: the API server's data came from an older copy --------------------


async def test_a_pod_that_loses_its_node_leaves_the_cache_and_is_queued(
    scheduler: Scheduler,
) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    other, runs = make_pod("other"), WEB.node("n1")
    scheduler.pods.added(runs.obj())
    await reject(scheduler, other)
    scheduler.pods.modified(runs.obj(), WEB.obj())
    assert place(scheduler, WEB) is Place.ACTIVE
    assert scheduler.cache.get_pod(WEB.obj().metadata.uid) is None
    assert used(scheduler) == 0
    assert cause(scheduler, other) == "AssignedPodDelete"


async def test_a_foreign_pod_that_loses_its_node_is_not_queued(scheduler: Scheduler) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    theirs = WEB.scheduler("somebody-else")
    scheduler.pods.added(theirs.node("n1").obj())
    scheduler.pods.modified(theirs.node("n1").obj(), theirs.obj())
    assert (place(scheduler, WEB), used(scheduler)) == (Place.ABSENT, 0)


async def test_a_pod_that_changes_its_node_counts_there_and_wakes_others(
    scheduler: Scheduler,
) -> None:
    for name in ("n1", "n2"):
        scheduler.nodes.added(make_node(name).obj())
    other = make_pod("other")
    scheduler.pods.added(WEB.node("n1").obj())
    await reject(scheduler, other)
    scheduler.pods.modified(WEB.node("n1").obj(), WEB.node("n2").obj())
    assert (used(scheduler, "n1"), used(scheduler, "n2")) == (0, 3000)
    assert cause(scheduler, other) == "AssignedPodDelete"


async def test_an_assumed_pod_whose_binding_was_lost_is_queued_again(scheduler: Scheduler) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    scheduler.pods.added(WEB.obj())
    queued = await pop(scheduler)
    assumed = assume(scheduler, WEB)
    scheduler.queue.done(queued.uid)
    scheduler.cache.finish_binding(assumed.uid)
    scheduler.pods.give_up(scheduler.cache.bound_assumed())
    assert (place(scheduler, WEB), used(scheduler)) == (Place.ACTIVE, 0)


async def test_a_confirmed_pod_is_not_given_up(scheduler: Scheduler) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    scheduler.pods.added(WEB.obj())
    await pop(scheduler)
    assumed = assume(scheduler, WEB)
    scheduler.cache.finish_binding(assumed.uid)
    bound = scheduler.cache.bound_assumed()
    scheduler.pods.modified(WEB.obj(), WEB.node("n1").obj())
    scheduler.pods.give_up(bound)
    assert used(scheduler) == 3000


# -- pods that go ---------------------------------------------------------------------------------


async def test_a_deleted_assumed_pod_frees_its_room_and_wakes_others(scheduler: Scheduler) -> None:
    scheduler.nodes.added(make_node("n1").obj())
    scheduler.pods.added(WEB.obj())
    await pop(scheduler)
    assume(scheduler, WEB)
    other = make_pod("other")
    await reject(scheduler, other)
    scheduler.pods.deleted(WEB.obj())
    assert used(scheduler) == 0
    assert cause(scheduler, other) == "AssignedPodDelete"


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        pytest.param(5, Place.BACKOFF, id="had to respect it"),
        pytest.param(10, Place.BACKOFF, id="as important"),
        pytest.param(11, Place.UNSCHEDULABLE, id="more important"),
    ],
)
@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_the_end_of_a_nomination_wakes_those_who_had_to_respect_it(
    scheduler: Scheduler, how: str, priority: int, expected: Place
) -> None:
    nominated = make_pod("nominated").priority(10).nominated("n1")
    waits = make_pod("waits").priority(priority)
    await reject(scheduler, nominated, waits)
    if how == "deleted":
        scheduler.pods.deleted(nominated.obj())
    else:
        scheduler.pods.modified(nominated.obj(), make_pod("nominated").priority(10).obj())
    assert place(scheduler, waits) is expected


async def test_an_update_of_an_assumed_pod_does_not_queue_it_again(scheduler: Scheduler) -> None:
    scheduler.pods.added(WEB.obj())
    assume(scheduler, WEB)
    scheduler.queue.delete(WEB.obj().metadata.uid)
    scheduler.pods.modified(WEB.obj(), WEB.label(app="web").obj())
    assert place(scheduler, WEB) is Place.ABSENT
    latest = scheduler.pending.get(WEB.obj().metadata.uid)
    assert latest is not None
    assert latest.labels == {"app": "web"}


async def test_an_update_of_an_assumed_pod_counts_when_it_comes_back(scheduler: Scheduler) -> None:
    """It was rejected for what it was when it was tried; it is held at Permit meanwhile."""
    scheduler.pods.added(WEB.obj())
    queued = await pop(scheduler)
    assume(scheduler, WEB)
    scheduler.pods.modified(WEB.obj(), WEB.label(app="web").obj())
    assert place(scheduler, WEB) is Place.IN_FLIGHT
    assert (
        scheduler.queue.add_unschedulable_if_not_present(queued, frozenset({"Spy"}))
        is Place.BACKOFF
    )
    assert queued.pod.labels == {"app": "web"}


# -- nonsense -------------------------------------------------------------------------------------


async def test_a_pod_that_makes_no_sense_is_ignored_and_said_once(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    strange = make_pod("strange").req(cpu="lots")
    scheduler.pods.added(strange.obj())
    assert place(scheduler, strange) is Place.ABSENT
    [record] = caplog.records
    assert record.getMessage() == "pod is invalid"
    assert record.__dict__["pod"] == "default/strange"


async def test_a_pod_that_ceases_to_make_sense_is_dropped(scheduler: Scheduler) -> None:
    good, strange = make_pod("p").obj(), make_pod("p").req(cpu="lots").obj()
    scheduler.pods.added(good)
    scheduler.pods.modified(good, strange)
    assert place(scheduler, make_pod("p")) is Place.ABSENT
    scheduler.pods.modified(strange, good)
    assert place(scheduler, make_pod("p")) is Place.ACTIVE


async def test_a_node_that_makes_no_sense_is_not_used_until_it_does(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    strange, good = make_node("n1").capacity(cpu="lots").obj(), make_node("n1").obj()
    scheduler.nodes.added(strange)
    assert scheduler.cache.get_node("n1") is None
    assert [record.getMessage() for record in caplog.records] == ["node is invalid"]
    scheduler.nodes.modified(strange, good)
    assert scheduler.cache.get_node("n1") is not None
    scheduler.nodes.deleted(good)
    assert scheduler.cache.get_node("n1") is None


# -- nodes ----------------------------------------------------------------------------------------


async def test_nodes_wake_pods_by_what_changed(scheduler: Scheduler) -> None:
    node = make_node("n1")
    steps = [
        (None, node, "NodeAdd"),
        (node, node.label(disk="ssd"), "NodeUpdateNodeLabel"),
        (node, node.capacity(cpu="64"), "NodeUpdateNodeAllocatable"),
        (node, node.taint("a"), "NodeUpdateNodeTaint"),
        (node.unschedulable(), node, "NodeUpdateNodeTaint"),
        (node, None, "NodeDelete"),
    ]
    for number, (old, new, expected) in enumerate(steps):
        pod = make_pod(f"p{number}")
        await reject(scheduler, pod)
        if old is None:
            assert new is not None
            scheduler.nodes.added(new.obj())
        elif new is None:
            scheduler.nodes.deleted(old.obj())
        else:
            scheduler.nodes.modified(old.obj(), new.obj())
        assert cause(scheduler, pod) == expected


async def test_a_heartbeat_wakes_nobody_and_touches_no_row(scheduler: Scheduler) -> None:
    node = make_node("n1")
    scheduler.nodes.added(node.obj())
    scheduler.cache.update_snapshot()
    pod = make_pod("waits")
    await reject(scheduler, pod)
    before = scheduler.cache.snapshot.table.row_log.generation
    scheduler.nodes.modified(node.obj(), node.resource_version("2").obj())
    scheduler.cache.update_snapshot()
    assert place(scheduler, pod) is Place.UNSCHEDULABLE
    assert scheduler.cache.snapshot.table.row_log.generation == before


async def test_pods_of_a_removed_node_are_remembered_until_they_go(scheduler: Scheduler) -> None:
    node = make_node("n1")
    scheduler.nodes.added(node.obj())
    scheduler.pods.added(WEB.node("n1").obj())
    scheduler.nodes.deleted(node.obj())
    assert scheduler.cache.statistics().nodes == 1
    scheduler.nodes.added(node.obj())
    assert used(scheduler) == 3000
    scheduler.nodes.deleted(node.obj())
    scheduler.pods.deleted(WEB.node("n1").obj())
    assert scheduler.cache.statistics().nodes == 0

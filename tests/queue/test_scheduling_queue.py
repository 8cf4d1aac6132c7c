"""Covers ``ksched.queue.pre_enqueue``, ``ksched.queue.contents`` and ``ksched.queue.work``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.errors import InvariantBroken
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueuedPodInfo,
    QueueingHint,
    Resource,
    Status,
    error,
    unschedulable,
)
from ksched.framework.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE
from ksched.queue import InvalidTransition, Place, registrations
from ksched.queue.hints import Registration
from ksched.queue.places import TransitionLog
from ksched.testing.builders import PodBuilder, make_pod
from ksched.tuning import PODS_PER_SLICE as SLICE
from lab.watched_queue import WatchedQueue

PROFILE = "default-scheduler"
TEMPLATES = TemplateRegistry(ResourceAxis())
FIT = frozenset(["Fit"])


class Time:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def info(pod: PodBuilder | str) -> PodInfo:
    return TEMPLATES.pod_info((make_pod(pod) if isinstance(pod, str) else pod).obj())


def make_queue(
    now: Callable[[], float] | None = None,
    hints: Sequence[Registration] = (("Fit", ClusterEventWithHint(NODE_ADD)),),
    pre_enqueue: Callable[[PodInfo], Status] | None = None,
    **settings: Any,
) -> WatchedQueue:
    return WatchedQueue(
        now=now or Time(),
        sort_key=lambda queued: (-queued.pod.priority, queued.timestamp),
        pre_enqueue={PROFILE: [("Gate", pre_enqueue)]} if pre_enqueue else {},
        hints={PROFILE: hints},
        **settings,
    )


async def pop(queue: WatchedQueue) -> QueuedPodInfo:
    queued = await queue.pop()
    assert queued is not None
    return queued


# -- pop ------------------------------------------------------------------------------------------


async def test_pop_lets_others_run_even_when_pods_are_ready() -> None:
    queue = make_queue()
    for number in range(100):
        queue.pod_added(info(f"p{number}"))
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(neighbour())
        for _ in range(100):
            await pop(queue)
        running.cancel()
    assert turns >= 99


@pytest.mark.parametrize(
    "wake",
    [
        pytest.param(lambda queue, waiting: queue.pod_added(info("p")), id="a new pod"),
        pytest.param(
            lambda queue, waiting: queue.move_all_to_active_or_backoff_queue(NODE_ADD),
            id="a pod that enters backoff",
        ),
        pytest.param(
            lambda queue, waiting: queue.activate([waiting.pod]), id="a pod that is activated"
        ),
    ],
)
async def test_waiting_pop_is_woken_by(
    wake: Callable[[WatchedQueue, QueuedPodInfo], None],
) -> None:
    queue = make_queue()
    queue.pod_added(info("waiting"))
    waiting = await pop(queue)
    queue.add_unschedulable_if_not_present(waiting, FIT)
    async with asyncio.timeout(1), asyncio.TaskGroup() as tasks:
        popped = tasks.create_task(queue.pop())
        await asyncio.sleep(0.5)
        assert not popped.done()
        wake(queue, waiting)
    assert popped.result() is not None


async def test_pop_waits_for_the_error_backoff() -> None:
    loop = asyncio.get_running_loop()
    queue = make_queue(loop.time)
    queue.pod_added(info("p"))
    queue.add_unschedulable_if_not_present(await pop(queue))
    async with asyncio.TaskGroup() as tasks:
        popped = tasks.create_task(queue.pop())
        while not popped.done():
            await asyncio.sleep(1)
            queue.flush_backoff_completed()
            await asyncio.sleep(0)
    assert loop.time() == 2.0


async def test_close_ends_every_waiting_pop() -> None:
    queue = make_queue()
    async with asyncio.TaskGroup() as tasks:
        pops = [tasks.create_task(queue.pop()) for _ in range(3)]
        await asyncio.sleep(1)
        queue.close()
    assert [popped.result() for popped in pops] == [None, None, None]
    assert await queue.pop() is None


async def test_cancelled_pop_takes_no_pod() -> None:
    queue = make_queue()
    async with asyncio.TaskGroup() as tasks:
        popped = tasks.create_task(queue.pop())
        await asyncio.sleep(1)
        queue.pod_added(info("p"))
        popped.cancel()
    assert queue.statistics().active == 1


async def test_two_consumers_never_get_the_same_pod() -> None:
    queue = make_queue()
    async with asyncio.TaskGroup() as tasks:
        pops = [tasks.create_task(queue.pop()) for _ in range(2)]
        await asyncio.sleep(1)
        queue.pod_added(info("a"))
        queue.pod_added(info("b"))
    assert {queued.pod.name for popped in pops if (queued := popped.result())} == {"a", "b"}


# -- work done, counted ---------------------------------------------------------------------------


async def stuck(queue: WatchedQueue, pods: int, plugins: frozenset[str] = FIT) -> None:
    for number in range(pods):
        queue.pod_added(info(f"p{number}"))
    for _ in range(pods):
        queue.add_unschedulable_if_not_present(await pop(queue), plugins)


async def test_ten_thousand_twins_cost_one_hint_call_an_event() -> None:
    calls = 0

    def hint(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        nonlocal calls
        calls += 1
        return QueueingHint.QUEUE if new == "big" else QueueingHint.SKIP

    registered = ClusterEventWithHint(ASSIGNED_POD_DELETE, hint, per_pod=False)
    queue = make_queue(hints=[("Fit", registered)])
    await stuck(queue, 10_000)
    queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE, "old", "small")
    assert (calls, queue.statistics().unschedulable) == (1, 10_000)
    queue.move_all_to_active_or_backoff_queue(NODE_DELETE)
    assert calls == 1
    queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE, "old", "big")
    for _ in range(10_000 // SLICE):
        queue.continue_wake_ups()
    assert (calls, queue.statistics().backoff) == (2, 10_000)


async def test_groups_of_other_plugins_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    label = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
    hints = [("Fit", ClusterEventWithHint(NODE_ADD)), ("Affinity", ClusterEventWithHint(label))]
    queue = make_queue(hints=hints)
    await stuck(queue, 50)
    looked_at = []
    ask = queue._hints.pods_worth_requeuing

    def look(group: Any, *rest: Any) -> Any:
        looked_at.append(group)
        return ask(group, *rest)

    monkeypatch.setattr(
        queue._hints,
        "pods_worth_requeuing",
        look,
    )
    queue.move_all_to_active_or_backoff_queue(label)
    assert looked_at == []
    queue.move_all_to_active_or_backoff_queue(NODE_ADD)
    assert len(looked_at) == 1


async def test_new_pod_is_popped_before_any_number_of_pods_in_backoff() -> None:
    queue = make_queue()
    await stuck(queue, 1000)
    queue.move_all_to_active_or_backoff_queue(NODE_ADD)
    for _ in range(1000 // SLICE):
        queue.continue_wake_ups()
    assert queue.statistics().backoff == 1000
    queue.pod_added(info(make_pod("fresh").priority(-1)))
    assert (await pop(queue)).pod.name == "fresh"


async def test_rejected_again_a_pod_popped_early_waits_for_the_next_event() -> None:
    queue = make_queue()
    await stuck(queue, 3)
    queue.move_all_to_active_or_backoff_queue(NODE_ADD)
    for _ in range(3):
        queue.add_unschedulable_if_not_present(await pop(queue), FIT)
    assert queue.statistics().unschedulable == 3


# -- attempts -------------------------------------------------------------------------------------


async def test_update_does_not_change_the_pod_under_a_running_attempt() -> None:
    queue = make_queue()
    queue.pod_added(info("p"))
    queued = await pop(queue)
    before = queued.pod
    newer = info(make_pod("p").label(app="web"))
    queue.pod_modified(newer)
    assert queued.pod is before
    queue.add_unschedulable_if_not_present(queued, FIT)
    assert queued.pod is newer


async def test_an_update_in_flight_is_replayed() -> None:
    queue = make_queue(hints=registrations([type("Fit", (), {"name": "Fit", "filter": None})()]))
    queue.pod_added(info("p"))
    queued = await pop(queue)
    queue.pod_modified(info(make_pod("p").label(app="web")))
    assert queue.add_unschedulable_if_not_present(queued, FIT) is Place.BACKOFF
    assert queued.pod.labels == {"app": "web"}


async def test_a_pod_that_is_not_pending_any_more_does_not_come_back() -> None:
    queue = make_queue()
    queue.pod_added(info("p"))
    queued = await pop(queue)
    queue.done(queued.uid)
    queue.pod_deleted(queued.uid)
    assert queue.add_unschedulable_if_not_present(queued) is Place.ABSENT
    assert queue.get(queued.uid) is None


async def test_late_failure_of_an_older_attempt_does_not_end_the_running_one() -> None:
    queue = make_queue()
    queue.pod_added(info("p"))
    older = await pop(queue)
    queue.done(older.uid)
    queue.pod_modified(info("p"))
    running = await pop(queue)
    assert running is not older
    assert queue.add_unschedulable_if_not_present(older) is Place.IN_FLIGHT
    assert queue.get(running.uid) is running


async def test_pod_deleted_and_seen_again_in_flight_comes_back() -> None:
    queue = make_queue()
    queue.pod_added(info("p"))
    queued = await pop(queue)
    queue.pod_deleted(queued.uid)
    queue.pod_added(info("p"))
    assert queue.add_unschedulable_if_not_present(queued, FIT) is not Place.ABSENT


# -- gates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [unschedulable("no"), error("broken")], ids=["rejects", "reports an error"]
)
def test_pre_enqueue_gates_when_it(answer: Status) -> None:
    queue = make_queue(pre_enqueue=lambda pod: answer)
    queue.pod_added(info("p"))
    assert queue.place_of(info("p").uid) is Place.GATED


def test_pre_enqueue_that_raises_gates_and_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def pre_enqueue(pod: PodInfo) -> Status:
        raise ZeroDivisionError

    queue = make_queue(pre_enqueue=pre_enqueue)
    with caplog.at_level(logging.ERROR):
        queue.pod_added(info("a"))
        queue.pod_added(info("b"))
    assert queue.statistics().gated == 2
    assert [record.__dict__["plugin"] for record in caplog.records] == ["Gate"]


def test_gated_pod_is_asked_again_once_in_the_longest_wait() -> None:
    time, asked = Time(), []

    def pre_enqueue(pod: PodInfo) -> Status:
        asked.append(time.now)
        return unschedulable("closed")

    queue = make_queue(time, pre_enqueue=pre_enqueue, pod_max_in_unschedulable_seconds=60)
    queue.pod_added(info("p"))
    for _ in range(10):
        time.now += 30
        queue.flush_unschedulable_leftover()
    assert asked == [0, 90, 180, 270]


def test_nomination_of_a_gated_pod_waits_until_it_is_told_again() -> None:
    queue = make_queue(pre_enqueue=lambda pod: SUCCESS if pod.labels else unschedulable("closed"))
    queue.pod_added(info(make_pod("p").nominated("n1")))
    assert queue.nominator.nominated_pods_for_node("n1") == []
    queue.pod_modified(info(make_pod("p").nominated("n1").label(app="web")))
    assert len(queue.nominator.nominated_pods_for_node("n1")) == 1


# -- one door -------------------------------------------------------------------------------------


async def test_impossible_move_stops_with_the_story_and_changes_nothing() -> None:
    queue = make_queue()
    queue.pod_added(info("web-0"))
    queued = await pop(queue)
    queue.add_unschedulable_if_not_present(queued, FIT)
    with pytest.raises(InvalidTransition) as raised:
        queue._move(queued, Place.UNSCHEDULABLE, "test")
    assert isinstance(raised.value, InvariantBroken)
    assert str(raised.value).splitlines() == [
        "pod default/web-0: no transition from unschedulable to unschedulable; its story:",
        "      0.000  absent -> active  (UnschedulablePodAdd)",
        "      0.000  active -> in flight  (PodPopped)",
        "      0.000  in flight -> unschedulable  (ScheduleAttemptFailure: Fit)",
    ]
    assert queue.statistics().unschedulable == 1


def test_story_is_a_ring() -> None:
    log = TransitionLog(length=2)
    queue = make_queue()
    queue._log = log
    for name in "abc":
        queue.pod_added(info(name))
    assert queue.story(info("a").uid) == []
    assert len(queue.story(info("c").uid)) == 1


async def test_observer_is_told_every_move() -> None:
    class Recorder:
        moves: list[tuple[str, Place, Place]] = []  # noqa: RUF012

        def moved(self, cause: str, source: Place, target: Place) -> None:
            self.moves.append((cause, source, target))

    queue = make_queue(observer=Recorder())
    queue.pod_added(info("p"))
    queue.add_unschedulable_if_not_present(await pop(queue), FIT)
    queue.move_all_to_active_or_backoff_queue(NODE_ADD)
    await pop(queue)
    assert Recorder.moves == [
        ("UnschedulablePodAdd", Place.ABSENT, Place.ACTIVE),
        ("PodPopped", Place.ACTIVE, Place.IN_FLIGHT),
        ("ScheduleAttemptFailure", Place.IN_FLIGHT, Place.UNSCHEDULABLE),
        ("NodeAdd", Place.UNSCHEDULABLE, Place.BACKOFF),
        ("PopFromBackoffQ", Place.BACKOFF, Place.IN_FLIGHT),
    ]


@pytest.mark.parametrize("flush", ["flush_backoff_completed", "flush_unschedulable_leftover"])
async def test_flushes_move_a_slice_at_a_time(flush: str) -> None:
    time = Time()
    queue = make_queue(time)
    await stuck(queue, 2 * SLICE + 1)
    if flush == "flush_backoff_completed":
        queue.move_all_to_active_or_backoff_queue(NODE_ADD)
        queue.continue_wake_ups()
        queue.continue_wake_ups()
    time.now = 100.0
    left = []
    is_more = True
    while is_more:
        is_more = getattr(queue, flush)()
        left.append(2 * SLICE + 1 - queue.statistics().active)
    assert left == [SLICE + 1, 1, 0]


# -- groups ---------------------------------------------------------------------------------------


async def test_siblings_are_taken_from_wherever_they_wait() -> None:
    is_gated = {"gated"}
    queue = make_queue(
        pre_enqueue=lambda pod: unschedulable("gate") if pod.name in is_gated else SUCCESS
    )
    for name in ("rejected", "failed", "gated", "leader", "ready"):
        queue.pod_added(info(name))
    for _ in range(2):
        queued = await pop(queue)
        plugins = FIT if queued.pod.name == "rejected" else frozenset[str]()
        queue.add_unschedulable_if_not_present(queued, plugins)
    leader = await pop(queue)
    siblings = [make_pod(name).obj().metadata.uid for name in ("rejected", "failed", "ready")]
    gated = make_pod("gated").obj().metadata.uid
    taken = queue.take(leader, [leader.uid, *siblings, gated, "unknown"])
    assert [queued.pod.name for queued in taken] == ["rejected", "failed", "ready"]
    assert [queued.attempts for queued in taken] == [2, 2, 1]
    assert queue.place_of(gated) is Place.GATED
    assert [queue.story(uid)[-1].cause for uid in siblings] == ["PodGroupPopped"] * 3
    is_gated.clear()
    assert [queued.pod.name for queued in queue.take(leader, [gated])] == ["gated"]
    assert not taken[0].is_gated


async def test_a_group_has_one_early_attempt_whoever_was_popped() -> None:
    time = Time()
    queue = make_queue(time)
    for name in ("a", "b"):
        queue.pod_added(info(name))
    group = [await pop(queue), await pop(queue)]
    for queued in group:
        queue.add_unschedulable_if_not_present(queued, FIT)
    queue.move_all_to_active_or_backoff_queue(NODE_ADD)
    leader = await pop(queue)
    [sibling] = queue.take(leader, [one.uid for one in group])
    for queued in (leader, sibling):
        queue.add_unschedulable_if_not_present(queued, FIT)
    queue.move_all_to_active_or_backoff_queue(NODE_ADD)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await queue.pop()


async def test_a_pod_that_was_taken_and_not_tried_is_next_by_itself() -> None:
    time = Time()
    queue = make_queue(time)
    for name in ("leader", "extra", "deleted"):
        queue.pod_added(info(name))
    leader = await pop(queue)
    extra, deleted = queue.take(
        leader, [make_pod(name).obj().metadata.uid for name in ("extra", "deleted")]
    )
    time.now = 5.0
    queue.pod_deleted(deleted.uid)
    queue.put_back(extra)
    queue.put_back(deleted)
    assert (extra.attempts, extra.timestamp) == (0, 5.0)
    assert queue.place_of(extra.uid) is Place.ACTIVE
    assert queue.place_of(deleted.uid) is Place.ABSENT
    queue.put_back(deleted)


async def test_a_paused_queue_returns_nobody() -> None:
    queue = make_queue()
    queue.pod_added(info("a"))
    queue.pause()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await queue.pop()
    queue.resume()
    assert (await pop(queue)).pod.name == "a"
    queue.pause()
    queue.close()
    assert await queue.pop() is None

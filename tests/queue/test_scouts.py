"""One pod is tried for all that are judged alike, and none of them is forgotten."""

from __future__ import annotations

import random
from collections import Counter
from math import floor

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import ClusterEventWithHint, QueuedPodInfo, QueueingHint
from ksched.framework.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, WILDCARD
from ksched.queue import Place, wake_ups
from ksched.testing.builders import make_pod
from lab.watched_queue import WatchedQueue

PROFILE = "default-scheduler"
FIT = frozenset(["Fit"])


def yes(pod: PodInfo, old: object, new: object) -> QueueingHint:
    return QueueingHint.QUEUE


class Room:
    """A queue of pods that need one to three units of room; larger ones are more important."""

    def __init__(self, *, alike: bool = True, backoff_seconds: float = 0) -> None:
        self.time = 0.0
        self.free = 0
        self.attempts = 0
        self.alike = alike
        self.placed: list[str] = []
        self.templates = TemplateRegistry(ResourceAxis())
        hints = [
            ("Fit", ClusterEventWithHint(NODE_ADD, yes, per_pod=False)),
            ("Fit", ClusterEventWithHint(ASSIGNED_POD_DELETE, yes, per_pod=True)),
        ]
        self.queue = WatchedQueue(
            now=lambda: self.time,
            sort_key=lambda queued: (-queued.pod.priority, queued.timestamp),
            pre_enqueue={},
            hints={PROFILE: hints},
            pod_initial_backoff_seconds=backoff_seconds,
        )

    def add(self, name: str, size: int = 1) -> None:
        self.time += 0.25
        self.queue.pod_added(self.templates.pod_info(make_pod(name).priority(size).obj()))

    def delete(self, name: str) -> None:
        self.queue.pod_deleted(make_pod(name).obj().metadata.uid)

    def grow(self, units: int) -> None:
        self.time += 0.25
        self.free += units
        self.queue.move_all_to_active_or_backoff_queue(NODE_ADD)

    def pop(self) -> QueuedPodInfo:
        pop = self.queue.pop()
        pop.send(None)
        with pytest.raises(StopIteration) as returned:
            pop.send(None)
        queued = returned.value.value
        assert isinstance(queued, QueuedPodInfo)
        self.time += 0.25
        return queued

    def reject(self, queued: QueuedPodInfo) -> None:
        self.queue.add_unschedulable_if_not_present(queued, FIT, is_judged_alike=self.alike)

    def drain(self) -> None:
        """Try pods as long as one is ready."""
        self.queue.continue_wake_ups()
        while self.queue.statistics().active:
            self.decide(self.pop())
            self.queue.continue_wake_ups()

    def drain_early(self) -> None:
        """The same, with pods that are popped before their backoff is over."""
        while True:
            self.queue.continue_wake_ups()
            self.queue.flush_backoff_completed()
            backing_off = self.queue.pending_pods()[Place.BACKOFF]
            can_be_early = any(queued.owed_until < floor(self.time) for queued in backing_off)
            if not (self.queue.statistics().active or can_be_early):
                return
            self.decide(self.pop())

    def decide(self, queued: QueuedPodInfo) -> None:
        self.attempts += 1
        if queued.pod.priority <= self.free:
            self.free -= queued.pod.priority
            self.placed.append(queued.pod.name)
            self.queue.done(queued.uid)
            self.queue.pod_deleted(queued.uid)
        else:
            self.reject(queued)

    def names(self, place: Place) -> list[str]:
        return [queued.pod.name for queued in self.queue.pending_pods()[place]]

    def waiting_by_size(self) -> Counter[int]:
        pods = self.queue.pending_pods()[Place.UNSCHEDULABLE]
        return Counter(queued.pod.priority for queued in pods)


def waiting(count: int, *, backoff_seconds: float = 0) -> Room:
    room = Room(backoff_seconds=backoff_seconds)
    for number in range(count):
        room.add(f"p{number}")
    room.drain()
    assert room.names(Place.ACTIVE) == []
    return room


def test_an_event_wakes_one_and_the_others_stay_if_it_returns() -> None:
    room = waiting(5)
    room.grow(0)
    assert room.names(Place.ACTIVE) == ["p0"]
    room.drain()
    assert room.names(Place.UNSCHEDULABLE) == ["p1", "p2", "p3", "p4", "p0"]
    assert room.attempts == 5 + 1


@pytest.mark.parametrize("count", [5, 50])
def test_as_many_are_tried_as_fit_and_one_more(count: int) -> None:
    room = waiting(count)
    room.grow(3)
    room.drain()
    assert room.placed == ["p0", "p1", "p2"]
    assert room.attempts == count + 3 + 1


def test_events_while_the_scout_is_ready_wake_no_other() -> None:
    room = waiting(5)
    for _ in range(3):
        room.grow(0)
    assert room.names(Place.ACTIVE) == ["p0"]


def test_an_event_during_the_attempt_of_the_scout_wakes_the_next() -> None:
    room = waiting(5)
    room.grow(0)
    scout = room.pop()
    room.grow(0)
    assert room.names(Place.ACTIVE) == ["p1"]
    room.reject(scout)
    assert room.names(Place.ACTIVE) == ["p1", "p0"], "p0 did not see the second event"


def test_a_scout_that_is_deleted_is_replaced() -> None:
    room = waiting(3)
    room.grow(1)
    room.delete("p0")
    room.drain()
    assert room.placed == ["p1"]


def test_a_scout_that_is_deleted_while_it_is_tried_is_replaced() -> None:
    room = waiting(3)
    room.grow(1)
    scout = room.pop()
    room.delete("p0")
    room.reject(scout)
    room.drain()
    assert room.placed == ["p1"]


def test_a_scout_that_is_rejected_otherwise_says_nothing_about_the_others() -> None:
    room = waiting(3)
    room.grow(1)
    other = frozenset(["Other"])
    room.queue.add_unschedulable_if_not_present(room.pop(), other, is_judged_alike=True)
    room.drain()
    assert room.placed == ["p1"]


def test_a_scout_that_is_nominated_says_nothing_about_the_others() -> None:
    room = waiting(3)
    room.grow(0)
    scout = room.pop()
    room.reject(scout)
    room.queue.nominator.add(scout.pod, "n0")
    assert room.pop().pod.name == "p1"


def test_pods_with_a_nomination_are_woken_beside_the_scout() -> None:
    room = waiting(3)
    queued = room.queue.get(make_pod("p0").obj().metadata.uid)
    assert queued is not None
    room.queue.nominator.add(queued.pod, "n0")
    room.grow(0)
    assert room.names(Place.ACTIVE) == ["p0", "p1"]


def test_of_pods_that_back_off_one_is_woken() -> None:
    room = waiting(3, backoff_seconds=1)
    room.grow(0)
    assert room.names(Place.BACKOFF) == ["p0"]
    room.grow(0)
    assert room.names(Place.BACKOFF) == ["p0"]
    room.time += 10
    room.queue.flush_backoff_completed()
    assert room.names(Place.ACTIVE) == ["p0"]
    room.drain()
    assert room.names(Place.UNSCHEDULABLE) == ["p1", "p2", "p0"]


def test_the_pod_that_can_be_tried_first_is_the_scout() -> None:
    room = waiting(3, backoff_seconds=8)
    room.grow(0)
    room.drain_early()
    room.time += 9
    # p0 was tried twice and is the last to be tried again, p1 and p2 can be at once.
    room.grow(0)
    assert room.names(Place.ACTIVE) == ["p1"]
    room.drain()
    room.grow(0)
    assert room.names(Place.ACTIVE) == ["p2"]


def test_a_scout_that_backs_off_gives_way_to_a_pod_that_can_be_tried_sooner() -> None:
    room = waiting(1, backoff_seconds=8)
    room.grow(0)
    room.drain_early()
    room.grow(0)
    room.drain_early()
    assert room.names(Place.BACKOFF) == ["p0"], "it is ahead of its schedule"
    room.add("p1")
    room.drain()
    room.time += 9
    room.grow(1)
    assert room.names(Place.ACTIVE) == ["p1"]
    room.drain()
    assert room.placed == ["p1"]


def test_a_scout_that_was_one_of_another_group_stays_the_scout() -> None:
    room = Room(backoff_seconds=8)
    for name, size in (("small-0", 1), ("small-1", 1), ("late", 2)):
        room.add(name, size)
    room.drain()
    room.time += 9
    for _ in range(2):
        room.grow(0)
        room.drain_early()
    room.add("changing", 2)
    room.drain()
    room.time += 9
    room.grow(0)
    # The scout of the large joins the small; of the large one has been tried since.
    smaller = make_pod("changing").priority(1).obj()
    room.queue.pod_modified(room.templates.pod_info(smaller))
    for name, size in (("large", 2), ("small-2", 1)):
        room.add(name, size)
        room.drain()
    room.delete("small-1")
    room.delete("small-0")
    room.time += 10
    room.grow(6)
    room.drain()
    assert room.names(Place.UNSCHEDULABLE) == []
    assert room.free == 0


@pytest.mark.parametrize("count", [10, 50])
def test_of_pods_that_back_off_one_fails_for_each_event(count: int) -> None:
    room = waiting(count, backoff_seconds=60)
    before = room.attempts
    for _ in range(3):
        room.grow(1)
        room.drain_early()
    assert len(room.placed) == 3
    assert room.attempts - before == 2 * 3


def test_a_relabelled_pod_is_judged_by_itself() -> None:
    room = waiting(3)
    relabelled = make_pod("p0").priority(1).label(app="other").obj()
    room.queue.pod_modified(room.templates.pod_info(relabelled))
    room.grow(0)
    assert sorted(room.names(Place.ACTIVE)) == ["p0", "p1"]


def test_what_is_judged_for_each_pod_wakes_all() -> None:
    room = waiting(3)
    room.queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE)
    assert room.names(Place.ACTIVE) == ["p0", "p1", "p2"]


def test_an_event_for_everything_wakes_all() -> None:
    room = waiting(3)
    room.queue.move_all_to_active_or_backoff_queue(WILDCARD)
    assert room.names(Place.ACTIVE) == ["p0", "p1", "p2"]


def test_an_event_for_some_pods_wakes_all_of_these() -> None:
    room = waiting(3)
    room.queue.move_all_to_active_or_backoff_queue(NODE_ADD, pre_check=lambda pod: pod.name != "p0")
    assert room.names(Place.ACTIVE) == ["p1", "p2"]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_room_is_taken_as_if_all_were_woken(seed: int) -> None:
    rng = random.Random(seed)
    rooms = [Room(alike=True), Room(alike=False)]
    for number in range(200):
        step, size, units = rng.choice("aaaaggd"), rng.choice([1, 2, 3]), rng.randrange(4)
        is_cut = rng.random() < 0.3
        for room in rooms:
            pods = room.queue.pending_pods()[Place.UNSCHEDULABLE]
            of_size = [queued.pod.name for queued in pods if queued.pod.priority == size]
            if step == "a":
                room.add(f"p{number}", size)
            elif step == "g":
                room.grow(units)
                if of_size and is_cut:
                    room.delete(of_size[0])
            elif of_size:
                room.delete(of_size[-1])
            room.drain()
        one, other = rooms
        assert one.free == other.free
        assert one.waiting_by_size() == other.waiting_by_size()
    assert rooms[0].attempts < rooms[1].attempts


def test_a_nominated_pod_is_woken_by_itself_behind_a_scout_that_returns() -> None:
    """What rejects the others may be its nomination."""
    room = Room()
    for number in range(3):
        room.add(f"p{number}")
    tried = [room.pop() for _ in range(3)]
    room.queue.nominator.add(tried[2].pod, "n0")
    for queued in tried:
        room.reject(queued)
    room.grow(0)
    assert sorted(room.names(Place.ACTIVE)) == ["p0", "p2"]


def test_a_pod_that_is_nominated_while_it_waits_is_woken_by_itself() -> None:
    room = waiting(3)
    nominated = make_pod("p2").priority(1).nominated("n0").obj()
    room.queue.pod_modified(room.templates.pod_info(nominated))
    room.grow(0)
    assert sorted(room.names(Place.ACTIVE)) == ["p0", "p2"]


@pytest.mark.parametrize("free", [0, 3])
def test_slices_that_end_at_a_scout_wake_no_pod_too_many(
    free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_ups, "PODS_PER_SLICE", 1)
    room = waiting(20)
    before = room.attempts
    room.grow(free)
    room.drain()
    assert len(room.placed) == free
    assert room.attempts - before == free + 1


@pytest.mark.parametrize("seed", range(20))
def test_no_pod_that_fits_is_left_behind(seed: int) -> None:
    """With backoffs and early attempts: what has room is placed when all backoffs are over."""
    rng = random.Random(seed)
    room = Room(backoff_seconds=1)
    for number in range(150):
        step, size = rng.choice("aaaggdt"), rng.choice([1, 2, 3])
        if step == "a":
            room.add(f"p{number}", size)
        elif step == "g":
            room.grow(rng.randrange(4))
        elif step == "t":
            room.time += rng.random() * 6
        else:
            pods = [*room.queue.pending_pods()[rng.choice([Place.UNSCHEDULABLE, Place.BACKOFF])]]
            if pods:
                room.delete(rng.choice(pods).pod.name)
        if rng.random() < 0.7:
            room.drain_early()
    for _ in range(60):
        room.time += 1
        room.drain_early()
    left = [queued for pods in room.queue.pending_pods().values() for queued in pods]
    assert room.free < min((queued.pod.priority for queued in left), default=99)

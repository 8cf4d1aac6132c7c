"""Wake-ups in slices: every pod that waited is asked about, and no other.

Slices of one step here, so that everything can happen between two of them. How a whole walk with
sliced wake-ups ends is compared in ``test_against_model``.
"""

from __future__ import annotations

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueuedPodInfo,
    QueueingHint,
    Resource,
    Status,
    unschedulable,
)
from ksched.framework.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD
from ksched.framework.time_slices import SLICE_SECONDS
from ksched.queue import Place, wake_ups
from ksched.queue.unschedulable import SCOUTS
from ksched.testing.builders import make_pod
from lab.watched_queue import WatchedQueue

PROFILE = "default-scheduler"
OWN_LABEL = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)


class Waiting:
    """A queue in which pods of different apps wait, and a hint that believes in an app."""

    def __init__(self, *apps: str) -> None:
        self.time = 0.0
        self.templates = TemplateRegistry(ResourceAxis())
        self.asked: list[str] = []
        self.seconds_per_hint = 0.0
        hints = [
            ("Fit", ClusterEventWithHint(NODE_ADD, self.hint, per_pod=False)),
            ("Fit", ClusterEventWithHint(ASSIGNED_POD_DELETE, self.hint, per_pod=True)),
        ]
        self.queue = WatchedQueue(
            now=lambda: self.time,
            sort_key=lambda queued: queued.timestamp,
            pre_enqueue={},
            hints={PROFILE: hints},
        )
        for number, app in enumerate(apps):
            self.queue.pod_added(self.info(f"p{number}", app))
        for _ in apps:
            self.reject(self.pop())

    def hint(self, pod: PodInfo, old: object, new: object) -> QueueingHint:
        self.asked.append(pod.name)
        self.time += self.seconds_per_hint
        is_wanted = new == "all" or pod.labels["app"] == new
        return QueueingHint.QUEUE if is_wanted else QueueingHint.SKIP

    def info(self, name: str, app: str) -> PodInfo:
        return self.templates.pod_info(make_pod(name).label(app=app).obj())

    def pop(self) -> QueuedPodInfo:
        pop = self.queue.pop()
        pop.send(None)
        with pytest.raises(StopIteration) as returned:
            pop.send(None)
        queued = returned.value.value
        assert isinstance(queued, QueuedPodInfo)
        return queued

    def reject(self, queued: QueuedPodInfo) -> None:
        self.time += 0.25
        self.queue.add_unschedulable_if_not_present(queued, frozenset(["Fit"]))

    def event(self, new: str, event: ClusterEvent = NODE_ADD) -> None:
        self.time += 0.25
        self.queue.move_all_to_active_or_backoff_queue(event, None, new)

    def finish(self) -> None:
        for _ in range(1000):
            self.queue.continue_wake_ups()

    def place(self, name: str) -> Place:
        return self.queue.place_of(make_pod(name).obj().metadata.uid)

    def still_waiting(self) -> set[str]:
        return {queued.pod.name for queued in self.queue.pending_pods()[Place.UNSCHEDULABLE]}


@pytest.fixture(autouse=True)
def _slices_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_ups, "PODS_PER_SLICE", 1)


@pytest.mark.parametrize("event", [NODE_ADD, ASSIGNED_POD_DELETE])
def test_all_that_waited_are_asked_about_in_the_end(event: ClusterEvent) -> None:
    waiting = Waiting("web", "db", "web", "db", "web")
    waiting.event("web", event)
    assert len(waiting.asked) <= 1
    waiting.finish()
    assert waiting.still_waiting() == {"p1", "p3"}


def test_slow_hints_end_a_slice_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_ups, "PODS_PER_SLICE", 100)
    waiting = Waiting(*(f"app{number}" for number in range(5)))
    waiting.seconds_per_hint = 0.75 * SLICE_SECONDS
    waiting.event("none")
    assert len(waiting.asked) == 2
    waiting.finish()
    assert len(waiting.asked) == 5


def test_pods_that_come_to_wait_later_are_not_woken() -> None:
    waiting = Waiting("web", "db")
    waiting.queue.pod_added(waiting.info("in flight", "db"))
    in_flight = waiting.pop()
    waiting.event("all")
    waiting.queue.pod_added(waiting.info("new", "db"))
    new = waiting.pop()
    assert new.pod.name == "new"
    waiting.reject(new)
    waiting.reject(in_flight)
    assert waiting.place("in flight") is Place.BACKOFF
    waiting.finish()
    assert waiting.still_waiting() == {"new"}


def test_a_pod_tried_again_meanwhile_is_not_woken() -> None:
    waiting = Waiting("web", "db")
    waiting.event("all")
    waiting.queue.activate([waiting.info("p1", "db")])
    waiting.reject(waiting.pop())
    waiting.finish()
    assert waiting.place("p1") is Place.UNSCHEDULABLE


def test_a_pod_whose_group_changed_meanwhile_is_asked_about_as_it_is_now() -> None:
    waiting = Waiting("web", "web", "db", "cache")
    waiting.event("web")
    waiting.queue.pod_modified(waiting.info("p1", "db"))
    waiting.queue.pod_modified(waiting.info("p3", "web"))
    waiting.finish()
    # p1 was its group's second: whether it was asked about before its change is a matter of time.
    assert waiting.still_waiting() - {"p1"} == {"p2"}


def test_a_pod_deleted_meanwhile_is_left_out() -> None:
    waiting = Waiting("web", "db", "web")
    waiting.event("all")
    waiting.queue.pod_deleted(make_pod("p2").obj().metadata.uid)
    waiting.finish()
    assert waiting.place("p2") is Place.ABSENT
    assert waiting.still_waiting() == set()


def test_a_pre_check_still_spares_its_pods() -> None:
    waiting = Waiting("web", "db", "web")
    waiting.queue.move_all_to_active_or_backoff_queue(
        NODE_ADD, None, "all", lambda pod: pod.name != "p2"
    )
    waiting.finish()
    assert waiting.still_waiting() == {"p2"}


def test_too_many_unfinished_wake_ups_wake_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_ups, "MAX_UNFINISHED", 3)
    waiting = Waiting(*(f"app-{number}" for number in range(10)))
    for _ in range(3):
        waiting.event("none")
        assert waiting.still_waiting() == {f"p{number}" for number in range(10)}
    waiting.event("none")
    waiting.finish()
    assert waiting.still_waiting() == set()


async def test_pop_goes_on_with_what_is_unfinished() -> None:
    """Nothing is ready: ``pop`` asks until somebody is, and gives way between the slices."""
    waiting = Waiting(*["db"] * 20, "web")
    waiting.time += 100
    waiting.event("web")
    assert waiting.still_waiting() == {f"p{number}" for number in range(21)}
    queued = await waiting.queue.pop()
    assert queued is not None
    assert queued.pod.name == "p20"


# -- pods whose plugin knows which of them can pass -----------------------------------------------


class Held:
    """Pods that a plugin holds back until it has let them go."""

    def __init__(self, pods: int) -> None:
        self.closed = {f"uid:default/p{number}" for number in range(pods)}
        self.released: object = []
        templates = TemplateRegistry(ResourceAxis())
        registered = ClusterEventWithHint(
            ASSIGNED_POD_DELETE,
            lambda pod, old, new: QueueingHint.QUEUE,
            released=lambda: self.released,  # type: ignore[arg-type,return-value]
        )
        self.queue = WatchedQueue(
            now=lambda: 0.0,
            sort_key=lambda queued: queued.timestamp,
            pre_enqueue={PROFILE: [("Gate", self.pre_enqueue)]},
            hints={PROFILE: [("Gate", registered)]},
        )
        for number in range(pods):
            self.queue.pod_added(templates.pod_info(make_pod(f"p{number}").obj()))

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unschedulable("held") if pod.uid in self.closed else SUCCESS

    def delete_another(self) -> int:
        """The number of PreEnqueue calls that a deletion causes."""
        before = self.queue.work.pre_enqueue_calls
        self.queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE, None, None)
        while self.queue._wake_ups.unfinished:
            self.queue.continue_wake_ups()
        return self.queue.work.pre_enqueue_calls - before

    def active(self) -> int:
        return self.queue.statistics().active


@pytest.mark.parametrize("pods", [10, 1000])
def test_an_event_costs_nothing_for_pods_that_are_still_held(pods: int) -> None:
    held = Held(pods)
    assert held.delete_another() == 0
    held.closed.discard("uid:default/p3")
    held.released = ["uid:default/p3", "uid:default/p3", "unknown"]
    assert held.delete_another() == 1
    assert held.active() == 1


@pytest.mark.parametrize("released", [None, 5, ["uid:default/p1", ["no", "uid"]]])
def test_a_plugin_that_does_not_say_who_has_all_its_pods_asked(released: object) -> None:
    held = Held(3)
    held.closed.discard("uid:default/p1")
    held.released = released
    assert held.delete_another() == (1 if isinstance(released, list) else 3)
    assert held.active() == 1


class Wait:
    """What pods wait for together."""

    def __init__(self) -> None:
        self.is_over = False
        self.looks = 0

    def can_end(self) -> bool:
        self.looks += 1
        return self.is_over


def waiting_together(number: int) -> tuple[Waiting, Wait]:
    waiting, wait = Waiting(), Wait()
    for index in range(number):
        waiting.queue.pod_added(waiting.info(f"p{index}", f"app{index}"))
    for _ in range(number):
        queued = waiting.pop()
        waiting.queue.add_unschedulable_if_not_present(queued, frozenset(["Fit"]), shared_wait=wait)
    return waiting, wait


@pytest.mark.parametrize("event", [NODE_ADD, ASSIGNED_POD_DELETE])
def test_of_pods_that_wait_together_a_few_are_woken_if_it_can_help(event: ClusterEvent) -> None:
    waiting, wait = waiting_together(2 * SCOUTS)
    waiting.event("none", event)
    waiting.finish()
    assert (waiting.asked, wait.looks) == (["p0"], 0)
    waiting.event("all", event)
    waiting.finish()
    assert (waiting.asked, wait.looks) == (["p0", "p0"], 1)
    assert len(waiting.still_waiting()) == 2 * SCOUTS
    wait.is_over = True
    waiting.event("all", event)
    waiting.finish()
    assert waiting.still_waiting() == {f"p{index}" for index in range(SCOUTS, 2 * SCOUTS)}


def test_so_few_that_all_are_woken_are_not_looked_at() -> None:
    waiting, wait = waiting_together(SCOUTS)
    waiting.event("all")
    waiting.finish()
    assert (wait.looks, waiting.still_waiting()) == (0, set())


def test_the_next_are_woken_when_one_of_them_was_decided() -> None:
    waiting, wait = waiting_together(2 * SCOUTS)
    waiting.queue.wake_sharing(Wait())
    waiting.queue.wake_sharing(wait)
    assert len(waiting.still_waiting()) == 2 * SCOUTS
    wait.is_over = True
    waiting.queue.wake_sharing(wait)
    assert len(waiting.still_waiting()) == SCOUTS


def test_a_few_of_them_are_flushed_once() -> None:
    waiting, _ = waiting_together(3 * SCOUTS)
    waiting.time += 61
    while waiting.queue.flush_unschedulable_leftover():
        pass
    assert len(waiting.still_waiting()) == 2 * SCOUTS
    waiting.time += 30
    waiting.queue.flush_unschedulable_leftover()
    assert len(waiting.still_waiting()) == 2 * SCOUTS
    waiting.time += 31
    waiting.queue.flush_unschedulable_leftover()
    assert len(waiting.still_waiting()) == SCOUTS


def test_an_event_in_flight_counts_if_it_can_help() -> None:
    waiting, wait = waiting_together(0)
    for name, place in (("early", Place.UNSCHEDULABLE), ("late", Place.BACKOFF)):
        waiting.queue.pod_added(waiting.info(name, "app"))
        queued = waiting.pop()
        waiting.event("all")
        waiting.queue.add_unschedulable_if_not_present(queued, frozenset(["Fit"]), shared_wait=wait)
        assert waiting.place(name) is place
        wait.is_over = True


def test_a_changed_pod_waits_by_itself() -> None:
    waiting, _ = waiting_together(2 * SCOUTS)
    waiting.queue.pod_modified(waiting.info("p20", "other"))
    waiting.event("other")
    waiting.finish()
    assert waiting.place("p20") is not Place.UNSCHEDULABLE
    assert len(waiting.still_waiting()) == 2 * SCOUTS - 1

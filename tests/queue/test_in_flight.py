from __future__ import annotations

from ksched.cache.interning import ResourceAxis
from ksched.cache.pod_info import TemplateRegistry
from ksched.framework import QueuedPodInfo
from ksched.framework.cluster_events import NODE_ADD, WILDCARD
from ksched.queue.in_flight import Attempt, InFlight, SeenEvent
from ksched.testing.builders import make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())


def take_off(in_flight: InFlight, name: str) -> Attempt:
    queued = QueuedPodInfo(TEMPLATES.pod_info(make_pod(name).obj()), 0.0)
    in_flight.add(queued)
    attempt = in_flight.get(queued.uid)
    assert attempt is not None
    return attempt


def see(in_flight: InFlight, *numbers: int) -> None:
    for number in numbers:
        in_flight.record(SeenEvent(NODE_ADD, None, number))


def seen_by(in_flight: InFlight, attempt: Attempt) -> list[int]:
    return [seen.new for seen in in_flight.events_since(attempt)]


def test_each_pod_sees_the_events_since_its_own_pop_in_order() -> None:
    in_flight = InFlight()
    early = take_off(in_flight, "early")
    see(in_flight, 1, 2)
    late = take_off(in_flight, "late")
    see(in_flight, 3)
    assert seen_by(in_flight, early) == [1, 2, 3]
    assert seen_by(in_flight, late) == [3]


def test_events_leave_with_the_oldest_pod_that_needs_them() -> None:
    in_flight = InFlight()
    see(in_flight, 0)
    assert in_flight.event_count == 0
    first = take_off(in_flight, "first")
    see(in_flight, 1)
    second = take_off(in_flight, "second")
    see(in_flight, 2)
    third = take_off(in_flight, "third")
    see(in_flight, 3)
    in_flight.remove(second.queued.uid)
    assert in_flight.event_count == 3
    in_flight.remove(first.queued.uid)
    assert in_flight.event_count == 1
    assert seen_by(in_flight, third) == [3]
    in_flight.remove(third.queued.uid)
    assert in_flight.event_count == 0


def test_event_for_one_pod_is_seen_by_that_pod_only() -> None:
    in_flight = InFlight()
    one, other = take_off(in_flight, "one"), take_off(in_flight, "other")
    in_flight.record(SeenEvent(NODE_ADD, None, 1, only=one.queued.uid))
    assert seen_by(in_flight, one) == [1]
    assert seen_by(in_flight, other) == []


def test_full_log_turns_what_it_drops_into_a_wake_up() -> None:
    in_flight = InFlight(max_events=3)
    held = take_off(in_flight, "held")
    see(in_flight, 1, 2)
    late = take_off(in_flight, "late")
    see(in_flight, 3, 4, 5)
    assert in_flight.event_count == 3
    assert in_flight.events_since(held)[0].event is WILDCARD
    assert seen_by(in_flight, held) == [None, 3, 4, 5]
    assert seen_by(in_flight, late) == [3, 4, 5], "late lost nothing"
    in_flight.remove(held.queued.uid)
    assert seen_by(in_flight, late) == [3, 4, 5]
    in_flight.remove(late.queued.uid)
    fresh = take_off(in_flight, "fresh")
    see(in_flight, 6)
    assert seen_by(in_flight, fresh) == [6]

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from ksched.cache.pod_info import TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import QueuedPodInfo
from ksched.framework.cluster_events import NODE_ADD, NODE_DELETE, WILDCARD, ClusterEvent
from ksched.queue.in_flight import MAX_REPLAYED, Attempt, InFlight, SeenEvent
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
    return [seen.new for seen in in_flight.events_since(attempt, lambda event: True)]


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
    assert in_flight.events_since(held, lambda event: True)[0].event is WILDCARD
    assert seen_by(in_flight, held) == [None, 3, 4, 5]
    assert seen_by(in_flight, late) == [3, 4, 5], "late lost nothing"
    in_flight.remove(held.queued.uid)
    assert seen_by(in_flight, late) == [3, 4, 5]
    in_flight.remove(late.queued.uid)
    fresh = take_off(in_flight, "fresh")
    see(in_flight, 6)
    assert seen_by(in_flight, fresh) == [6]


def test_of_many_events_only_the_wanted_kinds_and_the_own_ones_are_seen() -> None:
    in_flight = InFlight()
    held, other = take_off(in_flight, "held"), take_off(in_flight, "other")
    for number in range(300):
        event = NODE_ADD if number % 100 == 0 else NODE_DELETE
        in_flight.record(SeenEvent(event, None, number))
    in_flight.record(SeenEvent(NODE_DELETE, None, 300, only=other.queued.uid))
    in_flight.record(SeenEvent(NODE_DELETE, None, 301, only=held.queued.uid))

    def wanted(attempt: Attempt) -> list[int]:
        found = in_flight.events_since(attempt, lambda event: event is NODE_ADD)
        return [seen.new for seen in found]

    assert wanted(held) == [0, 100, 200, 301]
    late = take_off(in_flight, "late")
    see(in_flight, *range(400, 500))
    assert wanted(held) == [0, 100, 200, 301, *range(400, 500)]
    assert wanted(late) == [*range(400, 500)]
    in_flight.remove(held.queued.uid)
    in_flight.remove(other.queued.uid)
    see(in_flight, 500)
    assert wanted(late) == [*range(400, 501)]


def test_more_events_than_are_replayed_are_a_wake_up() -> None:
    in_flight = InFlight()
    held = take_off(in_flight, "held")
    see(in_flight, *range(MAX_REPLAYED))
    assert seen_by(in_flight, held) == [*range(MAX_REPLAYED)]
    see(in_flight, MAX_REPLAYED)
    assert seen_by(in_flight, held) == [None, *range(1, MAX_REPLAYED + 1)]


@given(st.data())
def test_the_index_finds_what_a_walk_would(data: st.DataObject) -> None:
    in_flight = InFlight(max_events=data.draw(st.integers(60, 200)))
    attempts: list[Attempt] = []
    walk: list[tuple[int, ClusterEvent, str]] = []
    starts: dict[str, int] = {}
    for step in range(data.draw(st.integers(1, 12))):
        if not attempts or data.draw(st.booleans()):
            attempts.append(take_off(in_flight, f"pod{step}"))
            starts[attempts[-1].queued.uid] = len(walk)
        for _ in range(data.draw(st.integers(0, 90))):
            event = data.draw(st.sampled_from((NODE_ADD, NODE_DELETE)))
            only = data.draw(st.sampled_from(["", attempts[0].queued.uid]))
            in_flight.record(SeenEvent(event, None, len(walk), only=only or None))
            walk.append((len(walk), event, only))
        if len(attempts) > 1 and data.draw(st.booleans()):
            gone = attempts.pop(data.draw(st.integers(0, len(attempts) - 1)))
            in_flight.remove(gone.queued.uid)
        attempt = data.draw(st.sampled_from(attempts))
        uid = attempt.queued.uid
        found = in_flight.events_since(attempt, lambda event: event is NODE_ADD)
        kept = len(walk) - in_flight.event_count
        first = max(starts[uid], kept)
        wanted = {
            number
            for number, event, only in walk[first:]
            if only == uid or (event is NODE_ADD and not only)
        }
        got = [seen.new for seen in found if seen.new is not None]
        assert got == sorted(got)
        assert wanted <= set(got)
        assert all(walk[number][2] in ("", uid) for number in got)
        assert (found[:1] and found[0].event is WILDCARD) == (found[:1] and starts[uid] < kept)

"""Which states around a decision are tried."""

from __future__ import annotations

import pytest

from ksched.api.objects import Node, ObjectMeta, Pod, PodSpec
from ksched.api.watched_kinds import watched_kind
from ksched.shadow.changes import MAX_HELD, Change, ChangeStream
from ksched.shadow.neighbours import MAX_STATES, neighbours


def pod(name, node=""):
    return Pod(ObjectMeta(name=name, namespace="default", uid=name), PodSpec(node_name=node))


def bind(name, version=0, at=0.0):
    return Change(watched_kind(Pod), pod(name), pod(name, "n1"), version, at)


def relabel(name, value, version=0):
    old, new = (Node(ObjectMeta(name=name, labels={"a": one})) for one in (f"old{value}", value))
    return Change(watched_kind(Node), old, new, version, 0.0)


def tried(before, after, orders=None, own=None):
    def order_of(change):
        return (orders or {}).get(change.new.metadata.name)

    states = neighbours(before, after, order_of, own)
    return [(names(one.without), names(one.ahead)) for one in states]


def names(changes):
    return [one.new.metadata.name for one in changes]


def test_the_order_of_the_queue_is_tried_first():
    """Pods that come later in the queue are not placed yet, earlier ones are."""
    before, after = [bind("a"), bind("d")], [bind("b"), bind("e")]
    orders = {name: (0, number) for number, name in enumerate("abcde")}
    assert tried(before, after, orders, (0, 2))[0] == (["d"], ["b"])


def test_changes_are_taken_back_newest_first_and_with_those_that_build_on_them():
    first, second = relabel("n1", "x"), relabel("n1", "y")
    found = tried([first, bind("a"), second], [])
    assert (["n1"], []) in found
    assert (["n1", "n1"], []) in found
    # Not the first change of n1 without the second.
    assert found.count((["n1"], [])) == 1
    assert found[0] == (["n1"], [])


def test_only_binds_may_be_ahead():
    assert tried([], [relabel("n1", "x"), bind("b")]) == [([], ["b"])]


def test_no_state_is_tried_twice_and_not_too_many():
    before, after = [bind(f"a{n}") for n in range(40)], [bind(f"b{n}") for n in range(40)]
    found = tried(before, after)
    assert len(found) == MAX_STATES
    assert len({(tuple(one), tuple(other)) for one, other in found}) == MAX_STATES


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ([bind("a")], [], "before the bind of default/a"),
        ([], [bind("a")], "after the bind of default/a"),
        ([relabel("n1", "x")], [], "before the update of node n1"),
    ],
)
def test_a_state_says_what_it_lacks_or_has(before, after, text):
    (state,) = neighbours(before, after, lambda _: None, None)
    assert str(state) == text


def test_changes_of_all_kinds_are_ordered_by_version_and_held_back():
    stream = ChangeStream(2.0)
    late, early = bind("late", version=7, at=10.0), bind("early", version=5, at=10.5)
    stream.push(late)
    stream.push(early)
    assert stream.pop(12.0) is None
    assert stream.pop(12.5) is early
    assert stream.pop(12.5) is late
    assert stream.pop(12.5) is None


def test_a_stream_that_is_too_long_holds_nothing_back():
    stream = ChangeStream(2.0)
    for number in range(MAX_HELD + 1):
        stream.push(bind("x", version=number))
    assert stream.is_overflowing
    assert stream.pop(0.0) is not None
    assert stream.pop(0.0) is None


def test_heartbeats_do_not_matter():
    assert not Change(watched_kind(Pod), pod("a", "n1"), pod("a", "n1"), 1, 0.0).matters
    assert bind("a").matters
    assert relabel("n1", "x").matters

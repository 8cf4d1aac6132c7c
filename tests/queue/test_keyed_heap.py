from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ksched.queue.keyed_heap import KeyedHeap


@dataclass
class Member:
    uid: str
    key: int


def make_heap() -> KeyedHeap[Member]:
    return KeyedHeap(lambda member: member.key)


def drain(heap: KeyedHeap[Member]) -> list[str]:
    order = []
    while (member := heap.peek()) is not None:
        order.append(member.uid)
        assert heap.remove(member.uid)
    return order


def test_equals_leave_in_the_order_they_came() -> None:
    heap = make_heap()
    for uid in "dbca":
        heap.add(Member(uid, 1))
    assert drain(heap) == list("dbca")


def test_update_without_a_new_key_keeps_the_place() -> None:
    heap = make_heap()
    first, second = Member("first", 1), Member("second", 1)
    heap.add(first)
    heap.add(second)
    heap.update(first)
    assert drain(heap) == ["first", "second"]


def test_key_is_not_looked_at_between_updates() -> None:
    heap = make_heap()
    members = [Member(str(key), key) for key in range(10)]
    for member in members:
        heap.add(member)
    members[9].key = -1
    heap.add(Member("x", 5))
    assert [member.uid for member in list(heap)][-1] == "9"
    heap.update(members[9])
    assert drain(heap)[0] == "9"


def test_unknown_member_is_not_removed() -> None:
    assert not make_heap().remove("nobody")


def test_forgotten_entries_do_not_pile_up() -> None:
    heap = make_heap()
    heap.add(Member("stays", 0))
    restless = Member("restless", 1)
    heap.add(restless)
    for key in range(10_000):
        restless.key = key + 2
        heap.update(restless)
        heap.add(Member("guest", key))
        heap.remove("guest")
    assert len(heap) == 2
    assert len(heap._heap) < 200


@given(
    st.lists(st.tuples(st.sampled_from(["add", "key", "remove"]), st.integers(0, 9), st.integers()))
)
def test_first_is_always_the_smallest(steps: list[tuple[str, int, int]]) -> None:
    heap = make_heap()
    members: dict[str, Member] = {}
    for action, number, key in steps:
        uid = str(number)
        if action == "remove":
            assert heap.remove(uid) == (members.pop(uid, None) is not None)
        elif action == "key" and uid in members:
            members[uid].key = key
            heap.update(members[uid])
        elif uid not in members:
            members[uid] = Member(uid, key)
            heap.add(members[uid])
        first = heap.peek()
        assert (first.key if first else None) == min(
            (m.key for m in members.values()), default=None
        )
        assert len(heap) == len(members)
        assert all(uid in heap for uid in members)
    keys = [members[uid].key for uid in drain(heap)]
    assert keys == sorted(keys)


def test_heap_may_change_while_it_is_read() -> None:
    heap = make_heap()
    for key in range(10):
        heap.add(Member(str(key), key))
    read = []
    for member in heap:
        read.append(member.uid)
        heap.remove(str(member.key + 1))
        heap.add(Member(f"late {member.uid}", 100))
    assert read == ["0", "2", "4", "6", "8"]

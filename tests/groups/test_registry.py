"""Members are counted by state, and a group wakes them when it is complete.

Covers ``ksched.groups.registry`` and ``ksched.groups.group``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.groups.dialects.annotations import Annotations
from ksched.groups.group import (
    ASSUMED,
    AVAILABLE,
    BOUND,
    ELSEWHERE,
    GATED,
    LEAVING,
    WAITING_FOR_MEMBERS,
    Group,
    GroupKey,
    Mark,
    Member,
    Terms,
)
from ksched.groups.registry import Groups
from ksched.testing import PodBuilder, make_pod


class Books:
    """A registry of groups, and what it woke."""

    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.groups = Groups(Listers())
        self.groups.read(Annotations("GangScheduling"), "default-scheduler")
        self.groups.wake = self._wake
        self.woken: list[str] = []

    def _wake(self, pods: Iterable[PodInfo]) -> None:
        self.woken += [pod.name for pod in pods]

    def info(self, pod: PodBuilder) -> PodInfo:
        return self.cache.pod_info(pod.obj())

    def pending(self, pod: PodBuilder, *, is_ours: bool = True) -> PodInfo:
        info = self.info(pod)
        self.groups.pending(info, is_ours=is_ours)
        return info

    def counts(self, uid: str = "a") -> dict[str, int]:
        group = self.groups.of(uid)
        assert group is not None
        return {state: count for state, count in group.counts.items() if count}


def member(name: str, minimum: int | str = 3, group: str = "g") -> PodBuilder:
    marks = {"ksched.dev/group": group, "ksched.dev/group-min": str(minimum)}
    return make_pod(name).uid(name).annotation(marks)


@pytest.fixture
def books() -> Books:
    return Books()


def test_a_pod_without_a_mark_has_no_group(books: Books) -> None:
    books.pending(make_pod("web").uid("web"))
    assert books.groups.of("web") is None
    assert books.groups.why_gated("web") == ""
    assert books.groups.to_decide("web") is None


def test_members_are_woken_by_the_one_that_completes_them(books: Books) -> None:
    books.pending(member("a"))
    books.pending(member("b"))
    assert books.groups.why_gated("a") == WAITING_FOR_MEMBERS
    assert books.woken == []
    books.pending(member("c"))
    assert sorted(books.woken) == ["a", "b", "c"]
    assert books.groups.why_gated("a") == ""
    group = books.groups.to_decide("a")
    assert group is not None
    assert group.need == 3


def test_members_are_counted_by_state(books: Books) -> None:
    books.pending(member("a"))
    books.pending(member("b").gate("later"))
    books.pending(member("c"), is_ours=False)
    books.pending(member("d").terminating())
    assert books.counts() == {AVAILABLE: 1, GATED: 1, ELSEWHERE: 1, LEAVING: 1}
    placed = books.info(member("a")).on_node("n1")
    books.groups.placed(placed, is_assumed=True)
    assert books.counts() == {ASSUMED: 1, GATED: 1, ELSEWHERE: 1, LEAVING: 1}
    books.groups.displaced("a")
    assert books.counts()[AVAILABLE] == 1
    books.groups.placed(placed, is_assumed=False)
    assert books.counts()[BOUND] == 1
    books.groups.gone("a")
    assert BOUND not in books.counts("b")


def test_a_group_ends_with_its_last_member(books: Books) -> None:
    books.pending(member("a"))
    books.groups.gone("a")
    assert len(books.groups) == 0
    books.groups.gone("a")


def test_a_member_that_changes_its_group_leaves_the_old_one(books: Books) -> None:
    books.pending(member("a"))
    books.pending(member("b"))
    books.pending(member("a", group="h"))
    assert {str(group.key): len(group.members) for group in books.groups} == {
        "default/g": 1,
        "default/h": 1,
    }


def test_of_members_that_disagree_the_largest_minimum_counts(books: Books) -> None:
    books.pending(member("a", 1))
    books.pending(member("b", 3))
    assert books.groups.why_gated("a") == WAITING_FOR_MEMBERS
    books.groups.gone("b")
    assert books.groups.why_gated("a") == ""


def test_a_mark_that_cannot_be_read_gates_the_group(books: Books) -> None:
    books.pending(member("a", "many"))
    assert books.groups.why_gated("a") == (
        "annotation ksched.dev/group-min: got 'many', wanted a number of at least 1"
    )


def test_a_satisfied_group_lets_single_members_go(books: Books) -> None:
    for name in "abc":
        info = books.pending(member(name))
        books.groups.placed(info.on_node("n1"), is_assumed=False)
    group = books.groups.of("a")
    assert group is not None
    assert group.is_satisfied
    books.groups.gone("a")
    books.groups.gone("b")
    books.pending(member("d"))
    assert books.groups.to_decide("d") is None
    books.pending(member("e"))
    assert group.need == 2, "all that are missing exist: they are decided together"


def test_after_a_restart_an_old_group_with_bound_members_counts_as_placed(books: Books) -> None:
    old = member("a").created("2023-11-14T22:13:20Z")
    books.groups.placed(books.info(old.node("n1")), is_assumed=False)
    books.pending(member("b").created("2023-11-14T22:13:20Z"))
    books.groups.wall = lambda: 1_700_000_030.0
    assert books.groups.why_gated("b") == WAITING_FOR_MEMBERS
    books.groups.wall = lambda: 1_700_000_061.0
    assert books.groups.why_gated("b") == ""
    assert books.groups.to_decide("b") is None


def test_what_roles_lack_adds_up_whoever_else_is_placed(books: Books) -> None:
    group = Group(GroupKey("volcano", "default", "g"), "Volcano")
    group.object_terms = Terms(minimum=4, min_by_role={"master": 2, "worker": 2})
    pod = books.info(make_pod("p"))
    states = {"helper": BOUND, "master": AVAILABLE, "worker": AVAILABLE}
    for role, state in states.items():
        for _ in range(4):
            group.count(Member(pod, Mark(group.key, role)), state, 1)
    assert group.role_needs() == {"master": 2, "worker": 2}
    assert group.need == 4

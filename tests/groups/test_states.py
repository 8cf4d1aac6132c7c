"""What is told about a group in each of its states.

Covers ``ksched.groups.states`` and ``ksched.groups.sentences``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.groups.dialects.annotations import Annotations
from ksched.groups.group import Group
from ksched.groups.registry import Groups
from ksched.groups.sentences import short_of
from ksched.groups.states import STATES, count_states, state_of, waits_for
from ksched.testing import PodBuilder, make_pod


class Story:
    """A group of two, whose members come one by one."""

    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.groups = Groups(Listers())
        self.groups.read(Annotations("GangScheduling"), "default-scheduler")

    def pod(self, name: str) -> PodBuilder:
        return make_pod(name).annotation({"ksched.dev/group": "g", "ksched.dev/group-min": "2"})

    def comes(self, pod: PodBuilder, *, is_ours: bool = True) -> PodInfo:
        info = self.cache.pod_info(pod.obj())
        self.groups.pending(info, is_ours=is_ours)
        return info

    @property
    def group(self) -> Group:
        [group] = self.groups
        return group

    @property
    def told(self) -> tuple[str, str]:
        return state_of(self.group), waits_for(self.group)


def test_the_states_of_a_group_one_after_the_other() -> None:
    story = Story()
    a = story.comes(story.pod("a"))
    assert story.told == ("incomplete", "1 of 2 pods exist")
    b = story.comes(story.pod("b"))
    assert story.told == ("pending", "its turn in the queue")
    story.group.last_reason = "pod group is unschedulable, 1 of 2 fit; short of 1 × 4 cpu"
    assert story.told == ("short", "1 of 2 fit; short of 1 × 4 cpu")
    story.group.last_reason = ""
    for pod in (a, b):
        story.groups.placed(pod.on_node("n"), is_assumed=True)
    assert story.told == ("binding", "0 of 2 are bound")
    story.groups.placed(a.on_node("n"), is_assumed=False)
    assert story.told == ("binding", "1 of 2 are bound")
    story.groups.placed(b.on_node("n"), is_assumed=False)
    assert story.told == ("placed", "")
    story.groups.gone(b.uid)
    assert story.told == ("ended", ""), "it may have succeeded: nothing was read yet"
    story.groups.ends_read(story.group, Counter({"": 1}), 0, 1, was_idle=False)
    assert story.told == ("ended", "")
    story.groups.ends_read(story.group, Counter(), 1, 0, was_idle=False)
    assert story.told == ("broken", "1 of 2 are on nodes; the others failed or are gone")


def test_a_group_whose_replacements_do_not_fit_is_broken_and_says_why() -> None:
    story = Story()
    for name in "ab":
        story.groups.placed(story.comes(story.pod(name)).on_node("n"), is_assumed=False)
    gone = next(iter(story.group.members))
    story.groups.gone(gone)
    story.groups.ends_read(story.group, Counter(), 1, 1, was_idle=False)
    story.comes(story.pod("c"))
    assert story.told == (
        "broken",
        "1 of 2 are on nodes; the others wait: its turn in the queue",
    )
    story.group.last_reason = "pod group is unschedulable, 0 of 1 fit; short of 1 × 4 cpu"
    assert story.told == (
        "broken",
        "1 of 2 are on nodes; the others wait: 0 of 1 fit; short of 1 × 4 cpu",
    )


def test_a_group_whose_replacements_do_not_fit_is_broken_whatever_has_succeeded_before() -> None:
    """Pods of another run are no members of this one."""
    story = Story()
    for name in "ab":
        story.groups.placed(story.comes(story.pod(name)).on_node("n"), is_assumed=False)
    story.groups.ends_read(story.group, Counter({"": 2}), 0, 0, was_idle=False)
    story.groups.gone(next(iter(story.group.members)))
    story.comes(story.pod("c"))
    story.group.last_reason = "pod group is unschedulable, 0 of 1 fit; short of 1 × 4 cpu"
    state, reason = story.told
    assert state == "broken"
    assert reason.endswith("the others wait: 0 of 1 fit; short of 1 × 4 cpu")


def test_a_member_that_was_being_deleted_breaks_its_group_at_once() -> None:
    story = Story()
    pods = [story.comes(story.pod(name)) for name in "ab"]
    for pod in pods:
        story.groups.placed(pod.on_node("n"), is_assumed=False)
    leaving = story.cache.pod_info(story.pod("b").terminating().obj()).on_node("n")
    story.groups.placed(leaving, is_assumed=False)
    story.groups.gone(leaving.uid)
    assert story.told == ("broken", "1 of 2 are on nodes; the others failed or are gone")


def test_members_that_do_not_count_are_named() -> None:
    story = Story()
    story.comes(story.pod("a").gate("quota"))
    story.comes(story.pod("b"), is_ours=False)
    assert waits_for(story.group) == "0 of 2 pods exist (1 gated, 1 for another scheduler)"


def test_a_group_that_is_not_understood_says_why() -> None:
    story = Story()
    story.comes(make_pod("a").annotation({"ksched.dev/group": "g", "ksched.dev/group-min": "x"}))
    state, text = story.told
    assert state == "incomplete"
    assert "annotation ksched.dev/group-min: got 'x'" in text


def test_every_state_is_counted() -> None:
    story = Story()
    assert count_states(story.groups) == dict.fromkeys(STATES, 0)
    story.comes(story.pod("a"))
    assert count_states(story.groups) == {**dict.fromkeys(STATES, 0), "incomplete": 1}


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 4000, "5 of 8 fit; short of 3 × 4 cpu"),
        ("cpu", 250, "5 of 8 fit; short of 3 × 250m cpu"),
        ("memory", 3 * 2**30, "5 of 8 fit; short of 3 × 3Gi memory"),
        ("nvidia.com/gpu", 8, "5 of 8 fit; short of 3 × 8 nvidia.com/gpu"),
    ],
)
def test_the_shortage_is_in_the_units_of_users(resource: str, amount: int, text: str) -> None:
    assert short_of(5, 8, resource, amount) == text

"""Turns of first attempts and retries: nobody starves, and a higher priority always goes first."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.cache.pod_info import TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import QueuedPodInfo
from ksched.queue.active import FIRST_ATTEMPTS_PER_RETRY, MOST_AHEAD, ActiveQueue, was_tried
from ksched.testing.builders import make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())


class PopOrder:
    """An active queue and a clock that never shows the same time twice."""

    def __init__(self, *, ranked: bool = True) -> None:
        rank = (lambda queued: queued.pod.priority) if ranked else None
        self.queue = ActiveQueue(lambda queued: (-queued.pod.priority, queued.timestamp), rank)
        self.numbers = count()
        self.waiting: list[QueuedPodInfo] = []

    def add(
        self, *, is_retry: bool, priority: int = 0, completes_group: bool = False
    ) -> QueuedPodInfo:
        number = next(self.numbers)
        builder = make_pod(f"pod-{number}").priority(priority)
        queued = QueuedPodInfo(TEMPLATES.pod_info(builder.obj()), float(number))
        queued.attempts, queued.completes_group = int(is_retry), completes_group
        self.queue.add(queued)
        self.waiting.append(queued)
        return queued

    def pop(self) -> QueuedPodInfo:
        first = next(iter(self.queue))
        queued = self.queue.take_turn()
        assert queued is first
        self.queue.remove(queued.uid)
        self.waiting.remove(queued)
        return queued

    def pops_until(self, wanted: QueuedPodInfo, *, meanwhile: bool | None = None) -> int:
        """How many pods are popped until one is, itself included.

        ``meanwhile`` says what comes after each pop: retries, first attempts, or nothing.
        """
        for pops in count(1):
            if self.pop() is wanted:
                return pops
            if meanwhile is not None:
                self.add(is_retry=meanwhile)
        raise AssertionError


PODS = st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=30)


@given(pods=PODS, steps=st.lists(st.none() | st.tuples(st.booleans(), st.integers(0, 2))))
def test_a_higher_priority_always_goes_first(
    pods: list[tuple[bool, int]], steps: list[tuple[bool, int] | None]
) -> None:
    turns = PopOrder()
    for is_retry, priority in pods:
        turns.add(is_retry=is_retry, priority=priority)
    for step in [*steps, *[None] * len(pods)]:
        if step is not None:
            turns.add(is_retry=step[0], priority=step[1])
        elif turns.waiting:
            highest = max(queued.pod.priority for queued in turns.waiting)
            assert turns.pop().pod.priority == highest


@given(pods=PODS, steps=st.lists(st.none() | st.booleans()))
def test_each_kind_keeps_its_own_order(
    pods: list[tuple[bool, int]], steps: list[bool | None]
) -> None:
    turns = PopOrder()
    for is_retry, _ in pods:
        turns.add(is_retry=is_retry)
    for step in [*steps, *[None] * len(pods)]:
        if step is not None:
            turns.add(is_retry=step)
        elif turns.waiting:
            same = list(turns.waiting)
            popped = turns.pop()
            older = [one for one in same if one.timestamp < popped.timestamp]
            assert all(was_tried(one) != was_tried(popped) for one in older)


@given(backlog=st.integers(0, 40), before=st.integers(0, 40), lead=st.integers(0, 12))
def test_a_new_pod_waits_for_one_retry_in_five_attempts(
    backlog: int, before: int, lead: int
) -> None:
    """Whatever the backlog, and while it grows."""
    turns = PopOrder()
    for _ in range(backlog):
        turns.add(is_retry=True)
    for _ in range(lead):
        turns.add(is_retry=False)
        turns.pop()
    for _ in range(before):
        turns.add(is_retry=False)
    before = sum(not was_tried(queued) for queued in turns.waiting)
    new = turns.add(is_retry=False)
    retries_at_most = (before + 1 + FIRST_ATTEMPTS_PER_RETRY) // FIRST_ATTEMPTS_PER_RETRY
    assert turns.pops_until(new, meanwhile=True) <= before + 1 + retries_at_most


@given(backlog=st.integers(1, 40), before=st.integers(0, 20))
def test_a_backlog_is_retried_while_new_pods_keep_coming(backlog: int, before: int) -> None:
    turns = PopOrder()
    for _ in range(before):
        turns.add(is_retry=False)
    last = [turns.add(is_retry=True) for _ in range(backlog)][-1]
    turns.add(is_retry=False)
    pops = turns.pops_until(last, meanwhile=False)
    assert pops <= before + backlog * (FIRST_ATTEMPTS_PER_RETRY + 1)


def test_without_new_pods_the_backlog_has_every_turn() -> None:
    turns = PopOrder()
    retries = [turns.add(is_retry=True) for _ in range(10)]
    assert [turns.pop() for _ in retries] == retries


def test_older_first_attempts_go_before_a_retry() -> None:
    """As QueueSort has it: turns are only taken where it prefers the retry."""
    turns = PopOrder()
    first = [turns.add(is_retry=False) for _ in range(10)]
    retry = turns.add(is_retry=True)
    assert [turns.pop() for _ in range(11)] == [*first, retry]


def test_without_a_rank_the_order_is_that_of_the_keys() -> None:
    turns = PopOrder(ranked=False)
    pods = [turns.add(is_retry=is_retry) for is_retry in (True, True, False, True, False)]
    assert [turns.pop() for _ in pods] == pods


@pytest.mark.parametrize(
    ("reason", "is_retry"),
    [
        pytest.param("Unschedulable", True, id="rejected"),
        pytest.param("SchedulerError", True, id="failed"),
        pytest.param("SchedulingGated", False, id="gated until now"),
    ],
)
def test_a_pod_that_a_scheduler_before_us_tried_is_a_retry(reason: str, is_retry: bool) -> None:
    """After a fail-over all pods are new to the queue, and the backlog is still one."""
    condition: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": reason}
    builder = make_pod("web").merge({"status": {"conditions": [condition]}})
    assert was_tried(QueuedPodInfo(TEMPLATES.pod_info(builder.obj()), 0.0)) is is_retry


def test_an_updated_pod_keeps_its_turn() -> None:
    turns = PopOrder()
    retry, new = turns.add(is_retry=True), turns.add(is_retry=False)
    retry.attempts = 5
    turns.queue.update(retry)
    turns.queue.update(new)
    assert len(turns.queue) == 2
    assert [turns.pop(), turns.pop()] == [new, retry]


def test_what_is_read_is_what_would_be_popped_also_while_pods_leave() -> None:
    turns = PopOrder()
    for number in range(60):
        turns.add(is_retry=number % 3 != 0, priority=number % 2)
    read = list(turns.queue)
    leaving = turns.queue.__iter__()
    next(leaving)
    for queued in read[1:31]:
        turns.queue.remove(queued.uid)
        turns.waiting.remove(queued)
    assert set(leaving) == set(read[31:])
    assert len(read) == 60


@given(pods=PODS, completing=st.sets(st.integers(0, 29), max_size=MOST_AHEAD))
def test_what_a_group_on_nodes_lacks_goes_before_its_equals_only(
    pods: list[tuple[bool, int]], completing: set[int]
) -> None:
    order = PopOrder()
    for number, (is_retry, priority) in enumerate(pods):
        order.add(is_retry=is_retry, priority=priority, completes_group=number in completing)
    popped = [order.pop() for _ in pods]
    ranks = [(-one.pod.priority, not one.completes_group) for one in popped]
    assert ranks == sorted(ranks)
    assert not order.queue


def test_without_a_rank_a_pod_that_a_group_lacks_has_no_advantage() -> None:
    order = PopOrder(ranked=False)
    older = order.add(is_retry=False)
    order.add(is_retry=True, completes_group=True)
    assert order.pop() is older


@given(backlog=st.integers(0, 60), before=st.integers(0, 20))
def test_groups_that_nothing_helps_hold_up_nobody(backlog: int, before: int) -> None:
    """However many of them are retried, and while they come back."""
    turns = PopOrder()
    for _ in range(backlog):
        turns.add(is_retry=True, completes_group=True)
    for _ in range(before):
        turns.add(is_retry=False)
    last = turns.add(is_retry=False)
    ahead = 0
    while (popped := turns.pop()) is not last:
        if popped.completes_group:
            ahead += 1
            turns.add(is_retry=True, completes_group=True)
    assert ahead <= MOST_AHEAD + (before + 1) // FIRST_ATTEMPTS_PER_RETRY
    for _ in range(backlog):
        new = turns.add(is_retry=False)
        pops = turns.pops_until(new)
        assert pops <= 2, "the others are owed their turns"
        turns.add(is_retry=True, completes_group=True)


def test_what_groups_lack_goes_first_again_after_the_queue_was_empty() -> None:
    turns = PopOrder()
    for _ in range(2):
        lacking = [turns.add(is_retry=True, completes_group=True) for _ in range(MOST_AHEAD + 1)]
        equals = [turns.add(is_retry=False) for _ in range(3)]
        expected = [*lacking[:-1], *equals, lacking[-1]]
        assert [turns.pop() for _ in expected] == expected
        assert turns.queue.take_turn() is None


def test_of_those_that_are_read_none_has_left_while_what_groups_lack_was_read() -> None:
    turns = PopOrder()
    turns.add(is_retry=True, completes_group=True)
    other = turns.add(is_retry=False)
    reading = iter(turns.queue)
    next(reading)
    turns.queue.remove(other.uid)
    assert list(reading) == []

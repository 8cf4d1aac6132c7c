from __future__ import annotations

import pytest

from ksched.cache.pod_info import TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import QueuedPodInfo
from ksched.queue.backoff import BackoffQueue
from ksched.testing.builders import make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())


def queued_pod(
    name: str = "pod", at: float = 0.0, rejections: int = 0, errors: int = 0
) -> QueuedPodInfo:
    queued = QueuedPodInfo(TEMPLATES.pod_info(make_pod(name).obj()), at)
    queued.unschedulable_count, queued.consecutive_errors_count = rejections, errors
    queued.unschedulable_plugins = frozenset(["Fit"] if rejections and not errors else [])
    return queued


def make_queue(initial_seconds: float = 1, max_seconds: float = 10) -> BackoffQueue:
    return BackoffQueue(lambda queued: queued.timestamp, initial_seconds, max_seconds)


@pytest.mark.parametrize(
    ("rejections", "errors", "seconds"),
    [
        pytest.param(0, 0, 0, id="never failed"),
        pytest.param(1, 0, 1, id="rejected once"),
        pytest.param(2, 0, 2, id="rejected twice"),
        pytest.param(4, 0, 8, id="rejected four times"),
        pytest.param(5, 0, 10, id="the maximum"),
        pytest.param(100_000, 0, 10, id="rejected for days"),
        pytest.param(5, 1, 1, id="an error is not charged for rejections"),
        pytest.param(1, 3, 4, id="errors in a row"),
    ],
)
def test_pause_doubles_up_to_the_maximum(rejections: int, errors: int, seconds: float) -> None:
    queued = queued_pod(rejections=rejections, errors=errors)
    assert make_queue().duration_seconds(queued) == seconds


@pytest.mark.parametrize(
    ("failed_at", "over_at"),
    [
        pytest.param(0.0, 2.0, id="at the start of a second"),
        pytest.param(0.999, 2.0, id="at the end of a second"),
        pytest.param(1.0, 3.0, id="in the next second"),
    ],
)
def test_pause_ends_with_the_second_it_ends_in(failed_at: float, over_at: float) -> None:
    queue, queued = make_queue(), queued_pod(at=failed_at, rejections=1)
    assert queue.is_backing_off(queued, over_at - 0.001)
    assert not queue.is_backing_off(queued, over_at)


def test_maximum_of_zero_switches_backoff_off() -> None:
    assert not make_queue(max_seconds=0).is_backing_off(queued_pod(rejections=3), now=0.0)


def test_initial_pause_above_the_maximum_is_cut() -> None:
    assert make_queue(60, 10).duration_seconds(queued_pod(rejections=1)) == 10


def test_errors_are_never_early_and_complete_beside_the_rejected() -> None:
    queue = make_queue()
    error, rejected = queued_pod("error", errors=1), queued_pod("rejected", rejections=2)
    queue.add(error)
    queue.add(rejected)
    assert queue.first_early(0.0) is rejected
    assert queue.first_completed(1.0) is None
    assert queue.first_completed(2.0) is error
    queue.remove(error.uid)
    assert queue.first_completed(2.0) is None
    assert queue.first_completed(3.0) is rejected
    queue.remove(rejected.uid)
    assert len(queue) == 0


def test_attempts_are_never_more_than_one_ahead_of_the_pauses() -> None:
    """A pod that every tick wakes, and nothing else to do: its attempts in the first minute."""
    queue, queued = make_queue(), queued_pod()
    now, attempts = 0.0, [0.0]
    while now < 60:
        queued.unschedulable_count += 1
        queued.unschedulable_plugins = frozenset(["Fit"])
        queued.timestamp, queued.backoff_expiration = now, None
        queue.add(queued)
        while queue.first_early(now) is None and queue.first_completed(now) is None:
            now += 0.25
        queue.cut_short(queued)
        queue.remove(queued.uid)
        attempts.append(now)
    # A pause lasts during the whole second in which it ends.
    assert attempts == [0, 0, 2, 4, 8, 16, 26, 36, 46, 56, 66]


def test_an_early_attempt_that_meets_an_error_waits_for_the_error_alone() -> None:
    queue, queued = make_queue(), queued_pod(rejections=5)
    queue.cut_short(queued)
    assert queued.owed_until == 10.0
    queued.timestamp, queued.backoff_expiration = 1.0, None
    queued.consecutive_errors_count = 1
    assert queue.expiration(queued) == 2.0
    queued.backoff_expiration, queued.consecutive_errors_count = None, 0
    assert queue.expiration(queued) == 20.0


def test_what_a_group_on_nodes_lacks_is_popped_early_before_others() -> None:
    queue, others = make_queue(), [queued_pod(f"other-{number}", rejections=1) for number in (0, 1)]
    lacking = queued_pod("lacking", rejections=1)
    lacking.completes_group = True
    for queued in (others[0], lacking, others[1]):
        queue.add(queued)
    assert queue.first_early(0.0) is lacking
    assert sorted(queue, key=id) == sorted([*others, lacking], key=id)
    queue.cut_short(lacking)
    queue.remove(lacking.uid)
    lacking.timestamp, lacking.backoff_expiration = 0.5, None
    queue.add(lacking)
    assert queue.first_early(0.5) is others[0], "it had an early attempt just now"
    assert queue.first_early(2.0) is lacking
    assert len(queue) == 3


def test_the_pause_of_what_a_group_on_nodes_lacks_does_not_grow() -> None:
    queued = queued_pod(rejections=5)
    queued.completes_group = True
    assert make_queue().duration_seconds(queued) == 1

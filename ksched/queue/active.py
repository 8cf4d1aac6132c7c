"""Pods that are ready for an attempt, and the order in which they are popped.

The QueueSort plugin defines the order, by default priority, then the time of arrival or of the last
failure. Strictly applied, one event that wakes a backlog of thousands would put all of them ahead
of every new pod, most of them for an attempt that fails again. So first attempts and retries are in
separate heaps, and where QueueSort prefers a retry only by age they alternate: after
``FIRST_ATTEMPTS_PER_RETRY`` first attempts that overtook an older retry, one retry is popped.
Neither side starves: under a steady arrival of new pods every fifth attempt is a retry, oldest
first, and a new pod waits for at most one retry in five attempts.

The plugin's ``rank`` defines "only by age": pods of equal rank differ in nothing else. A higher
rank always goes first, on either side, and without a ``rank`` the plugin's order is applied
strictly.

A pod that a group on nodes lacks (``QueuedPodInfo.completes_group``) goes before all pods of its
rank: what the others of its group hold is of no use without it. After ``MOST_AHEAD`` of them in
succession only every fifth attempt is such a one, as for retries, until the queue was empty or the
others have caught up: a thousand groups that nothing helps hold up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.keyed_heap import KeyedHeap

FIRST_ATTEMPTS_PER_RETRY = 4
MOST_AHEAD = 16
"""So many pods that groups lack may go before others of their rank in succession."""

_REASONS_OF_ATTEMPTS = ("Unschedulable", "SchedulerError")


class ActiveQueue:
    """First attempts and retries, each in queue-sort order.

    kube-scheduler: activeQueue.
    """

    def __init__(
        self,
        sort_key: Callable[[QueuedPodInfo], Any],
        rank: Callable[[QueuedPodInfo], Any] | None = None,
    ) -> None:
        self._rank = rank
        self._sort_key = sort_key
        self._first: KeyedHeap[QueuedPodInfo] = KeyedHeap(sort_key)
        self._retries: KeyedHeap[QueuedPodInfo] = KeyedHeap(sort_key)
        self._completing: KeyedHeap[QueuedPodInfo] = KeyedHeap(sort_key)
        self._went_ahead = 0
        """Consecutive first attempts that were popped before an older retry."""
        self._debt = 0
        """How many of the others are owed a turn by those that groups lack."""

    def add(self, queued: QueuedPodInfo) -> None:
        if self._rank is None:
            self._first.add(queued)
        elif queued.completes_group:
            self._completing.add(queued)
        else:
            (self._retries if was_tried(queued) else self._first).add(queued)

    def update(self, queued: QueuedPodInfo) -> None:
        for heap in (self._first, self._retries, self._completing):
            if queued.uid in heap:
                heap.update(queued)

    def remove(self, uid: str) -> None:
        for heap in (self._first, self._retries, self._completing):
            if heap.remove(uid):
                return

    def take_turn(self) -> QueuedPodInfo | None:
        """Return the next pod to pop and count it; the caller must remove it.

        kube-scheduler: unlockedPop.
        """
        retry = self._retries.peek() if self._retries else None
        queued = self._first.peek()
        if retry is not None:
            queued = self._choose(queued, retry, self._went_ahead)
        completing = self._completing.peek() if self._completing else None
        if completing is not None and self._goes_ahead(completing, queued, self._debt):
            self._debt = self._debt_after(completing, queued, self._debt)
            return completing
        if self._debt:
            self._debt = self._debt_after(None, queued, self._debt)
        if retry is None:
            self._went_ahead = 0
        elif queued is not None:
            self._went_ahead = self._after(queued, retry, self._went_ahead)
        return queued

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Iterate in pop order, assuming no further arrivals.

        Pods may come and go meanwhile; those that left are skipped.
        """
        completing, others, debt = iter(self._completing), self._others(), self._debt
        one, queued = next(completing, None), next(others, None)
        while one is not None or queued is not None:
            if one is not None and one.uid not in self._completing:
                one = next(completing, None)
            elif queued is not None and not self._is_other(queued.uid):
                queued = next(others, None)
            elif one is not None and self._goes_ahead(one, queued, debt):
                debt = self._debt_after(one, queued, debt)
                yield one
                one = next(completing, None)
            else:
                assert queued is not None
                debt = self._debt_after(None, queued, debt)
                yield queued
                queued = next(others, None)

    def _others(self) -> Iterator[QueuedPodInfo]:
        """Iterate over first attempts and retries in pop order."""
        firsts, retries, went_ahead = iter(self._first), iter(self._retries), self._went_ahead
        first, retry = next(firsts, None), next(retries, None)
        while first is not None or retry is not None:
            if first is not None and first.uid not in self._first:
                first = next(firsts, None)
            elif retry is not None and retry.uid not in self._retries:
                retry = next(retries, None)
            else:
                queued = self._choose(first, retry, went_ahead)
                assert queued is not None
                went_ahead = self._after(queued, retry, went_ahead)
                if queued is first:
                    first = next(firsts, None)
                else:
                    retry = next(retries, None)
                yield queued

    def _is_other(self, uid: str) -> bool:
        return uid in self._first or uid in self._retries

    def _goes_ahead(
        self, completing: QueuedPodInfo, queued: QueuedPodInfo | None, debt: int
    ) -> bool:
        """Whether a pod that a group lacks goes before the first of the others."""
        if queued is None or self._rank is None:
            return True
        if self._rank(queued) == self._rank(completing):
            return debt <= (MOST_AHEAD - 1) * FIRST_ATTEMPTS_PER_RETRY
        return bool(self._sort_key(completing) < self._sort_key(queued))

    def _debt_after(
        self, completing: QueuedPodInfo | None, queued: QueuedPodInfo | None, debt: int
    ) -> int:
        """How many turns the others are owed after one of theirs, or one before theirs."""
        if completing is None:
            return 0 if queued is None else max(debt - 1, 0)
        is_equal = (
            queued is not None
            and self._rank is not None
            and self._rank(queued) == self._rank(completing)
        )
        return debt + FIRST_ATTEMPTS_PER_RETRY if is_equal else debt

    def _choose(
        self, first: QueuedPodInfo | None, retry: QueuedPodInfo | None, went_ahead: int
    ) -> QueuedPodInfo | None:
        if first is None or retry is None or self._rank is None:
            return first or retry
        if self._first.key_of(first) < self._retries.key_of(retry):
            return first
        takes_turns = self._rank(first) == self._rank(retry)
        return first if takes_turns and went_ahead < FIRST_ATTEMPTS_PER_RETRY else retry

    def _after(self, queued: QueuedPodInfo, retry: QueuedPodInfo | None, went_ahead: int) -> int:
        """Return the number of consecutive overtaking first attempts after a pop."""
        if retry is None or queued is retry:
            return 0
        is_older = self._first.key_of(queued) < self._retries.key_of(retry)
        return went_ahead if is_older else went_ahead + 1

    def __len__(self) -> int:
        return len(self._first) + len(self._retries) + len(self._completing)


def was_tried(queued: QueuedPodInfo) -> bool:
    """Whether a pod had an attempt, here or (by its status) in an earlier scheduler process."""
    return queued.attempts > 0 or is_told_unschedulable(queued.pod)


def is_told_unschedulable(pod: PodInfo) -> bool:
    conditions = pod.pod.status.conditions
    return bool(conditions) and any(
        one.type == "PodScheduled" and one.status == "False" and one.reason in _REASONS_OF_ATTEMPTS
        for one in conditions
    )

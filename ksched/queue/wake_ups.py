"""Which waiting pods an event requeues, evaluated a slice at a time when thousands wait.

The cache has an event's facts before the event arrives here, and pods in flight have it replayed.
So for waiting pods it does not matter whether their hints are evaluated now or a few attempts
later, only that every pod that was waiting when the event came is evaluated, and no other. A
wake-up that exceeds one slice therefore remembers which pods are left. Meanwhile a pod may be
requeued, deleted or changed: pods that are gone are skipped, as are pods tried since (their attempt
saw the event), and a changed pod is evaluated in its new version.

``MAX_UNFINISHED`` bounds the backlog of wake-ups. When events come faster than hints can be
evaluated, all waiting pods count as woken, as in ``in_flight``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.framework.cluster_events import CONFIG_RELOAD, WILDCARD, ClusterEvent
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice
from ksched.queue.hints import AFTER_BACKOFF, SKIP, HintTable, Interest, Requeue
from ksched.queue.scouts import Scouts
from ksched.queue.unschedulable import UnschedulablePods, WaitingGroup, Waker
from ksched.tuning import PODS_PER_SLICE

MAX_UNFINISHED = 64

PreCheck = Callable[[PodInfo], bool]
_Step = tuple[QueuedPodInfo, Requeue] | None
"""One pod and its strategy; ``None`` after a group's shared hints, which count as one step."""
_Target = tuple[WaitingGroup, list[QueuedPodInfo] | None]
"""A group, and those of its pods that an event may concern; ``None``: all."""


class WakeUp:
    """One event and the groups for which it is not evaluated yet."""

    __slots__ = (
        "_at",
        "_hints",
        "_is_remembered",
        "_pre_check",
        "_rest",
        "_scouts",
        "_what",
        "event",
        "steps",
    )

    def __init__(
        self,
        hints: HintTable,
        scouts: Scouts,
        waiting: Sequence[UnschedulablePods],
        at: float,
        what: tuple[ClusterEvent, Any, Any],
        targets: Iterable[_Target],
        pre_check: PreCheck | None,
    ) -> None:
        self._hints, self._at, self._what = hints, at, what
        self._scouts = scouts
        self._rest: deque[_Target] = deque(targets)
        self._is_remembered = False
        self.event = what[0]
        self._pre_check = pre_check
        self.steps = self._evaluate(waiting)

    def remember(self) -> None:
        """Record, once, the pods that now wait in the groups that are left."""
        if not self._is_remembered:
            self._is_remembered = True
            self._rest = deque(
                (group, list(group.pods.values()) if pods is None else pods)
                for group, pods in self._rest
            )

    def concerns(self, queued: QueuedPodInfo) -> bool:
        """Whether a pod had no attempt since the event and passes the pre-check."""
        is_spared = self._pre_check is not None and not self._pre_check(queued.pod)
        return queued.timestamp <= self._at and not is_spared

    def _evaluate(self, waiting: Sequence[UnschedulablePods]) -> Iterator[_Step]:
        event, old, new = self._what
        while self._rest:
            group, remembered = self._rest.popleft()
            pods: Collection[QueuedPodInfo] = group.pods.values()
            if remembered is not None:
                pods = [queued for queued in remembered if group.pods.get(queued.uid) is queued]
                for queued in remembered if len(pods) < len(remembered) else ():
                    if _group_of(queued, waiting) not in (group, None):
                        yield queued, self._hints.is_pod_worth_requeuing(queued, event, old, new)
            if pods:
                alike = self._scouts_of(group) if len(pods) == len(group.pods) else None
                yield from self._hints.pods_worth_requeuing(group, pods, event, old, new, alike)
                yield None

    def _scouts_of(self, group: WaitingGroup) -> Iterator[QueuedPodInfo] | None:
        if not group.is_judged_alike or self.event.is_wildcard or self._pre_check is not None:
            return None
        return self._scouts.of(group, self._at, self.event.label)


class WakeUps:
    """The unfinished wake-ups, oldest first.

    kube-scheduler: movePodsToActiveOrBackoffQueue.
    """

    def __init__(
        self,
        hints: HintTable,
        scouts: Scouts,
        waiting: Sequence[UnschedulablePods],
        now: Callable[[], float],
    ) -> None:
        self._hints = hints
        self._scouts = scouts
        self._waiting = waiting
        self._now = now
        self.unfinished: deque[WakeUp] = deque()

    def add(self, event: ClusterEvent, old: Any, new: Any, pre_check: PreCheck | None) -> bool:
        """Add an event; True if pods wait for it, which ``next_slice`` then yields."""
        if not any(map(len, self._waiting)):
            return False
        if len(self.unfinished) >= MAX_UNFINISHED:
            missed = (event, *(one.event for one in self.unfinished))
            self.unfinished.clear()
            event = CONFIG_RELOAD if CONFIG_RELOAD in missed else WILDCARD
            old = new = pre_check = None
        what = (event, old, new)
        targets = self._targets(*what)
        if not targets:
            return False
        at, scouts, waiting = self._now(), self._scouts, self._waiting
        wake_up = WakeUp(self._hints, scouts, waiting, at, what, targets, pre_check)
        self.unfinished.append(wake_up)
        return True

    def next_slice(self) -> Iterator[tuple[QueuedPodInfo, Requeue, str]]:
        """Yield pods to requeue, each with the strategy and the label of its event.

        The caller must requeue each pod before it takes the next.
        """
        left = PODS_PER_SLICE
        turn = TimeSlice(self._now)
        if self._scouts.gone:
            for queued, label in self._scouts.next():
                # Only here: the pod before must have been seen to be a scout.
                if left < PODS_PER_SLICE and (turn.is_over or not left):
                    left = 0
                    break
                yield queued, AFTER_BACKOFF, label
                left -= 1
        while self.unfinished and left:
            wake_up = self.unfinished[0]
            for step in wake_up.steps:
                left -= 1
                if step is not None and self._is_due(wake_up, *step):
                    yield *step, wake_up.event.label
                if turn.is_over:
                    left = 0
                if not left:
                    break
            else:
                self.unfinished.popleft()
        for wake_up in self.unfinished:
            wake_up.remember()

    def _is_due(self, wake_up: WakeUp, queued: QueuedPodInfo, answer: Requeue) -> bool:
        return (
            answer is not SKIP
            and _group_of(queued, self._waiting) is not None
            and wake_up.concerns(queued)
        )

    def _targets(self, event: ClusterEvent, old: Any, new: Any) -> list[_Target]:
        if event.is_wildcard:
            return [(group, None) for pods in self._waiting for group in pods.groups()]
        interest = self._hints.interest(event)
        unschedulable, gated = self._waiting
        targets: list[_Target] = []
        if len(unschedulable):
            targets += self._rejected_targets(unschedulable, interest, old, new)
        if len(gated):
            targets += self._gated_targets(gated, interest, old, new)
        return targets

    def _rejected_targets(
        self, rejected: UnschedulablePods, interest: Interest, old: Any, new: Any
    ) -> list[_Target]:
        wakers: list[Waker] = []
        some: list[_Target] = []
        for waker, registered in interest.items():
            if rejected.are_woken_by(waker):
                keys = self._hints.concerned(waker, registered, old, new)
                if keys is None:
                    wakers.append(waker)
                else:
                    some += rejected.woken_among(waker, rejected.with_subjects(keys))
        whole: list[_Target] = [(group, None) for group in rejected.groups_woken_by(wakers)]
        if whole and some:
            groups = {group for group, _ in whole}
            some = [target for target in some if target[0] not in groups]
        return whole + some

    def _gated_targets(
        self, gated: UnschedulablePods, interest: Interest, old: Any, new: Any
    ) -> Iterator[_Target]:
        """Gated pods wait for their plugin alone, and that may know which of them can pass."""
        for waker, registered in interest.items():
            if not gated.are_woken_by(waker):
                continue
            uids = self._hints.released(waker, registered)
            if uids is None:
                keys = self._hints.concerned(waker, registered, old, new)
                uids = None if keys is None else gated.with_subjects(keys)
            if uids is None:
                yield from ((group, None) for group in gated.groups_woken_by((waker,)))
            else:
                yield from gated.woken_among(waker, uids)


def _group_of(queued: QueuedPodInfo, waiting: Sequence[UnschedulablePods]) -> WaitingGroup | None:
    for pods in waiting:
        group = pods.group_of(queued.uid)
        if group is not None:
            return group
    return None

"""Which waiting pods an event wakes: asked at once, and for thousands of pods a slice at a time.

The facts of an event are in the cache before it gets here, and pods in flight have it replayed. So
for pods that wait it does not matter whether they are asked now or a few attempts later; it
matters that each pod that waited when the event came is asked, and that no other is. A wake-up that
does not fit into one slice therefore remembers which pods are still to be asked about. Meanwhile a
pod may be woken, deleted or changed: gone pods are left out, as are pods that were tried since
(their attempt saw the event), and a changed pod is asked about as it is now.

``MAX_UNFINISHED`` bounds what is remembered. When events come faster than pods can be asked about,
all that wait count as woken, as in ``in_flight``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.framework.cluster_events import WILDCARD, ClusterEvent
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.hints import SKIP, HintTable, Requeue
from ksched.queue.unschedulable import Group, UnschedulablePods
from ksched.tuning import PODS_PER_SLICE

MAX_UNFINISHED = 64

PreCheck = Callable[[PodInfo], bool]
_Step = tuple[QueuedPodInfo, Requeue] | None
"""One pod and what is to become of it, or nothing: a group was asked about."""


class WakeUp:
    """One event and the groups that are still to be asked about it."""

    __slots__ = (
        "_at",
        "_hints",
        "_is_remembered",
        "_pre_check",
        "_rest",
        "_what",
        "label",
        "steps",
    )

    def __init__(
        self,
        hints: HintTable,
        waiting: Sequence[UnschedulablePods],
        at: float,
        what: tuple[ClusterEvent, Any, Any],
        groups: Iterable[Group],
        pre_check: PreCheck | None,
    ) -> None:
        self._hints, self._at, self._what = hints, at, what
        self._rest: deque[tuple[Group, list[QueuedPodInfo] | None]]
        self._rest = deque((group, None) for group in groups)
        self._is_remembered = False
        self.label = what[0].label
        self._pre_check = pre_check
        self.steps = self._ask(waiting)

    def remember(self) -> None:
        """Note, once, who waits now in the groups that are still to be asked."""
        if not self._is_remembered:
            self._is_remembered = True
            self._rest = deque((group, list(group.pods.values())) for group, _ in self._rest)

    def concerns(self, queued: QueuedPodInfo) -> bool:
        """Whether a pod was not tried since the event, and is not spared."""
        is_spared = self._pre_check is not None and not self._pre_check(queued.pod)
        return queued.timestamp <= self._at and not is_spared

    def _ask(self, waiting: Sequence[UnschedulablePods]) -> Iterator[_Step]:
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
                yield from self._hints.pods_worth_requeuing(group, pods, event, old, new)
                yield None


class WakeUps:
    """The wake-ups that are not finished, oldest first.

    kube-scheduler: movePodsToActiveOrBackoffQueue.
    """

    def __init__(self, hints: HintTable, waiting: Sequence[UnschedulablePods]) -> None:
        self._hints = hints
        self._waiting = waiting
        self.unfinished: deque[WakeUp] = deque()

    def add(
        self, event: ClusterEvent, old: Any, new: Any, pre_check: PreCheck | None, now: float
    ) -> bool:
        """Take in an event; says whether pods wait for it, to be handed out by ``next_slice``."""
        if not any(map(len, self._waiting)):
            return False
        if len(self.unfinished) >= MAX_UNFINISHED:
            self.unfinished.clear()
            event, old, new, pre_check = WILDCARD, None, None, None
        groups = self._groups(event)
        if not groups:
            return False
        what = (event, old, new)
        wake_up = WakeUp(self._hints, self._waiting, now, what, groups, pre_check)
        self.unfinished.append(wake_up)
        return True

    def next_slice(self) -> Iterator[tuple[QueuedPodInfo, Requeue, str]]:
        """Hand out pods to requeue, each with the strategy and the label of its event.

        The caller requeues each before it asks for the next.
        """
        left = PODS_PER_SLICE
        while self.unfinished and left:
            wake_up = self.unfinished[0]
            for step in wake_up.steps:
                left -= 1
                if step is not None and self._is_due(wake_up, *step):
                    yield *step, wake_up.label
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

    def _groups(self, event: ClusterEvent) -> list[Group]:
        if event.is_wildcard:
            return [group for pods in self._waiting for group in pods.groups()]
        interest = self._hints.interest(event)
        if not interest:
            return []
        groups = []
        for pods in self._waiting:
            if len(pods):
                groups += pods.groups_woken_by(interest)
        return groups


def _group_of(queued: QueuedPodInfo, waiting: Sequence[UnschedulablePods]) -> Group | None:
    for pods in waiting:
        group = pods.group_of(queued.uid)
        if group is not None:
            return group
    return None

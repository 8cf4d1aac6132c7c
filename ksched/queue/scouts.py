"""One waiting pod is tried for all that are judged alike.

Ten thousand replicas wait for room, and a node comes that can take ten of them. If the event woke
all of them, 9,990 attempts would fail again, each with an Event and a longer backoff. So of the
pods of a group that is judged alike (``QueuedPodInfo.is_judged_alike``: template and nodes decide,
nothing else) only the first that can be tried at once is woken, the *scout*. If it comes back to
its group, the others would as well, and they go on waiting. In every other case, as when it was
placed, deleted or nominated, the next one is woken, before any other pod is popped: pods are tried
in the same order as if all were woken.

Pods of the group that back off are woken with the scout, to be tried when their backoff is over.
Pods with a nomination are never judged alike: what rejects the others may be that nomination.
"""

from __future__ import annotations

from collections.abc import Iterator

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.nominator import Nominator
from ksched.queue.places import ACTIVE, Place
from ksched.queue.unschedulable import UnschedulablePods, WaitingGroup


class Scouts:
    """The scouts that are ACTIVE, and those that are being tried or gone."""

    def __init__(
        self, places: dict[str, Place], waiting: UnschedulablePods, nominator: Nominator
    ) -> None:
        self._places = places
        self._waiting = waiting
        self._nominator = nominator
        self.ready: dict[str, WaitingGroup] = {}
        """The groups of the scouts that are ACTIVE, by UID of the scout."""
        self.gone: list[tuple[QueuedPodInfo, WaitingGroup]] = []
        """Scouts that were popped, or are no longer pending, since ``next``."""

    def of(self, group: WaitingGroup, at: float, label: str) -> Iterator[QueuedPodInfo]:
        """Yield the pods of a group to be woken by an event, the scout last.

        The caller must requeue each pod before it takes the next.
        """
        group.woken_at, group.woken_by = at, label
        if self.ready.get(group.scout) is group:
            # Its attempt will see the event.
            return
        while group.pods:
            queued = next(iter(group.pods.values()))
            if queued.timestamp > at:
                # It was tried since, and so were all behind it.
                return
            yield queued
            if queued.uid in group.pods:
                return
            if self._places.get(queued.uid) is ACTIVE and not self.is_nominated(queued):
                group.scout = queued.uid
                self.ready[queued.uid] = group
                return

    def left(self, queued: QueuedPodInfo) -> None:
        """Record that a scout is not ACTIVE any more."""
        self.gone.append((queued, self.ready.pop(queued.uid)))

    def next(self) -> Iterator[tuple[QueuedPodInfo, str]]:
        """Yield the pods to be woken now that attempts of scouts are over, with the cause.

        The caller must requeue each pod before it takes the next.
        """
        while self.gone:
            queued, group = self.gone[-1]
            back = self._waiting.group_of(queued.uid)
            is_back = back is not None and back.key == group.key
            if not is_back or self.is_nominated(queued):
                for other in self.of(group, group.woken_at, group.woken_by):
                    yield other, group.woken_by
            self.gone.remove((queued, group))

    def is_special_now(self, queued: QueuedPodInfo) -> bool:
        """Whether a waiting pod that was judged alike has been nominated since."""
        return queued.is_judged_alike and self.is_nominated(queued)

    def is_nominated(self, queued: QueuedPodInfo) -> bool:
        """Whether a node may fit this pod that fits no other of its template."""
        status = queued.pod.pod.status
        return bool(self._nominator.node_of(queued.uid) or status.nominated_node_name)

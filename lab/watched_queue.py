"""A scheduling queue together with the pod watch that feeds it, as the scheduler has them."""

from __future__ import annotations

from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.queue.activations import Activations
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.queue.scheduling_queue import SchedulingQueue


class WatchedQueue(SchedulingQueue):
    """A queue that is told of pods after ``pending`` is, like the one of a scheduler."""

    def __init__(self, **options: Any) -> None:
        self.pending = PendingPods()
        super().__init__(
            pending=self.pending, nominator=Nominator(), activations=Activations(), **options
        )

    def pod_added(self, pod: PodInfo) -> None:
        self.pending.put(pod)
        self.add(pod)

    def pod_modified(self, pod: PodInfo) -> None:
        self.update(self.pending.put(pod), pod)

    def pod_deleted(self, uid: str) -> None:
        self.pending.remove(uid)
        self.delete(uid)

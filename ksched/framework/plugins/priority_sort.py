"""PrioritySort: who is next."""

from __future__ import annotations

from typing import ClassVar

from ksched.framework import QueuedPodInfo
from ksched.framework.plugins import names


class PrioritySort:
    """Orders pending pods by priority, highest first, and by arrival among equals.

    A pod without ``spec.priority`` has priority 0. A pod that comes back from a failed attempt
    queues up behind its equals, and takes turns with those that come for the first time. No
    arguments.
    """

    name: ClassVar[str] = names.PRIORITY_SORT

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        return -queued.pod.priority, queued.timestamp

    def rank(self, queued: QueuedPodInfo) -> int:
        return queued.pod.priority

"""PrioritySort: the default order of the queue."""

from __future__ import annotations

from typing import ClassVar

from ksched.framework import QueuedPodInfo
from ksched.framework.plugins import names


class PrioritySort:
    """Orders pending pods by priority, highest first, and by arrival among equals.

    A pod without ``spec.priority`` has priority 0. A pod that returns from a failed attempt is
    queued behind its equals; retries and first attempts alternate. No arguments.
    """

    name: ClassVar[str] = names.PRIORITY_SORT

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        return -queued.pod.priority, queued.timestamp

    def rank(self, queued: QueuedPodInfo) -> int:
        return queued.pod.priority

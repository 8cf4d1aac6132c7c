"""Requests to retry pods now, from plugins (``Handle.activate``) and from preemption.

Plugins receive ``activate`` in their constructor, before the queue exists: the queue itself is
built from the plugins' QueueSort, PreEnqueue and ``events_to_register``. This object decouples the
two and is constructed first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from ksched.cache.pod_info import PodInfo
from ksched.tuning import PODS_PER_SLICE

Activate = Callable[[Iterable[PodInfo]], None]


class Activations:
    """Forwards pods to its subscribers; calls before the first subscription have no effect."""

    def __init__(self) -> None:
        self._subscribers: list[Activate] = []
        self._rest: deque[PodInfo] = deque()

    def subscribe(self, activate: Activate) -> None:
        self._subscribers.append(activate)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Activate pods; of thousands, as of a large group, a slice at a time."""
        is_under_way = bool(self._rest)
        self._rest.extend(pods)
        if not is_under_way:
            self._forward()

    def _forward(self) -> None:
        some = [self._rest.popleft() for _ in range(min(len(self._rest), PODS_PER_SLICE))]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._forward)
        for subscriber in self._subscribers:
            subscriber(some)

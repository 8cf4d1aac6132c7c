"""Requests to retry pods now, from plugins (``Handle.activate``) and from preemption.

Plugins receive ``activate`` in their constructor, before the queue exists: the queue itself is
built from the plugins' QueueSort, PreEnqueue and ``events_to_register``. This object decouples the
two and is constructed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ksched.cache.pod_info import PodInfo

Activate = Callable[[Iterable[PodInfo]], None]


class Activations:
    """Forwards pods to its subscribers; calls before the first subscription have no effect."""

    def __init__(self) -> None:
        self._subscribers: list[Activate] = []

    def subscribe(self, activate: Activate) -> None:
        self._subscribers.append(activate)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        for subscriber in self._subscribers:
            subscriber(pods)

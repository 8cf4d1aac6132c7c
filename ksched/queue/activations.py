"""Pods that are to be tried again now, because a plugin or a preemption said so.

Plugins are given the means to say so when they are built, and the queue is built of what plugins
say about order, gates and events. So what lies between them is made first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ksched.cache.pod_info import PodInfo

Activate = Callable[[Iterable[PodInfo]], None]


class Activations:
    """Hands pods on to those that subscribed; before the queue exists nothing waits in one."""

    def __init__(self) -> None:
        self._subscribers: list[Activate] = []

    def subscribe(self, activate: Activate) -> None:
        self._subscribers.append(activate)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        for subscriber in self._subscribers:
            subscriber(pods)

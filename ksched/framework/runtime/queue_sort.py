"""The QueueSort plugin's key, safe to sort by whatever the plugin returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.guard import Hook, PluginFailure


def sort_key(hook: Hook) -> Callable[[QueuedPodInfo], Any]:
    """The QueueSort plugin's key; pods for which it is unusable come last, in order of arrival.

    Usable is what can be compared with the first key the plugin gave: the queue must keep its
    order whatever the plugin returns.
    """
    wanted: list[Any] = []

    def key(queued: QueuedPodInfo) -> tuple[int, Any]:
        try:
            answer = hook.call(queued)
            if not wanted:
                wanted.append(_shape(answer))
            if _shape(answer) == wanted[0] and not answer < answer:
                return 0, answer
        except (PluginFailure, TypeError):
            pass
        return 1, queued.timestamp

    return key


def _shape(key: Any) -> Any:
    """What decides whether two keys can be compared: their types, member by member."""
    if isinstance(key, tuple):
        return tuple(_shape(member) for member in key)
    return float if isinstance(key, int | float) else type(key)

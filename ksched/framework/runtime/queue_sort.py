"""Sort keys of the QueueSort plugin, made safe: the heap stays ordered whatever it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.untrusted_values import is_interrupt

_PLAIN = (int, float, str, bytes)
"""Types whose values can always be compared with each other."""

_DEEPEST = 8


class _Unusable(Exception):
    """A key that must not enter the queue."""


def sort_key(hook: Hook) -> Callable[[QueuedPodInfo], Any]:
    """Wrap the plugin's key; pods with an unusable key come last, in order of arrival.

    Usable is a key that can be compared with the first key the plugin returned: numbers with
    numbers, text with text, tuples member by member, everything else within its own type.

    kube-scheduler: QueueSortFunc.
    """
    wanted: list[Any] = []
    is_plain = False

    def key(queued: QueuedPodInfo) -> tuple[Any, ...]:
        nonlocal is_plain
        try:
            answer = hook.call(queued)
            shape = _shape(answer)
            if not wanted:
                is_plain = _is_plain(shape)
                wanted.append(shape)
            if shape == wanted[0]:
                if not is_plain:
                    return 0, _Compared(answer)
                # Flat, since every pop compares a dozen pairs of keys.
                return (0, *answer) if isinstance(shape, tuple) else (0, answer)
        except (PluginFailure, _Unusable):
            pass
        return 1, queued.timestamp

    return key


def rank(hook: Hook) -> Callable[[QueuedPodInfo], Any]:
    """Wrap the plugin's rank; a value that is not plain equals no other pod's rank."""

    def of(queued: QueuedPodInfo) -> Any:
        try:
            answer = hook.call(queued)
        except PluginFailure:
            return object()
        return answer if isinstance(answer, _PLAIN) else object()

    return of


def _shape(key: Any, depth: int = 0) -> Any:
    """Return what decides whether two keys are comparable: their types, member by member."""
    if not isinstance(key, tuple):
        if isinstance(key, int | float):
            if key != key:
                raise _Unusable
            return float
        return type(key)
    if depth == _DEEPEST:
        raise _Unusable
    shape: list[Any] = []
    for member in key:
        kind = type(member)
        if kind is int or (kind is float and member == member):
            shape.append(float)
        else:
            shape.append(_shape(member, depth + 1))
    return tuple(shape)


def _is_plain(shape: Any) -> bool:
    return all(map(_is_plain, shape)) if isinstance(shape, tuple) else shape in _PLAIN


class _Compared:
    """A key of a type whose comparison may raise; the pods then count as equal."""

    __slots__ = ("_key",)

    def __init__(self, key: Any) -> None:
        self._key = key
        if self._compare(lambda one, another: one < another, self, True):
            raise _Unusable

    def __lt__(self, other: _Compared) -> bool:
        return self._compare(lambda one, another: one < another, other, False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compared) and self._compare(
            lambda one, another: one == another, other, True
        )

    def _compare(
        self, operator: Callable[[Any, Any], Any], other: _Compared, default: bool
    ) -> bool:
        try:
            return bool(operator(self._key, other._key))
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            return default

    __hash__ = None  # type: ignore[assignment]

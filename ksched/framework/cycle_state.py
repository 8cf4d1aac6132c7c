"""Per-attempt storage of plugins."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class StateData(Protocol):
    """State that changes when pods are added or removed in a dry run, and so must be copied."""

    def clone(self) -> StateData: ...


_NOTHING: Final = cast("set[str]", frozenset[str]())
"""Replaces sets that are only read from now on."""


class CycleState:
    """Data that plugins share within one attempt; discarded with the attempt.

    Keys are chosen by the plugin (its name, by convention). Values that implement ``clone`` are
    copied for dry runs, all others are shared and must not be modified after PreFilter.
    """

    __slots__ = (
        "_data",
        "_pods_to_activate",
        "not_asked",
        "skip_filter",
        "skip_pre_bind",
        "skip_score",
    )

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.not_asked: frozenset[str] = frozenset()
        """PreFilter plugins behind the one that rejected the pod for good."""
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()
        self._pods_to_activate: dict[str, Any] = {}

    @property
    def pods_to_activate(self) -> dict[str, Any]:
        """Pods, by key, to be retried once this attempt succeeded."""
        return self._pods_to_activate

    def write(self, key: str, value: object) -> None:
        self._data[key] = value

    def read(self, key: str, kind: type[T]) -> T:
        """Return what was written under ``key``; ``KeyError`` if nothing was.

        kube-scheduler: getStateData, getPreFilterState, getPreScoreState,
        getBalancedAllocationPreScoreState.
        """
        value = self._data[key]
        if not isinstance(value, kind):
            raise TypeError(
                f"cycle state {key}: got {type(value).__name__}, wanted {kind.__name__}"
            )
        return value

    def get(self, key: str, kind: type[T]) -> T | None:
        return self.read(key, kind) if key in self._data else None

    def decided(self) -> None:
        """Drop what only the cycle reads: the binding cycle may take long."""
        self.skip_filter = self.skip_score = _NOTHING

    def clone(self) -> CycleState:
        copy = CycleState()
        copy._data = {
            key: value.clone() if isinstance(value, StateData) else value
            for key, value in self._data.items()
        }
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        copy.skip_pre_bind = set(self.skip_pre_bind)
        copy._pods_to_activate = self._pods_to_activate
        return copy

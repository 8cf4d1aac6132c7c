"""Names to small integers, so that columns hold numbers and comparisons are array operations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

CPU, MEMORY, EPHEMERAL_STORAGE = 0, 1, 2
"""Positions of the fixed resources on every resource axis."""

V = TypeVar("V", bound=Hashable)


class Vocabulary(Generic[V]):
    """Distinct values in order of first appearance; the position is the value's number."""

    __slots__ = ("_ids", "values")

    def __init__(self, values: Iterable[V] = ()) -> None:
        self.values: list[V] = []
        self._ids: dict[V, int] = {}
        for value in values:
            self.intern(value)

    def intern(self, value: V) -> int:
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self.values)
            self.values.append(value)
        return number

    def find(self, value: V) -> int:
        """The value's number, or -1 if it never appeared."""
        return self._ids.get(value, -1)

    def __len__(self) -> int:
        return len(self.values)


class ResourceAxis(Vocabulary[str]):
    """The resources that pods request and nodes offer, cpu, memory and ephemeral-storage first."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(("cpu", "memory", "ephemeral-storage"))

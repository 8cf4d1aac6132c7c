"""Strings to small integers, so that columns are numeric and comparisons array operations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V", bound=Hashable)


class Vocabulary(Generic[V]):
    """Distinct values in order of first appearance; the index is the value's number."""

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
        """Return the value's number, or -1 if it is unknown."""
        return self._ids.get(value, -1)

    def __len__(self) -> int:
        return len(self.values)


class InternedColumn(Generic[V]):
    """One value per row, stored as a number into a vocabulary; number 0 is the default.

    The vocabulary is rebuilt when most of its values are unused, so its size is proportional to the
    values in use. Code that stores numbers compares the vocabulary by identity.
    """

    __slots__ = ("_default", "_rows", "_used", "ids", "vocabulary")

    def __init__(self, default: V, capacity: int) -> None:
        self._default = default
        self.ids: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.vocabulary: Vocabulary[V] = Vocabulary([default])
        self._rows = [0]
        """Number of rows per value; the default is not counted."""
        self._used = 0

    def at(self, row: int) -> V:
        return self.vocabulary.values[int(self.ids[row])]

    def write(self, row: int, value: V) -> None:
        before, number = int(self.ids[row]), self.vocabulary.intern(value)
        if number == before:
            return
        self.ids[row] = number
        rows = self._rows
        if number == len(rows):
            rows.append(0)
        if number:
            rows[number] += 1
            self._used += rows[number] == 1
        if before:
            rows[before] -= 1
            self._used -= not rows[before]
        if len(rows) > 64 + 2 * self._used:
            self._renumber()

    def fill(self, values: list[V]) -> None:
        """Rewrite all rows; those past the end of ``values`` get the default."""
        self.vocabulary = Vocabulary([self._default])
        self.ids = np.zeros_like(self.ids)
        self.ids[: len(values)] = [self.vocabulary.intern(value) for value in values]
        self._rows = [0, *np.bincount(self.ids, minlength=1)[1:].tolist()]
        self._used = len(self._rows) - 1

    def _renumber(self) -> None:
        numbers = [0, *(number for number, rows in enumerate(self._rows) if rows)]
        mapping = np.zeros(len(self._rows), np.int32)
        mapping[numbers] = np.arange(len(numbers), dtype=np.int32)
        values = self.vocabulary.values
        self.vocabulary = Vocabulary([values[number] for number in numbers])
        self._rows = [self._rows[number] for number in numbers]
        # A new array: numbers read before stay valid with the old vocabulary.
        self.ids = mapping[self.ids]

    def reserve(self, capacity: int) -> None:
        if capacity > len(self.ids):
            grown = np.zeros(capacity, np.int32)
            grown[: len(self.ids)] = self.ids
            self.ids = grown

    def taken(self, rows: NDArray[np.intp]) -> InternedColumn[V]:
        """Return the values of some rows; read-only."""
        column = InternedColumn(self._default, 0)
        column.ids, column.vocabulary = self.ids[rows], self.vocabulary
        return column

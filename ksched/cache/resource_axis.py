"""The resource axis: indexes of the resources that nodes offer, and pod requests by index."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakSet

from ksched.cache.interning import Vocabulary

CPU, MEMORY, EPHEMERAL_STORAGE = 0, 1, 2
"""Positions of the fixed resources on every resource axis."""

MAX_RESOURCES = 1024
"""Distinct names that all nodes together may offer. Each takes two columns, and a single node
object has room for twenty thousand."""


class ResourceAxis(Vocabulary[str]):
    """The resources that nodes offer, cpu, memory and ephemeral-storage first."""

    __slots__ = ("unplaced",)

    def __init__(self) -> None:
        super().__init__(("cpu", "memory", "ephemeral-storage"))
        self.unplaced: WeakSet[Demand] = WeakSet()
        """Demands with names that are not on the axis."""

    @property
    def is_full(self) -> bool:
        return len(self) >= MAX_RESOURCES


class Demand:
    """The requests of a pod, by resource name and by position on the resource axis.

    Only nodes add names to the axis: a resource that no node offers needs no column, however many
    such names pods request. When a node begins to offer one, the cache places the demands again
    (``ResourceAxis.unplaced``).
    """

    __slots__ = ("__weakref__", "pairs", "requests")

    def __init__(self, requests: Mapping[str, int], axis: ResourceAxis) -> None:
        self.requests = requests
        self.pairs: tuple[tuple[int, int], ...] = ()
        """Pairs of axis position, ascending, and amount."""
        self.place(axis)

    def place(self, axis: ResourceAxis) -> None:
        find = axis.find
        placed = ((find(name), amount) for name, amount in self.requests.items())
        self.pairs = tuple(sorted(pair for pair in placed if pair[0] >= 0))
        if len(self.pairs) < len(self.requests):
            axis.unplaced.add(self)
        else:
            axis.unplaced.discard(self)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Demand) and self.requests == other.requests)

    __hash__ = object.__hash__

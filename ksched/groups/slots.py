"""How many pods of a kind fit on each node: a bound that proves a group impossible in one pass.

Only amounts and the node objects are read. Neither can improve while members of the group are
placed: if all nodes together have too few slots, the group fits in no order, whatever the other
filters return. Results are cached until the table changes, so a thousand groups of one kind that do
not fit cost one pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.cache.node_table import NodeTable
from ksched.cache.recently_used import RecentlyUsed

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

KINDS_REMEMBERED = 1024
PODS = "pods"
MOST_ON_A_NODE = 1 << 40
"""A node may allow as many pods as can be written; the sum of such numbers could not be."""


class Slots(NamedTuple):
    """The number of pods of a kind that fit, by node."""

    by_row: Ints
    total: int
    scarcest: str
    """The resource that allows the fewest pods; ``pods`` for the nodes' limits of pods."""
    rejectors: frozenset[str] = frozenset()
    """The filters that reject nodes."""
    open_rows: Bools | None = None
    """Where the filters of node objects reject no pod of the kind; everywhere if it is missing."""


def count_slots(
    table: NodeTable,
    requests: Mapping[str, int],
    open_rows: Bools,
    rejectors: frozenset[str] = frozenset(),
) -> Slots:
    """Count how many pods with these requests fit on each of ``open_rows``."""
    nodes = len(table)
    room = np.clip(table.allowed_pods[:nodes] - table.pod_count[:nodes], 0, MOST_ON_A_NODE)
    by_row: Ints = np.where(open_rows, room, 0)
    scarcest, least = PODS, int(by_row.sum())
    for resource, amount in requests.items():
        if amount <= 0:
            continue
        position = table.axis.find(resource)
        if position < 0:
            return Slots(np.zeros(nodes, np.int64), 0, resource, rejectors, open_rows)
        free = table.allocatable[position][:nodes] - table.requested[position][:nodes]
        fitting = np.where(open_rows, np.maximum(free, 0) // amount, 0)
        alone = int(np.minimum(fitting, room).sum())
        if alone < least:
            scarcest, least = resource, alone
        by_row = np.minimum(by_row, fitting)
    return Slots(by_row, int(by_row.sum()), scarcest, rejectors, open_rows)


def lacking(table: NodeTable, wanted: Mapping[str, int]) -> tuple[str, int] | None:
    """The first resource of which less than ``wanted`` is free on all nodes, and how much is."""
    nodes = len(table)
    is_open = ~table.unschedulable[:nodes]
    for resource, amount in wanted.items():
        position = table.axis.find(resource)
        free = 0
        if resource == PODS:
            room = table.allowed_pods[:nodes] - table.pod_count[:nodes]
            free = sum(np.maximum(room, 0)[is_open].tolist())
        elif position >= 0:
            left = table.allocatable[position][:nodes] - table.requested[position][:nodes]
            free = sum(np.maximum(left, 0)[is_open].tolist())
        if free < amount:
            return resource, free
    return None


class CountedSlots:
    """Slots by kind of pod, cached until the table changes."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._generation = -1
        self._slots: RecentlyUsed[Hashable, Slots] = RecentlyUsed()

    def get(self, kind: Hashable) -> Slots | None:
        """Return the cached slots of a kind, if the table has not changed since."""
        if self._table.row_log.generation != self._generation:
            self._slots = RecentlyUsed()
            self._generation = self._table.row_log.generation
        return self._slots.get(kind)

    def put(self, kind: Hashable, slots: Slots) -> None:
        assert self._table.row_log.generation == self._generation, "get comes first"
        self._slots.put(kind, slots, KINDS_REMEMBERED)

    def clear(self) -> None:
        self._slots.clear()

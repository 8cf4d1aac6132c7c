"""The topology domain of each node, shared by all counters of a label."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import NEVER, ChangeLog
from ksched.cache.interning import Vocabulary
from ksched.cache.node_table import NodeRows, NodeTable
from ksched.tuning import MANY_CHANGES

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Ids = NDArray[np.intp]

Eligible = Callable[[NodeRows], Bools]
"""Marks the eligible nodes; may depend on nothing but the node objects."""

Move = tuple[int, int, int]
"""A row, its previous domain and its new one; ``OUTSIDE`` for none."""

ABSENT = 0
"""Number of the domain of nodes that lack the topology label."""

OUTSIDE = -1
"""The domain of a row that is not eligible or was removed."""


class TopologyDomains:
    """The domain of each row of a node table, by the nodes' value of one label.

    Domains are numbered like the values in the table's label column; ``ABSENT`` is the number of
    nodes without the label. Only eligible nodes count. Arrays by domain have ``width`` elements,
    more than there are values: the last belongs to no domain, so that index -1, an unknown value,
    reads zero.
    """

    def __init__(self, table: NodeTable, topology_key: str, eligible: Eligible | None) -> None:
        self.table = table
        self.topology_key = topology_key
        self._eligible = eligible
        self.generation = 0
        """Grows when the domain or eligibility of a node changes, or the number of nodes or
        domains."""
        self.moves: ChangeLog[Move] = ChangeLog()
        """Rows whose domain changed; cleared when everything may have changed."""
        self.width = 1
        self.nodes: Ints = np.zeros(1, np.int64)
        """Eligible nodes by domain; a domain exists if it has one."""
        self.counting_in: list[int] = []
        """The domain of each row, or ``OUTSIDE``; as long as the table's columns."""
        self._size = 0
        self._read = NEVER
        self._vocabulary: Vocabulary[str | None] = Vocabulary()
        self._ids: Ids = np.zeros(0, np.intp)
        self._known_ids: tuple[Ids | None, int, Ids] = (None, 0, self._ids)
        self._present: tuple[Ids, list[int]] = (self._ids, [])
        self._rows_by_domain: tuple[int, Ids, Ids] = (-1, self._ids, self._ids)

    # -- reading --------------------------------------------------------------------------------

    def find(self, value: str | None) -> int:
        """Return the number of a label value, -1 if no node has it."""
        return self._vocabulary.find(value)

    @property
    def all_ids(self) -> Ids:
        """Return the domain of every row of the table, eligible or not."""
        return self._ids[: self._size]

    def ids(self, nodes: NodeRows) -> Ids:
        """Return the domain of each of some nodes; they may be an overlay."""
        rows = nodes.rows
        if nodes.table is not self.table:
            column = nodes.label(self.topology_key)
            renumbered = np.array([self.find(value) for value in column.values], np.intp)
            return renumbered[column.ids]
        if rows is None:
            return self.all_ids
        if len(rows) == 1:
            return self._ids[nodes.index]
        # The runtime passes the same array from cycle to cycle while the feasible set is unchanged.
        known_rows, generation, known = self._known_ids
        if known_rows is not rows or generation != self.generation:
            known = self._ids.take(rows)
            self._known_ids = (rows, self.generation, known)
        return known

    def present(self, ids: Ids) -> list[int]:
        """Return the distinct domains in a result of ``ids``, ascending."""
        known, present = self._present
        if known is not ids:
            present = np.bincount(ids).nonzero()[0].tolist()
            self._present = (ids, present)
        return present

    def rows_in(self, domains: list[int]) -> Ids:
        """Return the rows of some domains, in no particular order."""
        generation, order, starts = self._rows_by_domain
        if generation != self.generation:
            ids = self.all_ids
            order = np.argsort(ids, kind="stable")
            starts = np.searchsorted(ids[order], np.arange(self.width + 1))
            self._rows_by_domain = (self.generation, order, starts)
        start_of = starts.item
        found = [order[start_of(domain) : start_of(domain + 1)] for domain in domains]
        return found[0] if len(found) == 1 else np.concatenate(found)

    # -- updates --------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply changes of nodes."""
        table = self.table
        if table.node_log.generation == self._read:
            return
        size = len(table.infos)
        column = table.label_column(self.topology_key)
        moved = table.node_log.since(self._read)
        if (
            moved is None
            or column.vocabulary is not self._vocabulary
            or len(moved) > MANY_CHANGES + size // 8
        ):
            self._start_over()
        else:
            self._reserve(len(column.vocabulary))
            if size != self._size:
                self.generation += 1
            for row in range(size, self._size):
                self._put(row, ABSENT, OUTSIDE)
            rows = [row for row in moved if row < size]
            inside = [True] * len(rows)
            if self._eligible is not None and rows:
                inside = self._eligible(table.some(np.array(rows, np.intp))).tolist()
            for row, is_inside in zip(rows, inside, strict=True):
                domain = int(column.ids[row])
                self._put(row, domain, domain if is_inside else OUTSIDE)
        self._size = size
        self._read = table.node_log.generation

    def _put(self, row: int, domain: int, counting_in: int) -> None:
        before = self.counting_in[row]
        if self._ids[row] != domain or before != counting_in:
            self._ids[row] = domain
            self.generation += 1
        if before != counting_in:
            self.counting_in[row] = counting_in
            self.moves.append((row, before, counting_in))
            if before != OUTSIDE:
                self.nodes[before] -= 1
            if counting_in != OUTSIDE:
                self.nodes[counting_in] += 1

    def _start_over(self) -> None:
        table = self.table
        column, size = table.label_column(self.topology_key), len(table.infos)
        inside = np.ones(size, np.bool_)
        if self._eligible is not None:
            inside = self._eligible(table.all())
        self._vocabulary = column.vocabulary
        self.width = _width(len(column.vocabulary))
        capacity = table.pod_count.shape[0]
        self._ids = np.zeros(capacity, np.intp)
        ids = self._ids[:size]
        ids[:] = column.ids[:size]
        self.nodes = np.bincount(ids[inside], minlength=self.width).astype(np.int64)
        self.counting_in = np.where(inside, ids, OUTSIDE).tolist()
        self.counting_in += [OUTSIDE] * (capacity - size)
        self.generation += 1
        self.moves.forget()

    def _reserve(self, values: int) -> None:
        """Grow for more values and rows; both only grow until the next rebuild."""
        width, capacity = _width(values), self.table.pod_count.shape[0]
        if width > self.width:
            self.width = width
            self.nodes = longer(self.nodes, width)
            self.generation += 1
        if capacity > len(self._ids):
            self._ids = longer(self._ids, capacity)
            self.counting_in += [OUTSIDE] * (capacity - len(self.counting_in))


def longer(array: Ints, length: int) -> Ints:
    """Return the array padded with zeros."""
    grown = np.zeros(length, array.dtype)
    grown[: len(array)] = array
    return grown


def _width(values: int) -> int:
    """Length of arrays by domain: at least one spare element, and rarely a new length."""
    return 1 << values.bit_length()

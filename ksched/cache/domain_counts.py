"""Sums of a pod counter over the nodes of each topology domain; see ``pod_counts``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import ChangeLog
from ksched.cache.interning import Vocabulary

if TYPE_CHECKING:
    from ksched.cache.columns import NodeRows
    from ksched.cache.pod_counts import PodChange, PodCounts

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Ids = NDArray[np.intp]

Eligible = Callable[["NodeRows"], Bools]
"""Marks the nodes that count; may depend on nothing but the node objects."""

ABSENT = 0
"""Number of the domain of nodes that lack the topology label."""

FEW = 64
"""Up to this many domains Python adds up faster than NumPy."""

MANY = 64
"""From this many changes on, and more in large clusters, counting anew is quicker."""

_layouts = count(1)


class DomainCounts:
    """The matching pods of each topology domain: of all eligible nodes with one label value.

    Domains are numbered by the values' numbers in the table's label column; ``ABSENT`` stands for
    nodes without the label. Arrays by domain are longer than there are values: the last element
    never belongs to a domain, so that an unknown value, numbered -1, has no pods.
    """

    def __init__(self, pods: PodCounts, topology_key: str, eligible: Eligible | None) -> None:
        self.pods = pods
        self.topology_key = topology_key
        self._table = pods.ledger.table
        self._eligible = eligible
        self.layout = 0
        """Changes whenever the domain or eligibility of some node does."""
        self.log = ChangeLog()
        """Domains whose number of pods changed."""
        self.counts: Ints = np.zeros(1, np.int64)
        """Matching pods on eligible nodes, by domain."""
        self.nodes: Ints = np.zeros(1, np.int64)
        """Eligible nodes by domain; a domain exists if it has one."""
        self.total = 0
        """Matching pods on eligible nodes that have the label."""
        self._stamp = (-1, 0)
        self._position = -1
        self._node_position = -1
        self._vocabulary: Vocabulary[str | None] = Vocabulary()
        # What each row contributes now: lists, because single elements are read and written. As
        # long as the table's own columns: a row that is gone is in no domain and has no pods.
        self._size = 0
        self._domain_of: list[int] = []
        self._inside: list[bool] = []
        self._counted: list[int] = []
        self._ids: Ids = np.zeros(0, np.intp)
        self._known_ids: tuple[Ids | None, int, Ids] = (None, 0, self._ids)
        self._present: tuple[Ids, list[int]] = (self._ids, [])
        self._rows_by_domain: tuple[int, Ids, Ids] = (-1, self._ids, self._ids)
        self._summary: tuple[int, int] | None = None

    # -- reading --------------------------------------------------------------------------------

    def find(self, value: str | None) -> int:
        """The number of a label value, -1 if no node has it."""
        return self._vocabulary.find(value)

    @property
    def all_ids(self) -> Ids:
        """The domain of every row of the table, eligible or not."""
        return self._ids[: self._size]

    def ids(self, nodes: NodeRows) -> Ids:
        """The domain of each of some nodes; they may be an overlay."""
        rows = nodes.rows
        if nodes.table is not self._table:
            column = nodes.label(self.topology_key)
            renumbered = np.array([self.find(value) for value in column.values], np.intp)
            return renumbered[column.ids]
        if rows is None:
            return self.all_ids
        if len(rows) == 1:
            return self._ids[nodes.index]
        # From cycle to cycle the runtime passes the same array while the same nodes are feasible.
        known_rows, layout, known = self._known_ids
        if known_rows is not rows or layout != self.layout:
            known = self._ids.take(rows)
            self._known_ids = (rows, self.layout, known)
        return known

    def present(self, ids: Ids) -> list[int]:
        """The distinct domains among an answer of ``ids``, ascending."""
        known, present = self._present
        if known is not ids:
            present = np.bincount(ids).nonzero()[0].tolist()
            self._present = (ids, present)
        return present

    def rows_in(self, domains: list[int]) -> Ids:
        """The rows of some domains, in no particular order."""
        layout, order, starts = self._rows_by_domain
        if layout != self.layout:
            ids = self.all_ids
            order = np.argsort(ids, kind="stable")
            starts = np.searchsorted(ids[order], np.arange(len(self.counts) + 1))
            self._rows_by_domain = (self.layout, order, starts)
        found = [order[starts[domain] : starts[domain + 1]] for domain in domains]
        return found[0] if len(found) == 1 else np.concatenate(found)

    @property
    def domains(self) -> int:
        """How many domains there are."""
        return self._summarize()[0]

    @property
    def lowest(self) -> int:
        """The number of pods in the emptiest domain, 0 without any domain."""
        return self._summarize()[1]

    def _summarize(self) -> tuple[int, int]:
        if self._summary is None:
            self._summary = summarize(self.counts, self.nodes)
        return self._summary

    # -- catching up ----------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Take over what the ledger knows."""
        ledger = self.pods.ledger
        stamp = ledger.stamp
        if stamp is self._stamp:
            return
        changes = ledger.since(self._position)
        if changes is None or len(changes) > MANY + stamp[1] // 8:
            self._start_over()
        elif self._table.node_log.position == self._node_position and stamp[1] == self._size:
            self._recount(changes)
        else:
            self._look_again(changes)
        self._position, self._stamp = ledger.position, stamp

    def _recount(self, changes: list[PodChange]) -> None:
        """Take over new numbers of pods."""
        pods = self.pods
        for row, template, running, terminating in changes:
            weight = pods.weights.get(template.number)
            if weight is None:
                weight = pods.weigh(template)
            if weight:
                more = weight * (running + terminating if pods.include_terminating else running)
                self._counted[row] += more
                if more and self._inside[row]:
                    self._add_pods(self._domain_of[row], more)

    def _look_again(self, changes: list[PodChange]) -> None:
        """Catch up after changes of nodes too."""
        table = self._table
        column = table.label_column(self.topology_key)
        moved = table.node_log.since(self._node_position)
        if (
            moved is None
            or column.vocabulary is not self._vocabulary
            or len(moved) > MANY + len(table.infos) // 8
        ):
            self._start_over()
            return
        self._reserve(len(column.vocabulary))
        self._recount(changes)
        size, self._size = self._size, len(table.infos)
        for row in range(self._size, size):
            self._put(row, ABSENT, False)
        rows = [row for row in moved if row < self._size]
        inside = [True] * len(rows)
        if self._eligible is not None and rows:
            inside = self._eligible(table.some(np.array(rows, np.intp))).tolist()
        for row, is_inside in zip(rows, inside, strict=True):
            self._put(row, int(column.ids[row]), is_inside)
        self._node_position = table.node_log.position

    def _put(self, row: int, domain: int, is_inside: bool) -> None:
        """Move a row, with its pods, to another domain, in or out."""
        was_domain, was_inside = self._domain_of[row], self._inside[row]
        if was_domain == domain and was_inside is is_inside:
            return
        self._domain_of[row], self._inside[row] = domain, is_inside
        self._ids[row] = domain
        pods = self._counted[row]
        if was_inside:
            self.nodes[was_domain] -= 1
            self._add_pods(was_domain, -pods)
        if is_inside:
            self.nodes[domain] += 1
            self._add_pods(domain, pods)
        self._summary = None
        self.layout = next(_layouts)

    def _add_pods(self, domain: int, more: int) -> None:
        self.log.append(domain)
        count = int(self.counts[domain])
        self.counts[domain] = count + more
        if domain != ABSENT:
            self.total += more
            summary = self._summary
            if summary is not None and (count == summary[1] or count + more < summary[1]):
                self._summary = None

    def _start_over(self) -> None:
        table, pods = self._table, self.pods
        column, size = table.label_column(self.topology_key), len(table.infos)
        inside = np.ones(size, np.bool_)
        if self._eligible is not None:
            inside = self._eligible(table.all())
        capacity = table.pod_count.shape[0]
        self._ids = np.zeros(capacity, np.intp)
        ids = self._ids[:size]
        ids[:] = column.ids[:size]
        pods.catch_up()
        counted = pods.counts
        width = _width(len(column.vocabulary))
        self.nodes = np.bincount(ids[inside], minlength=width).astype(np.int64)
        self.counts = np.bincount(ids[inside], counted[inside], width).astype(np.int64)
        self.total = int(self.counts[ABSENT + 1 :].sum())
        self._size = size
        self._domain_of, self._inside, self._counted = (
            ids.tolist(),
            inside.tolist(),
            counted.tolist(),
        )
        self._lengthen(capacity)
        self._summary = None
        self.layout = next(_layouts)
        self.log.forget()
        self._node_position, self._vocabulary = table.node_log.position, column.vocabulary

    def _reserve(self, values: int) -> None:
        width, capacity = _width(values), self._table.pod_count.shape[0]
        if width > len(self.counts):
            self.counts = _longer(self.counts, width)
            self.nodes = _longer(self.nodes, width)
        if capacity > len(self._ids):
            self._ids = _longer(self._ids, capacity)
            self._lengthen(capacity)

    def _lengthen(self, capacity: int) -> None:
        more = capacity - len(self._domain_of)
        self._domain_of += [ABSENT] * more
        self._inside += [False] * more
        self._counted += [0] * more


def _longer(array: Ints, length: int) -> Ints:
    grown = np.zeros(length, array.dtype)
    grown[: len(array)] = array
    return grown


def _width(values: int) -> int:
    """Length of arrays by domain: the same for all counters of a label, and one to spare."""
    return 1 << values.bit_length()


def summarize(counts: Ints, nodes: Ints) -> tuple[int, int]:
    """Number of domains, and the pods of the emptiest; nodes without the label are in none."""
    if len(counts) <= FEW:
        pairs = zip(counts.tolist()[ABSENT + 1 :], nodes.tolist()[ABSENT + 1 :], strict=True)
        present = [pods for pods, number in pairs if number]
        return (len(present), min(present)) if present else (0, 0)
    has_nodes = nodes[ABSENT + 1 :] > 0
    domains = int(np.count_nonzero(has_nodes))
    return (domains, int(counts[ABSENT + 1 :][has_nodes].min())) if domains else (0, 0)

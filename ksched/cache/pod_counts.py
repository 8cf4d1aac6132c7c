"""How many pods of a kind run where: counters that follow the node table change by change.

Spreading and inter-pod affinity ask, for every pod, how many matching pods each zone, host or rack
has. Counting anew would walk all pods; here a placement costs each counter a few steps, however
many pods there are. Three layers, each of which reads the log of the one below at its own pace:

    PodLedger     which templates run on which rows; one for a node table
    PodCounts     how many matching pods each row has; one for a selector
    DomainCounts  the sums over the rows of each topology domain; one for a selector, a topology
                  key and a choice of nodes that count

A counter that is not asked costs nothing; one that was not asked for too long starts over. Does not
belong here: what a plugin makes of the numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import ChangeLog
from ksched.cache.pod_info import PodTemplate

if TYPE_CHECKING:
    from ksched.cache.columns import NodeRows, NodeTable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Ids = NDArray[np.intp]

PodChange = tuple[int, PodTemplate, int, int]
"""A row, a template, and how many pods more of it run or terminate there."""

Matches = Callable[[PodTemplate], int]
"""How much a pod of a template counts; 0 for a pod that does not match."""

Eligible = Callable[["NodeRows"], Bools]
"""Marks the nodes that count; may depend on nothing but the node objects."""

ABSENT = 0
"""Number of the domain of nodes that lack the topology label."""

_versions = count(1)
_NO_PODS: dict[PodTemplate, int] = {}


class PodLedger:
    """Which templates run on which rows of a node table, and the log of every change.

    ``running`` and ``terminating`` map a template to its pods by row; templates without pods are
    not in them. All counters of a table are made here, so that equal ones are shared.
    """

    def __init__(self, table: NodeTable, limit: int = 4096) -> None:
        self.table = table
        self.running: dict[PodTemplate, dict[int, int]] = {}
        self.terminating: dict[PodTemplate, dict[int, int]] = {}
        self._seen: list[tuple[dict[PodTemplate, int], dict[PodTemplate, int]]] = []
        self._read_position = -1
        self._limit = limit
        self._log: list[PodChange] = []
        self._dropped = 0
        self._pods: WeakValueDictionary[Hashable, PodCounts] = WeakValueDictionary()
        self._domains: WeakValueDictionary[Hashable, DomainCounts] = WeakValueDictionary()

    def has(self, template: PodTemplate) -> bool:
        return template in self.running or template in self.terminating

    def templates(self) -> Iterator[PodTemplate]:
        """All templates with a pod somewhere, each once."""
        yield from self.running
        for template in self.terminating:
            if template not in self.running:
                yield template

    # -- reading --------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self._dropped + len(self._log)

    def since(self, position: int) -> list[PodChange] | None:
        """Changes after ``position``; ``None`` if that is too long ago to tell."""
        start = position - self._dropped
        return self._log[start:] if start >= 0 else None

    def pod_counts(
        self, key: Hashable, matches: Matches, *, include_terminating: bool
    ) -> PodCounts:
        """Return the counter of matching pods; the key stands for the meaning of ``matches``."""
        full_key = (key, include_terminating)
        counts = self._pods.get(full_key)
        if counts is None:
            counts = PodCounts(self, matches, include_terminating)
            self._pods[full_key] = counts
        return counts

    def domain_counts(
        self,
        pods: PodCounts,
        topology_key: str,
        eligible_key: Hashable = None,
        eligible: Eligible | None = None,
    ) -> DomainCounts:
        """Return the sums of a counter by topology value; ``eligible_key`` as for the pods."""
        key = (pods, topology_key, eligible_key)
        counts = self._domains.get(key)
        if counts is None:
            counts = DomainCounts(pods, topology_key, eligible)
            self._domains[key] = counts
        return counts

    # -- catching up ----------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Log what changed in the table since the last call."""
        table, seen = self.table, self._seen
        position, size = table.row_log.position, len(table)
        if position == self._read_position and size == len(seen):
            return
        dirty = table.row_log.since(self._read_position)
        # The log does not name rows that were cut off at the end.
        for row in range(size, len(seen)):
            self._note(row, seen[row], (_NO_PODS, _NO_PODS))
        del seen[size:]
        seen.extend([(_NO_PODS, _NO_PODS)] * (size - len(seen)))
        for row in range(size) if dirty is None else dirty.tolist():
            if row < size:
                info = table.infos[row]
                now = (info.running, info.terminating)
                self._note(row, seen[row], now)
                seen[row] = now
        self._read_position = position
        if len(self._log) > 2 * self._limit:
            surplus = len(self._log) - self._limit
            del self._log[:surplus]
            self._dropped += surplus

    def _note(
        self,
        row: int,
        before: tuple[dict[PodTemplate, int], dict[PodTemplate, int]],
        after: tuple[dict[PodTemplate, int], dict[PodTemplate, int]],
    ) -> None:
        log = self._log
        for template, more in _differences(before[0], after[0]):
            _count(self.running, template, row, more)
            log.append((row, template, more, 0))
        for template, more in _differences(before[1], after[1]):
            _count(self.terminating, template, row, more)
            log.append((row, template, 0, more))


def _differences(before: dict[K, int], after: dict[K, int]) -> Iterator[tuple[K, int]]:
    # Published dictionaries are never changed, only replaced.
    if before is after:
        return
    for key, number in after.items():
        more = number - before.get(key, 0)
        if more:
            yield key, more
    for key, number in before.items():
        if key not in after:
            yield key, -number


def _count(
    rows_of: dict[PodTemplate, dict[int, int]], template: PodTemplate, row: int, more: int
) -> None:
    rows = rows_of.get(template)
    if rows is None:
        rows = rows_of[template] = {}
    number = rows.get(row, 0) + more
    if number:
        rows[row] = number
        return
    del rows[row]
    if not rows:
        del rows_of[template]


class PodCounts:
    """The matching pods of each row.

    ``log`` names rows whose count changed; a new ``generation`` says that all may have.
    """

    def __init__(self, ledger: PodLedger, matches: Matches, include_terminating: bool) -> None:
        self.ledger = ledger
        self._matches = matches
        self._include_terminating = include_terminating
        self.generation = 0
        self.log = ChangeLog()
        self._position = -1
        self._counts = np.zeros(0, np.int64)

    @property
    def counts(self) -> Ints:
        """Matching pods by row; a view, valid until the next ``catch_up``."""
        return self._counts[: len(self.ledger.table)]

    def catch_up(self) -> None:
        ledger = self.ledger
        ledger.catch_up()
        if ledger.position == self._position:
            if len(self._counts) < len(ledger.table):
                self._reserve()
            return
        changes = ledger.since(self._position)
        self._position = ledger.position
        if changes is None:
            self._start_over()
            return
        self._reserve()
        for row, template, running, terminating in changes:
            more = running + terminating if self._include_terminating else running
            if not more:
                continue
            weight = self._matches(template)
            if weight:
                self._counts[row] += weight * more
                self.log.append(row)

    def _reserve(self) -> None:
        # As large as the table's own columns, which never shrink: every logged row is inside.
        capacity = self.ledger.table.pod_count.shape[0]
        if capacity > len(self._counts):
            grown = np.zeros(capacity, np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown

    def _start_over(self) -> None:
        self._counts = np.zeros(self.ledger.table.pod_count.shape[0], np.int64)
        self.generation += 1
        sources = [self.ledger.running]
        if self._include_terminating:
            sources.append(self.ledger.terminating)
        for source in sources:
            for template, rows in source.items():
                weight = self._matches(template)
                if weight:
                    where = np.fromiter(rows, np.intp, len(rows))
                    numbers = np.fromiter(rows.values(), np.int64, len(rows))
                    self._counts[where] += weight * numbers


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
        self.version = 0
        """Changes whenever a number, or the domain or eligibility of some node, does."""
        self.counts: Ints = np.zeros(1, np.int64)
        """Matching pods on eligible nodes, by domain."""
        self.nodes: Ints = np.zeros(1, np.int64)
        """Eligible nodes by domain; a domain exists if it has one."""
        self._vocabulary: object = None
        self._pods_generation = -1
        self._pods_position = 0
        self._node_position = -1
        self._size = 0
        self._ids: Ids = np.zeros(0, np.intp)
        self._inside: Bools = np.zeros(0, np.bool_)
        self._counted: Ints = np.zeros(0, np.int64)
        self._summary: tuple[int, int, int] = (-1, 0, 0)

    # -- reading --------------------------------------------------------------------------------

    def find(self, value: str | None) -> int:
        """The number of a label value, -1 if no node has it."""
        return self._table.label_column(self.topology_key).vocabulary.find(value)

    def ids(self, nodes: NodeRows) -> Ids:
        """The domain of each node, eligible or not; the nodes may be an overlay."""
        if nodes.table is self._table:
            size = self._size
            ids: Ids = self._ids[:size] if nodes.rows is None else self._ids.take(nodes.rows)
            return ids
        column = nodes.label(self.topology_key)
        renumbered = np.array([self.find(value) for value in column.values], np.intp)
        return renumbered[column.ids]

    @property
    def domains(self) -> int:
        """How many domains there are."""
        return self._summarize()[1]

    @property
    def lowest(self) -> int:
        """The number of pods in the emptiest domain, 0 without any domain."""
        return self._summarize()[2]

    def _summarize(self) -> tuple[int, int, int]:
        if self._summary[0] != self.version:
            self._summary = (self.version, *summarize(self.counts, self.nodes))
        return self._summary

    # -- catching up ----------------------------------------------------------------------------

    def catch_up(self) -> None:
        self.pods.catch_up()
        table = self._table
        column = table.label_column(self.topology_key)
        moved = table.node_log.since(self._node_position)
        recounted = self.pods.log.since(self._pods_position)
        size = len(table)
        start_over = (
            moved is None
            or recounted is None
            or column.vocabulary is not self._vocabulary
            or self.pods.generation != self._pods_generation
            or len(moved) + len(recounted) > 64 + size // 8
        )
        self._node_position = table.node_log.position
        self._pods_position = self.pods.log.position
        self._pods_generation = self.pods.generation
        self._vocabulary = column.vocabulary
        if start_over or moved is None or recounted is None:
            self._start_over(column.ids[:size], len(column.vocabulary))
            return
        if not len(moved) and not len(recounted) and size == self._size:
            return
        self._reserve(len(column.vocabulary))
        for row in range(size, self._size):
            self._put(row, ABSENT, False, 0)
        self._size = size
        moved = moved[moved < size]
        if len(moved):
            self._move(moved, column.ids)
        counts = self.pods.counts
        for row in recounted.tolist():
            if row < size:
                self._put(row, int(self._ids[row]), bool(self._inside[row]), int(counts[row]))

    def _move(self, rows: Ids, ids: NDArray[np.int32]) -> None:
        inside = [True] * len(rows)
        if self._eligible is not None:
            inside = self._eligible(self._table.some(rows)).tolist()
        counts = self.pods.counts
        for row, is_inside in zip(rows.tolist(), inside, strict=True):
            self._put(row, int(ids[row]), is_inside, int(counts[row]))

    def _put(self, row: int, domain: int, is_inside: bool, pods: int) -> None:
        """Replace what a row contributes."""
        was_domain, was_inside = int(self._ids[row]), bool(self._inside[row])
        was_pods = int(self._counted[row])
        if (was_domain, was_inside, was_pods) == (domain, is_inside, pods):
            return
        if was_inside:
            self.nodes[was_domain] -= 1
            self.counts[was_domain] -= was_pods
        if is_inside:
            self.nodes[domain] += 1
            self.counts[domain] += pods
        self._ids[row], self._inside[row], self._counted[row] = domain, is_inside, pods
        self.version = next(_versions)

    def _start_over(self, ids: NDArray[np.int32], values: int) -> None:
        size = len(ids)
        inside = np.ones(size, np.bool_)
        if self._eligible is not None:
            inside = self._eligible(self._table.all())
        capacity, width = self._table.pod_count.shape[0], _width(values)
        self._size = size
        self._ids = np.zeros(capacity, np.intp)
        self._ids[:size] = ids
        self._inside = np.zeros(capacity, np.bool_)
        self._inside[:size] = inside
        self._counted = np.zeros(capacity, np.int64)
        self._counted[:size] = self.pods.counts
        chosen = self._ids[:size][inside]
        self.nodes = np.bincount(chosen, minlength=width).astype(np.int64)
        counted = np.bincount(chosen, self._counted[:size][inside], width)
        self.counts = counted.astype(np.int64)
        self.version = next(_versions)

    def _reserve(self, values: int) -> None:
        width, capacity = _width(values), self._table.pod_count.shape[0]
        if width > len(self.counts):
            self.counts = _longer(self.counts, width)
            self.nodes = _longer(self.nodes, width)
        if capacity > len(self._ids):
            self._ids = _longer(self._ids, capacity)
            self._inside = _longer(self._inside, capacity)
            self._counted = _longer(self._counted, capacity)


A = TypeVar("A", Ints, Bools, Ids)


def _longer(array: A, length: int) -> A:
    grown: A = np.zeros(length, array.dtype)
    grown[: len(array)] = array
    return grown


def _width(values: int) -> int:
    """Length of arrays by domain: the same for all counters of a label, and one to spare."""
    return 1 << values.bit_length()


def summarize(counts: Ints, nodes: Ints) -> tuple[int, int]:
    """Number of domains, and the pods of the emptiest; nodes without the label are in none."""
    present = nodes[ABSENT + 1 :] > 0
    domains = int(np.count_nonzero(present))
    if not domains:
        return 0, 0
    return domains, int(counts[ABSENT + 1 :][present].min())


KEPT_BYTES = 48 << 20
"""Memory for what one plugin keeps of all templates."""

_BYTES_PER_NODE = 64
"""Roughly what the counters of one template take for each node."""


class PerTemplate(Generic[V]):
    """What a plugin keeps for templates, counters above all.

    The template unused for longest makes room. Counters are shared between templates and live as
    long as somebody keeps them.
    """

    def __init__(self) -> None:
        self._ledger: PodLedger | None = None
        self._kept: OrderedDict[PodTemplate, V] = OrderedDict()

    def get(self, ledger: PodLedger, template: PodTemplate) -> V | None:
        if ledger is not self._ledger:
            self._ledger = ledger
            self._kept.clear()
        kept = self._kept.get(template)
        if kept is not None:
            self._kept.move_to_end(template)
        return kept

    def put(self, template: PodTemplate, kept: V) -> None:
        """Keep something for a template; call after ``get``."""
        self._kept[template] = kept
        nodes = 1 if self._ledger is None else max(len(self._ledger.table), 1)
        room = max(KEPT_BYTES // (_BYTES_PER_NODE * nodes), 8)
        while len(self._kept) > room:
            self._kept.popitem(last=False)

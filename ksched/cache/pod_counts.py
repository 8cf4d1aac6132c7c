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

_OnRow = tuple[dict[PodTemplate, int], dict[PodTemplate, int]]
"""Pods of a row by template: running, terminating."""

_versions = count(1)
_NOTHING: _OnRow = ({}, {})


class PodLedger:
    """Which templates run on which rows of a node table, and the log of every change.

    ``running`` and ``terminating`` map a template to its pods by row; templates without pods are
    not in them. All counters of a table are made here, so that equal ones are shared.
    """

    def __init__(self, table: NodeTable, limit: int = 4096) -> None:
        self.table = table
        self.running: dict[PodTemplate, dict[int, int]] = {}
        self.terminating: dict[PodTemplate, dict[int, int]] = {}
        self._seen: list[_OnRow] = []
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
        infos, log = table.infos, table.row_log
        position, size = log.position, len(infos)
        if position == self._read_position and size == len(seen):
            return
        dirty = log.tail(self._read_position)
        # The log does not name rows that were cut off at the end.
        for row in range(size, len(seen)):
            self._note(row, seen[row], _NOTHING)
        del seen[size:]
        seen.extend([_NOTHING] * (size - len(seen)))
        for row in range(size) if dirty is None else dirty:
            if row < size:
                info = infos[row]
                now = (info.running, info.terminating)
                self._note(row, seen[row], now)
                seen[row] = now
        self._read_position = position
        if len(self._log) > 2 * self._limit:
            surplus = len(self._log) - self._limit
            del self._log[:surplus]
            self._dropped += surplus

    def _note(self, row: int, before: _OnRow, after: _OnRow) -> None:
        running, terminating = after
        if running is not before[0]:
            for template, more in _differences(before[0], running):
                _count(self.running, template, row, more)
                self._log.append((row, template, more, 0))
        if terminating or before[1]:
            for template, more in _differences(before[1], terminating):
                _count(self.terminating, template, row, more)
                self._log.append((row, template, 0, more))


def _differences(before: dict[K, int], after: dict[K, int]) -> list[tuple[K, int]]:
    # Published dictionaries are never changed, only replaced.
    found = [
        (key, number - before.get(key, 0))
        for key, number in after.items()
        if before.get(key) != number
    ]
    if len(before) + len(found) > len(after):
        found += [(key, -number) for key, number in before.items() if key not in after]
    return found


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
            weight = self._matches(template) if more else 0
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
        self.layout = 0
        """Changes whenever the domain or eligibility of some node does."""
        self.log = ChangeLog()
        """Domains whose numbers changed, while the layout did not."""
        self.counts: Ints = np.zeros(1, np.int64)
        """Matching pods on eligible nodes, by domain."""
        self.nodes: Ints = np.zeros(1, np.int64)
        """Eligible nodes by domain; a domain exists if it has one."""
        self.total = 0
        """Matching pods on eligible nodes that have the label."""
        self._vocabulary: object = None
        self._positions = (-1, 0, -1, 0)
        """What was read: node log, log and generation of the pods, number of nodes."""
        self._size = 0
        self._ids: Ids = np.zeros(0, np.intp)
        self._inside: Bools = np.zeros(0, np.bool_)
        self._counted: Ints = np.zeros(0, np.int64)
        self._summary: tuple[int, int] | None = None
        self._known_ids: tuple[Ids | None, int, Ids] = (None, 0, self._ids)

    # -- reading --------------------------------------------------------------------------------

    def find(self, value: str | None) -> int:
        """The number of a label value, -1 if no node has it."""
        return self._table.label_column(self.topology_key).vocabulary.find(value)

    def ids(self, nodes: NodeRows) -> Ids:
        """The domain of each node, eligible or not; the nodes may be an overlay."""
        rows = nodes.rows
        if nodes.table is not self._table:
            column = nodes.label(self.topology_key)
            renumbered = np.array([self.find(value) for value in column.values], np.intp)
            return renumbered[column.ids]
        if rows is None:
            return self.all_ids
        # From cycle to cycle the runtime passes the same array while the same nodes are feasible.
        known_rows, layout, known = self._known_ids
        if known_rows is not rows or layout != self.layout:
            known = self._ids.take(rows)
            self._known_ids = (rows, self.layout, known)
        return known

    @property
    def all_ids(self) -> Ids:
        """The domain of every row of the table."""
        return self._ids[: self._size]

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
        pods, table = self.pods, self._table
        pods.catch_up()
        size = len(table.infos)
        vocabulary = table.label_column(self.topology_key).vocabulary
        positions = (table.node_log.position, pods.log.position, pods.generation, size)
        if positions == self._positions and vocabulary is self._vocabulary:
            return
        moved = table.node_log.tail(self._positions[0])
        recounted = pods.log.tail(self._positions[1])
        if (
            moved is None
            or recounted is None
            or vocabulary is not self._vocabulary
            or pods.generation != self._positions[2]
            or len(moved) + len(recounted) > 64 + size // 8
        ):
            self._start_over()
        else:
            self._reserve(len(vocabulary))
            for row in range(size, self._size):
                self._put(row, ABSENT, False, 0)
            self._size = size
            if moved:
                self._move([row for row in dict.fromkeys(moved) if row < size])
            counts = pods.counts
            for row in recounted:
                if row < size:
                    self._put(row, int(self._ids[row]), bool(self._inside[row]), int(counts[row]))
        self._positions = positions
        self._vocabulary = vocabulary

    def _move(self, rows: list[int]) -> None:
        """Look again at nodes that changed, or came."""
        inside = [True] * len(rows)
        if self._eligible is not None:
            inside = self._eligible(self._table.some(np.array(rows, np.intp))).tolist()
        ids, counts = self._table.label_column(self.topology_key).ids, self.pods.counts
        for row, is_inside in zip(rows, inside, strict=True):
            self._put(row, int(ids[row]), is_inside, int(counts[row]))

    def _put(self, row: int, domain: int, is_inside: bool, pods: int) -> None:
        """Replace what a row contributes."""
        was_domain, was_inside = int(self._ids[row]), bool(self._inside[row])
        was_pods = int(self._counted[row])
        if was_domain != domain or was_inside is not is_inside:
            self._ids[row], self._inside[row] = domain, is_inside
            self._add(was_domain, -int(was_inside), -was_pods if was_inside else 0)
            self._add(domain, int(is_inside), pods if is_inside else 0)
            self.layout = next(_versions)
        elif is_inside:
            self._add(domain, 0, pods - was_pods)
        self._counted[row] = pods

    def _add(self, domain: int, nodes: int, pods: int) -> None:
        if not nodes and not pods:
            return
        self.log.append(domain)
        if domain != ABSENT:
            self.total += pods
        summary = self._summary
        if nodes:
            self.nodes[domain] += nodes
            self._summary = None
        if not pods:
            return
        count = int(self.counts[domain])
        self.counts[domain] = count + pods
        if summary is not None and (count <= summary[1] or count + pods < summary[1]):
            self._summary = None

    def _start_over(self) -> None:
        size = len(self._table.infos)
        column = self._table.label_column(self.topology_key)
        inside = np.ones(size, np.bool_)
        if self._eligible is not None:
            inside = self._eligible(self._table.all())
        capacity = self._table.pod_count.shape[0]
        width = _width(len(column.vocabulary))
        self._size = size
        self._ids = np.zeros(capacity, np.intp)
        self._ids[:size] = column.ids[:size]
        self._inside = np.zeros(capacity, np.bool_)
        self._inside[:size] = inside
        self._counted = np.zeros(capacity, np.int64)
        self._counted[:size] = self.pods.counts
        chosen = self._ids[:size][inside]
        self.nodes = np.bincount(chosen, minlength=width).astype(np.int64)
        counted = np.bincount(chosen, self._counted[:size][inside], width)
        self.counts = counted.astype(np.int64)
        self.total = int(self.counts[ABSENT + 1 :].sum())
        self._summary = None
        self.layout = next(_versions)

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

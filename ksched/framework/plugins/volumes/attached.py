"""Incremental counters of the volumes on each node.

Recounting means resolving every claim of every pod of every node. Instead each row is counted once
and again when something changes that its count was read from: its node, its pods, one of their
claims, volumes or classes, or an attachment. A counter that is not read costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ksched.framework import Lister, NodeInfo, PodInfo
from ksched.framework.node_columns import NodeTable

Ints = NDArray[np.int64]
Volumes = dict[str, str]
"""Unique names of volumes, and the driver of each."""

NO_LIMIT = np.iinfo(np.int64).max


class Lookup(NamedTuple):
    """An object that was looked up, found or not."""

    lister: Lister[Any]
    key: str


class CannotCount(Exception):
    """The volumes of a pod cannot be determined; its text fails the pod's attempt."""


class Counting(Protocol):
    """What counts as a volume, and the limits of a node."""

    sources: tuple[Lister[Any], ...]
    """Listers whose objects determine a pod's volumes."""

    def volumes_of(self, pod: PodInfo, node_name: str, seen: set[Lookup]) -> Volumes:
        """Return the volumes of a running pod and record look-ups; raises ``CannotCount``."""
        ...

    def attached_to(self, node_name: str, seen: set[Lookup]) -> Volumes:
        """Return volumes attached to a node, whether or not a pod uses them."""
        ...

    def limits_of(self, info: NodeInfo) -> Mapping[str, int]:
        """Return the limit of each driver on a node; drivers without a limit are absent."""
        ...

    def changed_nodes(self) -> set[str] | None:
        """Return nodes whose attachments or limits changed since ``advance``; ``None`` for all."""
        ...

    def advance(self) -> None:
        """Mark the changed nodes as counted."""
        ...


class NodeVolumes(NamedTuple):
    """The volumes of one node."""

    of_pods: Volumes
    counts: Mapping[str, int]
    """Volumes by driver, attached ones included."""
    problem: str
    """Why they cannot be counted, if so."""


NOTHING = NodeVolumes({}, {}, "")


def count_node(counting: Counting, info: NodeInfo, seen: set[Lookup]) -> NodeVolumes:
    """Count the volumes of one node from scratch."""
    volumes: Volumes = {}
    problem = ""
    if has_volumes(info):
        try:
            for pod in info.pods.values():
                if pod.template.spec.volumes:
                    volumes.update(counting.volumes_of(pod, info.name, seen))
        except CannotCount as cause:
            problem = str(cause)
    attached = counting.attached_to(info.name, seen)
    if not volumes and not attached and not problem:
        return NOTHING
    counts = Counter(volumes.values())
    counts.update(driver for name, driver in attached.items() if name not in volumes)
    return NodeVolumes(volumes, counts, problem)


def has_volumes(info: NodeInfo) -> bool:
    return any(
        template.spec.volumes for pods in (info.running, info.terminating) for template in pods
    )


class AttachedVolumes:
    """The volumes of every row of a node table, as columns by driver.

    ``generation`` grows whenever a number, a limit or a problem changes.
    """

    def __init__(self, table: NodeTable, counting: Counting) -> None:
        self._table = table
        self._counting = counting
        self.generation = 0
        self.rows: list[NodeVolumes] = []
        self.limits: list[Mapping[str, int]] = []
        self.problems: dict[int, str] = {}
        self.rows_with: dict[str, set[int]] = {}
        """Rows by the unique names of the volumes that their pods use."""
        self._names: list[str] = []
        self._seen: list[frozenset[Lookup]] = []
        self._rows_seeing: dict[Lookup, set[int]] = {}
        self._counts: dict[str, Ints] = {}
        self._limits: dict[str, Ints] = {}
        self._row_changes = table.row_log.cursor()
        self._node_changes = table.node_log.cursor()
        self._source_changes = [(lister, lister.cursor()) for lister in counting.sources]

    # -- reading --------------------------------------------------------------------------------

    def count(self, driver: str) -> Ints | None:
        """Return the volumes of a driver by row; ``None`` if there are none."""
        column = self._counts.get(driver)
        return None if column is None else column[: len(self.rows)]

    def limit(self, driver: str) -> Ints | None:
        """Return the limit of a driver by row; ``None`` if no node has one."""
        column = self._limits.get(driver)
        return None if column is None else column[: len(self.rows)]

    # -- updates --------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Recount what changed since the last call."""
        table = self._table
        rows, node_rows = self._row_changes.changes(), self._node_changes.changes()
        self._resize(len(table))
        users, nodes = self._rows_with_changed_volumes(), self._counting.changed_nodes()
        if users is None or nodes is None or rows is None or node_rows is None:
            for row in range(len(table)):
                self._recount(row)
                self._limit(row)
        else:
            self._recount_some(rows, node_rows, users, nodes)
        self._row_changes.advance()
        self._node_changes.advance()
        for _, cursor in self._source_changes:
            cursor.advance()
        self._counting.advance()

    def _recount_some(
        self, rows: list[int], node_rows: list[int], users: set[int], nodes: set[str]
    ) -> None:
        table = self._table
        size = len(table)
        on_nodes = {table.rows[name] for name in nodes if name in table.rows}
        for row in {*node_rows, *on_nodes}:
            if row < size:
                self._limit(row)
        touched = {row for row in rows if row < size and self._may_differ(row)}
        for row in users | on_nodes | touched:
            self._recount(row)

    def _may_differ(self, row: int) -> bool:
        """Whether new pods or a new node on a row can have changed its volumes."""
        info = self._table.infos[row]
        return self._names[row] != info.name or self.rows[row] is not NOTHING or has_volumes(info)

    def _rows_with_changed_volumes(self) -> set[int] | None:
        """Return rows whose look-ups included changed storage objects; ``None`` for all rows."""
        found: set[int] = set()
        is_complete = True
        for lister, cursor in self._source_changes:
            keys = cursor.changes()
            if keys is None:
                is_complete = False
                continue
            for key in keys:
                found |= self._rows_seeing.get(Lookup(lister, key), set())
        return found if is_complete else None

    def _recount(self, row: int) -> None:
        info = self._table.infos[row]
        seen: set[Lookup] = set()
        after = count_node(self._counting, info, seen)
        self._names[row] = info.name
        self._put(row, after, frozenset(seen))

    def _put(self, row: int, after: NodeVolumes, seen: frozenset[Lookup]) -> None:
        for lookup in self._seen[row] - seen:
            _discard(self._rows_seeing, lookup, row)
        for lookup in seen - self._seen[row]:
            self._rows_seeing.setdefault(lookup, set()).add(row)
        self._seen[row] = seen
        before = self.rows[row]
        if after == before:
            return
        self.rows[row] = after
        self.generation += 1
        for name in before.of_pods.keys() - after.of_pods.keys():
            _discard(self.rows_with, name, row)
        for name in after.of_pods.keys() - before.of_pods.keys():
            self.rows_with.setdefault(name, set()).add(row)
        for driver in {*before.counts, *after.counts}:
            self._column(self._counts, driver, 0)[row] = after.counts.get(driver, 0)
        if after.problem:
            self.problems[row] = after.problem
        else:
            self.problems.pop(row, None)

    def _limit(self, row: int) -> None:
        before, after = self.limits[row], self._counting.limits_of(self._table.infos[row])
        if before == after:
            return
        self.limits[row] = after
        self.generation += 1
        for driver in {*before, *after}:
            self._column(self._limits, driver, NO_LIMIT)[row] = after.get(driver, NO_LIMIT)

    def _column(self, columns: dict[str, Ints], driver: str, default: int) -> Ints:
        column = columns.get(driver)
        if column is None or len(column) < len(self.rows):
            grown = np.full(max(self._table.pod_count.shape[0], len(self.rows)), default, np.int64)
            if column is not None:
                grown[: len(column)] = column
            column = columns[driver] = grown
        return column

    def _resize(self, size: int) -> None:
        for row in range(size, len(self.rows)):
            self._put(row, NOTHING, frozenset())
            for driver in self.limits[row]:
                self._limits[driver][row] = NO_LIMIT
        more = size - len(self.rows)
        if more > 0:
            self.rows += [NOTHING] * more
            self.limits += [{}] * more
            self._names += [""] * more
            self._seen += [frozenset()] * more
        elif more < 0:
            for column in (self.rows, self.limits, self._names, self._seen):
                del column[size:]
        if more:
            self.generation += 1
            for columns, default in ((self._counts, 0), (self._limits, NO_LIMIT)):
                for driver in columns:
                    self._column(columns, driver, default)


def _discard(rows_of: dict[Any, set[int]], key: Any, row: int) -> None:
    rows = rows_of[key]
    rows.discard(row)
    if not rows:
        del rows_of[key]

"""Node labels as columns: one per key that some node has and some selector uses."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Labels
from ksched.cache.change_log import RowLog
from ksched.cache.interning import InternedColumn
from ksched.cache.node_info import NodeInfo
from ksched.cache.recently_used import RecentlyUsed
from ksched.tuning import FEWEST_LABELS, LABELS_BYTES


class LabelledRows(Protocol):
    """The part of a node table that label columns read."""

    infos: list[NodeInfo]
    node_log: RowLog
    pod_count: NDArray[np.int64]


class LabelColumn(InternedColumn[str | None]):
    """Values of one label key; number 0 means the label is absent.

    Updated lazily from the table's log: a node update costs nothing here until the next read.
    """

    __slots__ = ("_changes", "_key", "_size", "_table")

    def __init__(self, table: LabelledRows, key: str) -> None:
        super().__init__(None, table.pod_count.shape[0])
        self._table = table
        self._key = key
        self._changes = table.node_log.cursor()
        self._size = 0

    def catch_up(self) -> None:
        if self._changes.is_current:
            return
        infos = self._table.infos
        size = len(infos)
        self.reserve(self._table.pod_count.shape[0])
        changed = self._changes.changes()
        if changed is None:
            self.fill([info.labels.get(self._key) for info in infos])
        else:
            for row in range(size, self._size):
                self.write(row, None)
            for row in changed:
                if row < size:
                    self.write(row, infos[row].labels.get(self._key))
        self._size = size
        self._changes.advance()


class NodeLabels:
    """The label keys of a table's nodes, and the columns of those in use.

    A key that no node has needs no column; a column is dropped with the last node that has its key,
    or when it is no longer read.
    """

    __slots__ = ("_columns", "_keys", "_nothing", "_table", "generation")

    def __init__(self, table: LabelledRows) -> None:
        self._table = table
        self._nothing: InternedColumn[str | None] | None = None
        """The shared column of all keys that no node has."""
        self._keys: dict[str, int] | None = None
        """Number of nodes by key; computed on first use, then maintained."""
        self._columns: RecentlyUsed[str, LabelColumn] = RecentlyUsed()
        self.generation = 0
        """Changes when a key gets its first node or loses its last."""

    @property
    def keys(self) -> dict[str, int]:
        if self._keys is None:
            self._keys = {}
            for info in self._table.infos:
                self._count(info.labels, 1)
        return self._keys

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def __len__(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def sweep(self) -> None:
        """Drop columns that are no longer read."""
        self._columns.sweep()

    def replace(self, before: Labels, after: Labels) -> None:
        """Apply a change of a node's labels; added and removed nodes have none on one side."""
        if self._keys is not None and before != after:
            self._count(after, 1)
            self._count(before, -1)

    def _count(self, labels: Labels, more: int) -> None:
        keys = self.keys
        for key in labels:
            before = keys.get(key, 0)
            keys[key] = before + more
            if not before:
                self.generation += 1
            elif not keys[key]:
                self.generation += 1
                del keys[key]
                self._columns.pop(key)

    def column(self, key: str) -> InternedColumn[str | None]:
        """Return the current values of a label by row; valid for one cycle at most."""
        if key not in self.keys:
            capacity = self._table.pod_count.shape[0]
            if self._nothing is None:
                self._nothing = InternedColumn(None, capacity)
            self._nothing.reserve(capacity)
            return self._nothing
        column = self._columns.get(key)
        if column is None:
            column = LabelColumn(self._table, key)
            room = max(LABELS_BYTES // (4 * len(column.ids)), FEWEST_LABELS)
            self._columns.put(key, column, room)
        column.catch_up()
        return column

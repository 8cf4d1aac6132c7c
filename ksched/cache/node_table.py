"""The node table: one row per node, one column per attribute, a log of changed rows.

Rows are dense: removing a node moves the last row into the gap and logs both. Columns are NumPy
arrays; labels and taints are numbers into a vocabulary, and a label column exists only for keys
that some node has and some selector uses (``labels``). An overlay is a small table of the same type
with copies of a few nodes, with pods added or removed; plugins cannot distinguish it from the real
one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Taint
from ksched.api.quantity import clamp_to_int64
from ksched.cache.change_log import RowLog
from ksched.cache.interning import InternedColumn, Vocabulary
from ksched.cache.labels import NodeLabels
from ksched.cache.node_info import NodeInfo
from ksched.cache.resource_axis import ResourceAxis

V = TypeVar("V", bound=Hashable)
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ImageState:
    """Spread of an image: its size, as first reported, and the number of nodes that have it."""

    __slots__ = ("num_nodes", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.num_nodes = 0


class Ledger(Protocol):
    """The pods of a table by template, and their counters (``counters.pod_ledger``)."""

    def catch_up(self) -> None: ...

    def sweep(self) -> None: ...


class NodeTable:
    """Columns of all nodes of a snapshot, or of the few nodes of an overlay.

    Written by the cache when it publishes, between cycles, and by the trial of a group
    (``Snapshot.assume``, ``forget``), which undoes it within its cycle. ``node_log`` has rows whose
    node object changed, ``row_log`` rows with any change that a pod-dependent verdict may read;
    every entry of the first is also in the second. ``info_log`` has those that are in neither: rows
    of which only pod objects changed. A row past the end is one that was removed.

    Amounts are from 0 to the largest int64; sums saturate there. So a difference of two amounts
    cannot overflow, a sum can.
    """

    def __init__(self, axis: ResourceAxis, capacity: int = 64) -> None:
        self.axis = axis
        self.infos: list[NodeInfo] = []
        self.rows: dict[str, int] = {}
        self.node_log = RowLog()
        self.row_log = RowLog()
        self.info_log = RowLog()
        self.images: dict[str, ImageState] = {}
        self.images_generation = 0
        self._taints: InternedColumn[tuple[Taint, ...]] = InternedColumn((), capacity)
        self.labels = NodeLabels(self)
        self.ledger: Ledger | None = None
        """The counters of the pods on these nodes, once required (``counters.pod_ledger``)."""
        self._widths: dict[int, int] = {}
        """How many leading resources of a row may be non-zero: a cluster may have many more."""
        self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        # One column per resource of the axis. Not a matrix: adding a resource must not copy all
        # the others.
        self.allocatable: list[Ints] = []
        self.requested: list[Ints] = []
        self._add_resources(capacity)
        self.non_zero = np.zeros((2, capacity), np.int64)
        self.pod_count = np.zeros(capacity, np.int64)
        self.allowed_pods = np.zeros(capacity, np.int64)
        self.unschedulable = np.zeros(capacity, np.bool_)
        self.uses_host_ports = np.zeros(capacity, np.bool_)

    def _add_resources(self, capacity: int) -> None:
        for columns in (self.allocatable, self.requested):
            while len(columns) < len(self.axis):
                columns.append(np.zeros(capacity, np.int64))

    @classmethod
    def of(cls, infos: Sequence[NodeInfo], axis: ResourceAxis) -> NodeTable:
        """Build an overlay of a few (modified copies of) nodes.

        kube-scheduler: createNodeInfoMap.
        """
        table = cls(axis, capacity=max(len(infos), 1))
        for info in infos:
            table.put(info)
        return table

    def __len__(self) -> int:
        return len(self.infos)

    # -- writing --------------------------------------------------------------------------------

    def put(self, info: NodeInfo) -> int:
        """Add a node, or replace it after its node object changed."""
        row = self.rows.get(info.name, len(self.infos))
        # Also for a known node, which may offer a new resource.
        self._reserve(row + 1)
        self._write_node(row, info)
        self._write_sums(row, info)
        # If the above raises, a new node is not there yet, and a known one can be removed.
        if row == len(self.infos):
            self.rows[info.name] = row
            self.infos.append(info)
            self.labels.replace({}, info.labels)
            self._count_images(info.images, 1)
            self.images_generation += 1
        else:
            before = self.infos[row]
            self.labels.replace(before.labels, info.labels)
            if before.images != info.images:
                self._count_images(before.images, -1)
                self._count_images(info.images, 1)
                self.images_generation += 1
            self.infos[row] = info
        self.row_log.append(row)
        self.node_log.append(row)
        return row

    def put_pods(self, row: int, info: NodeInfo) -> None:
        """Replace a node of which only the pods changed."""
        if len(info.requested) > len(self.requested):
            self._add_resources(len(self.pod_count))
        self._write_sums(row, info)
        self.infos[row] = info
        self.row_log.append(row)

    def put_info(self, row: int, info: NodeInfo) -> None:
        """Replace the info of a node without a change in any column."""
        self.infos[row] = info
        self.info_log.append(row)

    def remove(self, name: str) -> None:
        """kube-scheduler: removeDeletedNodesFromSnapshot."""
        row = self.rows.pop(name)
        self.labels.replace(self.infos[row].labels, {})
        self._count_images(self.infos[row].images, -1)
        self.images_generation += 1
        last = self.infos.pop()
        taints = self._taints.at(len(self.infos))
        self._taints.write(len(self.infos), ())
        if row < len(self.infos):
            self.infos[row] = last
            self.rows[last.name] = row
            self._taints.write(row, taints)
            width = max(self._widths[row], self._widths[len(self.infos)])
            for array in self._arrays(width):
                array[..., row] = array[..., len(self.infos)]
            self._widths[row] = width
            self.row_log.append(row)
            self.node_log.append(row)
        # The removed last row changed too: readers look only at the logs.
        self.row_log.append(len(self.infos))
        self.node_log.append(len(self.infos))

    def _write_node(self, row: int, info: NodeInfo) -> None:
        node = info.node
        assert node is not None
        offered = len(info.allocatable)
        self._widths[row] = width = max(self._widths.get(row, 0), offered)
        for position in range(width):
            self.allocatable[position][row] = (
                info.allocatable[position] if position < offered else 0
            )
            self.requested[position][row] = 0
        self.allowed_pods[row] = info.allowed_pods
        self.unschedulable[row] = node.spec.unschedulable
        self._taints.write(row, tuple(node.spec.taints))

    def _write_sums(self, row: int, info: NodeInfo) -> None:
        if len(info.requested) > self._widths[row]:
            self._widths[row] = len(info.requested)
        try:
            for column, amount in zip(self.requested, info.requested, strict=False):
                column[row] = amount
            self.non_zero[0, row] = info.non_zero_cpu
            self.non_zero[1, row] = info.non_zero_memory
        except OverflowError:
            for column, amount in zip(self.requested, info.requested, strict=False):
                column[row] = clamp_to_int64(amount)
            self.non_zero[0, row] = clamp_to_int64(info.non_zero_cpu)
            self.non_zero[1, row] = clamp_to_int64(info.non_zero_memory)
        self.pod_count[row] = info.num_pods
        self.uses_host_ports[row] = bool(info.used_ports)

    def _reserve(self, rows: int) -> None:
        capacity = self.pod_count.shape[0]
        if rows > capacity:
            known = self._arrays()
            capacity = max(rows, 2 * capacity)
            self._allocate(capacity)
            for source, target in zip(known, self._arrays(), strict=False):
                target[..., : source.shape[-1]] = source
            self._taints.reserve(capacity)
        elif len(self.allocatable) < len(self.axis):
            self._add_resources(capacity)

    def _arrays(self, width: int | None = None) -> list[NDArray[Any]]:
        """Return all columns, those of the resources (``width`` of them) last."""
        pairs = zip(self.allocatable[:width], self.requested[:width], strict=True)
        return [
            self.non_zero,
            self.pod_count,
            self.allowed_pods,
            self.unschedulable,
            self.uses_host_ports,
            *chain.from_iterable(pairs),
        ]

    def forget_changes(self) -> None:
        """Make every reader read all rows again: something changed that no column contains."""
        self.node_log.forget()
        self.row_log.forget()

    def sweep(self) -> None:
        """Drop unused columns and counters; called periodically, between cycles."""
        self.labels.sweep()
        if self.ledger is not None:
            self.ledger.catch_up()
            self.ledger.sweep()

    def _count_images(self, images: dict[str, int], sign: int) -> None:
        """kube-scheduler: addNodeImageStates, removeNodeImageStates, createImageExistenceMap,
        getNodeImageStates."""
        for name, size_bytes in images.items():
            state = self.images.get(name)
            if state is None:
                state = self.images[name] = ImageState(size_bytes)
            state.num_nodes += sign
            if not state.num_nodes:
                del self.images[name]

    # -- reading --------------------------------------------------------------------------------

    def all(self) -> NodeRows:
        return NodeRows(self, None)

    def some(self, rows: NDArray[np.intp]) -> NodeRows:
        return NodeRows(self, rows)

    def label_column(self, key: str) -> InternedColumn[str | None]:
        """Return the current values of a label by row."""
        return self.labels.column(key)


class ClassColumn(Generic[V]):
    """A column of few distinct values: evaluates once per value, returns an array by row."""

    __slots__ = ("ids", "vocabulary")

    def __init__(self, ids: NDArray[np.int32], vocabulary: Vocabulary[V]) -> None:
        self.ids = ids
        self.vocabulary = vocabulary

    @property
    def values(self) -> list[V]:
        return self.vocabulary.values

    def among(self, wanted: Collection[V]) -> Bools | None:
        """Mark the rows whose value is in ``wanted``; ``None`` if there is no such row."""
        vocabulary = self.vocabulary
        if len(wanted) <= len(vocabulary):
            numbers = [number for one in wanted if (number := vocabulary.find(one)) >= 0]
        elif len(self.ids) < len(vocabulary):
            values = vocabulary.values
            return np.array([values[number] in wanted for number in self.ids], np.bool_)
        else:
            numbers = [number for number, one in enumerate(vocabulary.values) if one in wanted]
        if not numbers:
            return None
        if len(numbers) == 1:
            marked: Bools = self.ids == numbers[0]
            return marked
        marks = np.zeros(len(vocabulary), np.bool_)
        marks[numbers] = True
        return marks[self.ids]

    def test(self, predicate: Callable[[V], bool]) -> Bools:
        """Evaluate a predicate for each row."""
        if len(self.ids) < len(self.values):
            present, inverse = np.unique(self.ids, return_inverse=True)
            return np.array([predicate(self.values[i]) for i in present], np.bool_)[inverse]
        return np.array([predicate(value) for value in self.values], np.bool_)[self.ids]

    def count(self, measure: Callable[[V], int]) -> Ints:
        """Evaluate an integer-valued function for each row."""
        if len(self.ids) < len(self.values):
            present, inverse = np.unique(self.ids, return_inverse=True)
            return np.array([measure(self.values[i]) for i in present], np.int64)[inverse]
        return np.array([measure(value) for value in self.values], np.int64)[self.ids]


class NodeRows:
    """Some nodes as columns: the whole table, a few rows of it, or an overlay.

    The argument of columnar plugins. Every array has one element per node, in the same order, and
    must not be written to.
    """

    __slots__ = ("index", "rows", "table")

    def __init__(self, table: NodeTable, rows: NDArray[np.intp] | None) -> None:
        self.table = table
        self.rows = rows
        """Row numbers in ``table``, or ``None`` for all of them."""
        self.index: NDArray[np.intp] | slice
        if rows is None:
            self.index = slice(0, len(table))
        elif len(rows) == 1:
            # The usual case of an update; a slice costs a tenth of an index array.
            self.index = slice(int(rows[0]), int(rows[0]) + 1)
        else:
            self.index = rows

    def __len__(self) -> int:
        return len(self.table.infos if self.rows is None else self.rows)

    @property
    def infos(self) -> list[NodeInfo]:
        infos = self.table.infos
        return infos if self.rows is None else [infos[row] for row in self.rows]

    @property
    def names(self) -> list[str]:
        return [info.name for info in self.infos]

    def allocatable(self, resource: str) -> Ints:
        return self._amount(self.table.allocatable, resource)

    def requested(self, resource: str) -> Ints:
        """Sum of the requests of the pods on each node."""
        return self._amount(self.table.requested, resource)

    def non_zero_requested(self, resource: str) -> Ints:
        """Like ``requested`` for cpu and memory, with defaults for containers without requests."""
        return self.table.non_zero[self.table.axis.find(resource), self.index]

    def _amount(self, columns: list[Ints], resource: str) -> Ints:
        position = self.table.axis.find(resource)
        if 0 <= position < len(columns):
            return columns[position][self.index]
        return np.zeros(len(self), np.int64)

    @property
    def pod_count(self) -> Ints:
        return self.table.pod_count[self.index]

    @property
    def allowed_pods(self) -> Ints:
        return self.table.allowed_pods[self.index]

    @property
    def unschedulable(self) -> Bools:
        return self.table.unschedulable[self.index]

    @property
    def uses_host_ports(self) -> Bools:
        return self.table.uses_host_ports[self.index]

    @property
    def taints(self) -> ClassColumn[tuple[Taint, ...]]:
        column = self.table._taints
        return ClassColumn(column.ids[self.index], column.vocabulary)

    def label(self, key: str) -> ClassColumn[str | None]:
        """Values of a label; ``None`` where a node does not have it."""
        column = self.table.label_column(key)
        return ClassColumn(column.ids[self.index], column.vocabulary)

    def named(self, name: str) -> Bools:
        """Mark the node with that name, if it is among these."""
        row = self.table.rows.get(name, -1)
        if self.rows is not None:
            mask: Bools = self.rows == row
            return mask
        marked = np.zeros(len(self), np.bool_)
        if row >= 0:
            marked[row] = True
        return marked

    def has_image(self, name: str) -> Bools:
        if name not in self.table.images:
            return np.zeros(len(self), np.bool_)
        return np.fromiter((name in info.images for info in self.infos), np.bool_, len(self))

"""An index of the volumes of one storage class: finds the smallest that fits.

Available volumes are grouped by kind, and within a group by the nodes that can reach them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.node_selectors import NodeTerm, NodeTerms, compile_node_selector
from ksched.api.quantity import MAX_INT64, NANOS, to_nanos
from ksched.api.storage import PersistentVolume, VolumeNodeAffinity
from ksched.cache.interning import InternedColumn
from ksched.cache.node_table import NodeRows

Ints = NDArray[np.int64]
Ids = NDArray[np.intp]


class VolumeFacts(NamedTuple):
    """A volume with its frequently read attributes. Sorts by size, then by name."""

    capacity_nanos: int
    name: str
    volume: PersistentVolume
    affinity: NodeTerms | None
    """Nodes that can reach it; ``None`` for all."""


Ranked = list[VolumeFacts]
"""Volumes in ascending order of size."""


class LabelGroup:
    """Volumes by the value of a label that a node must have to reach them.

    Stored as columns by value, so that a thousand local disks are one array operation.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[str | None, int] = {}
        self._ranked: list[Ranked] = []
        self._columns = np.zeros((3, 0), np.int64)
        """Number of volumes, size of the smallest and of the largest in bytes."""
        self._empty = 0
        self._layout: tuple[object, int, int, Ids] = (None, 0, 0, np.zeros(0, np.intp))

    def add(self, value: str | None, facts: VolumeFacts) -> None:
        if value not in self._numbers:
            self._grow(value)
        number = self._numbers[value]
        self._empty -= not self._ranked[number]
        insort(self._ranked[number], facts, key=_rank)
        self._describe(number)

    def remove(self, value: str | None, facts: VolumeFacts) -> None:
        number = self._numbers[value]
        ranked = self._ranked[number]
        del ranked[bisect_left(ranked, _rank(facts), key=_rank)]
        self._describe(number)
        if not ranked:
            self._empty += 1
            if 2 * self._empty > len(self._numbers) + 1024:
                self._forget_empty()

    def get(self, value: str | None) -> Ranked:
        number = self._numbers.get(value)
        return [] if number is None else self._ranked[number]

    def items(self) -> Iterator[tuple[str | None, Ranked]]:
        for value, number in self._numbers.items():
            yield value, self._ranked[number]

    def count_at_least(self, size_nanos: int, nodes: NodeRows) -> Ints:
        """Count the volumes of at least this size that each node can reach."""
        # Volumes here have whole bytes, so the next whole byte is an equivalent bound.
        size = min(-(-size_nanos // NANOS), MAX_INT64)
        number, smallest, largest = self._columns
        counts = np.where(smallest >= size, number, 0)
        for mixed in np.flatnonzero((smallest < size) & (largest >= size)).tolist():
            counts[mixed] = count_at_least(self._ranked[mixed], size_nanos)
        # One more element, without volumes, for unknown values.
        counts = np.append(counts, 0)
        numbers = self._numbers_of(nodes.table.label_column(self._key))
        counted: Ints = counts[numbers[nodes.label(self._key).ids]]
        return counted

    def _numbers_of(self, column: InternedColumn[str | None]) -> Ids:
        """Return the number of each value of a node column; the last for unknown values."""
        vocabulary, nodes_values = column.vocabulary, len(column.vocabulary)
        known, known_values, count, numbers = self._layout
        unknown = len(self._ranked)
        if (vocabulary, nodes_values, unknown) != (known, known_values, count):
            found = [self._numbers.get(value, unknown) for value in vocabulary.values]
            numbers = np.array(found, np.intp)
            self._layout = (vocabulary, nodes_values, unknown, numbers)
        return numbers

    def _grow(self, value: str | None) -> None:
        number = self._numbers[value] = len(self._ranked)
        self._ranked.append([])
        self._empty += 1
        if number >= self._columns.shape[1]:
            more = np.zeros((3, 2 * number + 16), np.int64)
            more[:, :number] = self._columns[:, :number]
            self._columns = more
        self._columns[:, number] = (0, -1, -1)

    def _describe(self, number: int) -> None:
        ranked = self._ranked[number]
        if ranked:
            ends = (ranked[0].capacity_nanos // NANOS, ranked[-1].capacity_nanos // NANOS)
            self._columns[:, number] = (len(ranked), *ends)
        else:
            self._columns[:, number] = (0, -1, -1)

    def _forget_empty(self) -> None:
        """Drop values without volumes, such as the names of removed nodes."""
        left = [(value, ranked) for value, ranked in self.items() if ranked]
        self._clear()
        for value, ranked in left:
            for facts in ranked:
                self.add(value, facts)


class VolumeGroup:
    """Volumes that differ only in size, node affinity and labels.

    Most volumes can be reached from nodes with one value of a label (local disks, zones) and are
    indexed by it; a volume with several values has an entry under each.
    """

    __slots__ = ("by_label", "elsewhere")

    def __init__(self) -> None:
        self.by_label: dict[str, LabelGroup] = {}
        self.elsewhere: dict[NodeTerms | None, Ranked] = {}

    def add(self, facts: VolumeFacts) -> None:
        simple = _label_values(facts)
        if simple is None:
            insort(self.elsewhere.setdefault(facts.affinity, []), facts, key=_rank)
            return
        key, values = simple
        group = self.by_label.get(key)
        if group is None:
            group = self.by_label[key] = LabelGroup(key)
        for value in values:
            group.add(value, facts)

    def remove(self, facts: VolumeFacts) -> None:
        simple = _label_values(facts)
        if simple is None:
            ranked = self.elsewhere[facts.affinity]
            del ranked[bisect_left(ranked, _rank(facts), key=_rank)]
            if not ranked:
                del self.elsewhere[facts.affinity]
            return
        key, values = simple
        for value in values:
            self.by_label[key].remove(value, facts)


VolumeGroupKey = tuple[str, str, frozenset[str]]
"""Volume mode, attributes class and access modes."""


class ClassVolumes:
    """The volumes of one storage class; ``generation`` grows when one of them changes."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, VolumeFacts] = {}
        self.groups: dict[VolumeGroupKey, VolumeGroup] = {}
        """Volumes without a claim."""
        self.reserved: dict[str, dict[str, VolumeFacts]] = {}
        """Volumes with a ``claimRef``, by the claim's key and their own name."""

    def put(self, facts: VolumeFacts) -> None:
        if facts.name in self.members:
            self._file(self.members[facts.name], is_new=False)
        self.members[facts.name] = facts
        self._file(facts, is_new=True)
        self.generation += 1

    def remove(self, name: str) -> None:
        self._file(self.members.pop(name), is_new=False)
        self.generation += 1

    def _file(self, facts: VolumeFacts, *, is_new: bool) -> None:
        volume, spec = facts.volume, facts.volume.spec
        if spec.claim_ref is not None:
            key = f"{spec.claim_ref.namespace}/{spec.claim_ref.name}"
            if is_new:
                self.reserved.setdefault(key, {})[facts.name] = facts
            else:
                del self.reserved[key][facts.name]
        elif volume.status.phase == "Available" and volume.metadata.deletion_timestamp is None:
            modes = frozenset(spec.access_modes)
            group_key = (spec.volume_mode, spec.volume_attributes_class_name, modes)
            group = self.groups.setdefault(group_key, VolumeGroup())
            (group.add if is_new else group.remove)(facts)


def facts_of(volume: PersistentVolume) -> VolumeFacts:
    try:
        capacity = to_nanos(volume.spec.capacity.get("storage", 0))
    except ValueError:
        # The API server rejects such a volume; one of unknown size is not used.
        capacity = -1
    affinity = compile_affinity(volume.spec.node_affinity)
    return VolumeFacts(capacity, volume.metadata.name, volume, affinity)


def compile_affinity(affinity: VolumeNodeAffinity | None) -> NodeTerms | None:
    """Compile a volume's node affinity; ``None`` for all nodes.

    Only labels are evaluated: a condition on a node's name always holds, as in kube-scheduler.
    """
    if affinity is None or affinity.required is None:
        return None
    terms = compile_node_selector(affinity.required).terms
    return NodeTerms(tuple(map(_without_fields, terms)))


def _without_fields(term: NodeTerm) -> NodeTerm:
    labels = tuple(wanted for wanted in term.requirements if not wanted.is_field)
    return term._replace(requirements=labels)


def _rank(facts: VolumeFacts) -> tuple[int, str]:
    return facts.capacity_nanos, facts.name


def count_at_least(ranked: Ranked, size_nanos: int) -> int:
    """Count the volumes of at least this size."""
    return len(ranked) - bisect_left(ranked, size_nanos, key=_capacity)


def _capacity(facts: VolumeFacts) -> int:
    return facts.capacity_nanos


def _label_values(facts: VolumeFacts) -> tuple[str, frozenset[str | None]] | None:
    """Return label and values if they are a volume's only condition on nodes."""
    affinity = facts.affinity
    if affinity is None or len(affinity.terms) != 1 or facts.capacity_nanos % NANOS:
        return None
    term = affinity.terms[0]
    if term.problems or len(term.requirements) != 1:
        return None
    wanted = term.requirements[0]
    is_range = wanted.above is not None or wanted.below is not None
    if is_range or not wanted.inside:
        return None
    return wanted.key, wanted.values

"""Incremental counters of matching pods per node and topology domain.

Spreading and inter-pod affinity need, for every pod, the number of matching pods in each zone, host
or rack. Counting from scratch would visit all pods; here a placement costs each counter a few
steps, independent of the number of pods.

    PodsByTemplate   which templates run on which rows, and the log of changes
    PodCounts        how many matching pods each row has; one per selector
    TopologyDomains  the domain of each row; one per label (``topology_domains``)
    DomainCounts     the sums over the rows of each domain (``domain_counts``)
    PodLedger        all of them for one node table (``pod_ledger``)

Counters read the log lazily: one that is not read costs nothing, one that was not read for too long
is rebuilt. Does not belong here: rules based on the counts (plugins).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import NEVER, ChangeLog
from ksched.cache.counters.topology_domains import longer
from ksched.cache.node_table import NodeTable
from ksched.cache.pod_info import PodTemplate
from ksched.cache.recently_used import RecentlyUsed
from ksched.tuning import CHANGES_LOGGED, WEIGHTS_CACHED

K = TypeVar("K", bound=Hashable)
Ints = NDArray[np.int64]

PodChange = tuple[int, PodTemplate, int, int]
"""A row, a template, and by how much its running and terminating pods changed there."""

Matches = Callable[[PodTemplate], int]
"""The weight of a pod of a template; 0 for a pod that does not match."""

_OnRow = tuple[dict[PodTemplate, int], dict[PodTemplate, int]]
"""Pods of a row by template: running, terminating."""

_NOTHING: _OnRow = ({}, {})


class PodsByTemplate:
    """Which templates run on which rows of a node table, and the log of every change.

    ``running`` and ``terminating`` map a template to its pods by row; templates without pods are
    absent.
    """

    def __init__(self, table: NodeTable, limit: int = CHANGES_LOGGED) -> None:
        self.table = table
        self.running: dict[PodTemplate, dict[int, int]] = {}
        self.terminating: dict[PodTemplate, dict[int, int]] = {}
        self._seen: list[_OnRow] = []
        self.generation = NEVER
        """The table's row generation at the last update: covers all that a counter reads."""
        self.affinity_generation = 0
        """Grows when the first or last pod of a template with inter-pod affinity comes or goes."""
        self.log: ChangeLog[PodChange] = ChangeLog(limit)
        self._swept = 0
        self._pods: WeakValueDictionary[Hashable, PodCounts] = WeakValueDictionary()

    def has(self, template: PodTemplate) -> bool:
        return template in self.running or template in self.terminating

    def templates(self) -> Iterator[PodTemplate]:
        """Iterate over all templates that have a pod, each once."""
        yield from self.running
        for template in self.terminating:
            if template not in self.running:
                yield template

    # -- reading --------------------------------------------------------------------------------

    def pod_counts(
        self, key: Hashable, matches: Matches, *, include_terminating: bool
    ) -> PodCounts:
        """Return the counter of matching pods; the key identifies the meaning of ``matches``."""
        full_key = (key, include_terminating)
        counts = self._pods.get(full_key)
        if counts is None:
            counts = PodCounts(self, matches, include_terminating)
            self._pods[full_key] = counts
        return counts

    # -- updates --------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Drop log entries from before the last call: they hold templates that may be gone."""
        self.log.drop_before(self._swept)
        self._swept = self.log.generation

    def catch_up(self) -> None:
        """Log what changed in the table since the last call; the counters do not call it."""
        table, seen = self.table, self._seen
        if table.row_log.generation == self.generation:
            return
        infos = table.infos
        size = len(infos)
        dirty = table.row_log.since(self.generation)
        if len(seen) != size:
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
        self.generation = table.row_log.generation

    def _note(self, row: int, before: _OnRow, after: _OnRow) -> None:
        running, terminating = after
        if running is not before[0]:
            for template, more in _differences(before[0], running):
                self.log.append((row, template, more, 0))
                if _count(self.running, template, row, more) and template.has_pod_affinity:
                    self.affinity_generation += 1
        if terminating or before[1]:
            for template, more in _differences(before[1], terminating):
                self.log.append((row, template, 0, more))
                if _count(self.terminating, template, row, more) and template.has_pod_affinity:
                    self.affinity_generation += 1


def _differences(before: dict[K, int], after: dict[K, int]) -> list[tuple[K, int]]:
    # Published dictionaries are never modified, only replaced.
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
) -> bool:
    """Returns whether it is the template's first pod, or was the last."""
    rows = rows_of.get(template)
    if rows is None:
        rows_of[template] = {row: more}
        return True
    number = rows.get(row, 0) + more
    if number:
        rows[row] = number
        return False
    del rows[row]
    if rows:
        return False
    del rows_of[template]
    return True


class PodCounts:
    """The matching pods of each row."""

    def __init__(self, ledger: PodsByTemplate, matches: Matches, include_terminating: bool) -> None:
        self.ledger = ledger
        self._matches = matches
        self._include_terminating = include_terminating
        self._weights: RecentlyUsed[int, int] = RecentlyUsed()
        """Weights of templates by number; a weight never changes."""
        self._generation = NEVER
        self._changes = ledger.log.cursor()
        self._counts = np.zeros(0, np.int64)

    @property
    def counts(self) -> Ints:
        """Matching pods by row; a view, valid until the next ``catch_up``."""
        return self._counts[: len(self.ledger.table)]

    def knows(self, template: PodTemplate) -> bool:
        """Whether ``weight_of`` is cached."""
        return template.number in self._weights

    def weight_of(self, template: PodTemplate) -> int:
        """Return the weight of a pod of a template."""
        weight = self._weights.get(template.number)
        if weight is None:
            weight = self._matches(template)
            room = max(WEIGHTS_CACHED, 2 * len(self.ledger.running))
            self._weights.put(template.number, weight, room)
        return weight

    def added_by(self, changes: Iterable[PodChange]) -> list[tuple[int, int]]:
        """Return the rows whose counts these changes of the ledger alter, and by how much."""
        added = []
        known = self._weights.get
        for row, template, running, terminating in changes:
            more = running + terminating if self._include_terminating else running
            if not more:
                continue
            weight = known(template.number)
            if weight is None:
                weight = self.weight_of(template)
            if weight:
                added.append((row, weight * more))
        return added

    def catch_up(self) -> None:
        ledger = self.ledger
        if ledger.generation == self._generation:
            return
        changes = self._changes.changes()
        if changes is None:
            self._start_over()
        else:
            self._reserve()
            for row, more in self.added_by(changes):
                self._counts[row] += more
        self._changes.advance()
        self._generation = ledger.generation

    def _reserve(self) -> None:
        # As large as the table's own columns, which never shrink: every logged row is inside.
        capacity = len(self.ledger.table.pod_count)
        if capacity > len(self._counts):
            self._counts = longer(self._counts, capacity)

    def _start_over(self) -> None:
        self._counts = np.zeros(self.ledger.table.pod_count.shape[0], np.int64)
        for row, number in self.by_row().items():
            self._counts[row] = number

    def by_row(self) -> dict[int, int]:
        """Count from scratch: the matching pods of every row that has any."""
        ledger = self.ledger
        counted: dict[int, int] = {}
        sources = (
            (ledger.running, ledger.terminating) if self._include_terminating else (ledger.running,)
        )
        for source in sources:
            for template, rows in source.items():
                weight = self.weight_of(template)
                if not weight:
                    continue
                for row, number in rows.items():
                    counted[row] = counted.get(row, 0) + weight * number
        return counted

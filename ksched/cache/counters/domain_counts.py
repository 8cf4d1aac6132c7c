"""Sums of a pod counter over the nodes of each topology domain; see ``pod_counts``."""

from __future__ import annotations

import numpy as np

from ksched.cache.change_log import NEVER, ChangeLog
from ksched.cache.counters.pod_counts import PodCounts
from ksched.cache.counters.topology_domains import ABSENT, OUTSIDE, Ints, TopologyDomains, longer
from ksched.tuning import FEW_DOMAINS_SUMMED, MANY_CHANGES


class DomainCounts:
    """Matching pods per topology domain: over all eligible nodes with one label value."""

    def __init__(self, pods: PodCounts, topology: TopologyDomains) -> None:
        self.pods = pods
        self.topology = topology
        self.log: ChangeLog[int] = ChangeLog()
        """Domains whose number of pods changed; forgets when there may be other domains."""
        self.counts: Ints = np.zeros(1, np.int64)
        """Matching pods on eligible nodes, by domain."""
        self.total = 0
        """Matching pods on eligible nodes that have the label."""
        self._counted: dict[int, int] = {}
        """Matching pods by row; rows without any may be missing."""
        self._generation = self._read = self._moved = NEVER
        """Of the ledger, of its log, and of the topology's moves."""
        self._summary: tuple[int, int] | None = None
        self._summary_generation = NEVER

    # -- reading --------------------------------------------------------------------------------

    @property
    def domains(self) -> int:
        """The number of domains."""
        return self._summarize()[0]

    @property
    def lowest(self) -> int:
        """The lowest number of pods in any domain, 0 without domains."""
        return self._summarize()[1]

    def _summarize(self) -> tuple[int, int]:
        if self._summary is None or self._summary_generation != self.topology.generation:
            self._summary = summarize(self.counts, self.topology.nodes)
            self._summary_generation = self.topology.generation
        return self._summary

    # -- updates --------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply the ledger's changes."""
        ledger, topology = self.pods.ledger, self.topology
        if ledger.generation == self._generation:
            return
        topology.catch_up()
        log, moved = ledger.log, topology.moves
        changes = log.since(self._read)
        moves = moved.since(self._moved) if moved.generation != self._moved else []
        many = MANY_CHANGES + len(topology.table.infos) // 8
        if changes is None or moves is None or len(changes) > many:
            self._start_over()
        else:
            # Evaluated before the first write: matching a pod may raise.
            added = self.pods.added_by(changes)
            if topology.width > len(self.counts):
                self.counts = longer(self.counts, topology.width)
                self.log.forget()
            # Moves first, with the old counts; then pod changes, in the row's present domain. A
            # removed row moves OUTSIDE, so its departing pods subtract nothing twice.
            for row, before, after in moves:
                self._move(self._counted.get(row, 0), before, after)
            for row, more in added:
                self._count(row, more)
        self._read, self._moved = log.generation, moved.generation
        self._generation = ledger.generation

    def _move(self, pods: int, before: int, after: int) -> None:
        if pods:
            if before != OUTSIDE:
                self._add(before, -pods)
            if after != OUTSIDE:
                self._add(after, pods)

    def _count(self, row: int, more: int) -> None:
        self._counted[row] = self._counted.get(row, 0) + more
        domain = self.topology.counting_in[row]
        if domain != OUTSIDE:
            self._add(domain, more)

    def _add(self, domain: int, more: int) -> None:
        self.log.append(domain)
        count: int = self.counts.item(domain)
        self.counts[domain] = count + more
        if domain != ABSENT:
            self.total += more
            summary = self._summary
            if summary is not None and (count == summary[1] or count + more < summary[1]):
                self._summary = None

    def _start_over(self) -> None:
        counting_in, width = self.topology.counting_in, self.topology.width
        counted = self._counted = self.pods.by_row()
        domains = np.array([counting_in[row] for row in counted], np.intp)
        sums = np.bincount(domains - OUTSIDE, list(counted.values()), width - OUTSIDE)
        self.counts = sums[-OUTSIDE:].astype(np.int64)
        self.total = int(self.counts[ABSENT + 1 :].sum())
        self._summary = None
        self.log.forget()


def summarize(counts: Ints, nodes: Ints) -> tuple[int, int]:
    """Number of domains, and the lowest count; nodes without the label are in no domain."""
    if len(counts) <= FEW_DOMAINS_SUMMED:
        pairs = zip(counts.tolist()[ABSENT + 1 :], nodes.tolist()[ABSENT + 1 :], strict=True)
        present = [pods for pods, number in pairs if number]
        return (len(present), min(present)) if present else (0, 0)
    has_nodes = nodes[ABSENT + 1 :] > 0
    domains = int(np.count_nonzero(has_nodes))
    return (domains, int(counts[ABSENT + 1 :][has_nodes].min())) if domains else (0, 0)

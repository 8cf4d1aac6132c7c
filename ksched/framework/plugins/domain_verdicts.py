"""What is wrong with each topology domain, and for which nodes that changed last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.topology_domains import ABSENT, Ids, TopologyDomains
from ksched.framework import ChangedVerdicts, Status

Codes = NDArray[np.int16]

_marks = count(1)
NO_CHANGES = ChangedVerdicts(())


class ChangedDomains:
    """Reads the logs of some counters: where are other numbers than at the last look?"""

    __slots__ = ("_counters", "_read")

    def __init__(self, counters: Sequence[DomainCounts]) -> None:
        self._counters = counters
        self._read = [-1] * len(counters)

    def look(self) -> list[tuple[int, int]] | None:
        """Positions of counters, and domains, after the counters caught up; ``None`` for all."""
        found: list[tuple[int, int]] | None = []
        for position, counter in enumerate(self._counters):
            if counter.log.position == self._read[position]:
                continue
            tail = counter.log.tail(self._read[position])
            self._read[position] = counter.log.position
            if tail is None:
                found = None
            elif found is not None:
                found += [(position, domain) for domain in tail if domain != ABSENT]
        return found


class DomainVerdicts:
    """Codes for the domains of some topologies, as they are now.

    ``mark`` changes whenever a code does, at most once between two calls of ``begin``. That a node
    moved to another domain is not noted: the runtime asks about changed nodes anyway.
    """

    __slots__ = ("_changed", "_is_noted", "_previous", "_statuses", "codes", "mark", "topologies")

    def __init__(self, topologies: Sequence[TopologyDomains], statuses: Sequence[Status]) -> None:
        self.topologies = topologies
        self._statuses = statuses
        """By code."""
        self.codes: list[Codes] = [np.zeros(0, np.int16) for _ in topologies]
        """By position of the topology, and domain."""
        self.mark = 0
        self._previous = -1
        self._changed: list[tuple[int, list[int]]] = []
        self._is_noted = False

    @property
    def is_outgrown(self) -> bool:
        """Whether there are domains without a code: start over."""
        for codes, topology in zip(self.codes, self.topologies, strict=True):
            if len(codes) != topology.width:
                return True
        return False

    def begin(self) -> None:
        """What changes from here on is one change."""
        self._is_noted = False

    def start_over(self, codes: list[Codes]) -> None:
        """Take over codes of domains that may be numbered otherwise than before."""
        self.codes, self._previous, self.mark = codes, -1, next(_marks)

    def renew(self, position: int, codes: Codes) -> None:
        """Take over the present codes of all domains of a topology."""
        before, self.codes[position] = self.codes[position], codes
        changed = (before != codes).nonzero()[0].tolist()
        if changed:
            self._note(position, changed)

    def amend(self, position: int, domain: int, code: int) -> None:
        """Take over the present code of one domain."""
        codes = self.codes[position]
        if codes[domain] != code:
            codes[domain] = code
            self._note(position, [domain])

    def _note(self, position: int, domains: list[int]) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._previous, self.mark, self._changed = self.mark, next(_marks), []
        self._changed.append((position, domains))

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        """The present mark, and what changed since an earlier one; see ``FilterDependsOn.changes``.

        The verdicts themselves if a single topology decides, otherwise the rows.
        """
        if mark == self.mark:
            return self.mark, NO_CHANGES
        if mark != self._previous:
            return self.mark, None
        if len(self.topologies) > 1:
            found = [self.topologies[one].rows_in(domains) for one, domains in self._changed]
            return self.mark, np.unique(np.concatenate(found))
        topology, codes = self.topologies[0], self.codes[0]
        by_code: dict[int, list[int]] = {}
        for _, domains in self._changed:
            for domain in domains:
                by_code.setdefault(int(codes[domain]), []).append(domain)
        return self.mark, ChangedVerdicts(
            [(topology.rows_in(domains), self._statuses[code]) for code, domains in by_code.items()]
        )

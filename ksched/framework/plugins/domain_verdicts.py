"""What is wrong with each topology domain, and for which nodes that changed last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import ChangeLog
from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.topology_domains import ABSENT, Ids, TopologyDomains
from ksched.framework import ChangedVerdicts, Status

Codes = NDArray[np.int16]

Changed = tuple[int, list[int]]
"""The position of a topology, and domains."""

NO_CHANGES = ChangedVerdicts(())


class ChangedDomains:
    """Reads the logs of some counters: where are other numbers than at the last look?"""

    __slots__ = ("_cursors",)

    def __init__(self, counters: Sequence[DomainCounts]) -> None:
        self._cursors = [counter.log.cursor() for counter in counters]

    def changes(self) -> list[tuple[int, int]] | None:
        """Positions of counters, and domains, after the counters caught up; ``None`` for all."""
        found: list[tuple[int, int]] | None = []
        for position, cursor in enumerate(self._cursors):
            domains = cursor.changes()
            if domains is None:
                found = None
            elif found is not None:
                found += [(position, domain) for domain in domains if domain != ABSENT]
        return found

    def advance(self) -> None:
        for cursor in self._cursors:
            cursor.advance()


class DomainVerdicts:
    """Codes for the domains of some topologies, as they are now.

    What changes between two calls of ``begin`` is one change. That a node moved to another domain
    is not noted: the runtime asks about changed nodes anyway.
    """

    __slots__ = ("_log", "_noted", "_statuses", "codes", "topologies")

    def __init__(self, topologies: Sequence[TopologyDomains], statuses: Sequence[Status]) -> None:
        self.topologies = topologies
        self._statuses = statuses
        """By code."""
        self.codes: list[Codes] = [np.zeros(0, np.int16) for _ in topologies]
        """By position of the topology, and domain."""
        # A pod like the last one has missed the last change at most, and one change may be long.
        self._log: ChangeLog[list[Changed]] = ChangeLog(limit=1)
        self._noted: list[Changed] | None = None

    @property
    def is_outgrown(self) -> bool:
        """Whether there are domains without a code: start over."""
        for codes, topology in zip(self.codes, self.topologies, strict=True):
            if len(codes) != topology.width:
                return True
        return False

    def begin(self) -> None:
        """What changes from here on is one change."""
        self._noted = None

    def start_over(self, codes: list[Codes]) -> None:
        """Take over codes of domains that may be numbered otherwise than before."""
        self.codes = codes
        self._log.forget()

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
        if self._noted is None:
            self._noted = []
            self._log.append(self._noted)
        self._noted.append((position, domains))

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        """The present mark, and what changed since an earlier one; see ``FilterDependsOn.changes``.

        The verdicts themselves if a single topology decides, otherwise the rows.
        """
        now = (self, self._log.generation)
        if mark == now:
            return mark, NO_CHANGES
        changes = None
        if isinstance(mark, tuple) and mark[0] is self:
            changes = self._log.since(mark[1])
        if changes is None:
            return now, None
        changed = [one for noted in changes for one in noted]
        if len(self.topologies) > 1:
            found = [self.topologies[one].rows_in(domains) for one, domains in changed]
            return now, np.unique(np.concatenate(found))
        topology, codes = self.topologies[0], self.codes[0]
        by_code: dict[int, list[int]] = {}
        for domain in dict.fromkeys(domain for _, domains in changed for domain in domains):
            by_code.setdefault(int(codes[domain]), []).append(domain)
        return now, ChangedVerdicts(
            [(topology.rows_in(domains), self._statuses[code]) for code, domains in by_code.items()]
        )

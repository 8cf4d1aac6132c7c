"""What is wrong with each topology domain, and for which nodes that changed last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ksched.cache.domain_counts import DomainCounts, Ids

K = TypeVar("K")
Codes = NDArray[np.int16]

_marks = count(1)
_NO_ROWS: Ids = np.zeros(0, np.intp)


class DomainVerdicts:
    """A code for each domain of one topology key, as it is now.

    ``mark`` changes whenever a code does. That a node moved to another domain is not noted: the
    runtime asks about changed nodes anyway.
    """

    __slots__ = ("_changed", "_previous", "codes", "domains", "mark")

    def __init__(self, domains: DomainCounts) -> None:
        self.domains = domains
        """Where the nodes are; any counter of the key does."""
        self.codes: Codes = np.zeros(0, np.int16)
        self.mark = 0
        self._previous = -1
        self._changed: Ids = _NO_ROWS

    def start_over(self, codes: Codes) -> None:
        """Take over codes of domains that may be numbered otherwise than before."""
        self.codes, self._previous, self.mark = codes, -1, next(_marks)

    def renew(self, codes: Codes) -> None:
        """Take over the present codes of all domains."""
        before, self.codes = self.codes, codes
        self._note(np.flatnonzero(before != codes))

    def amend(self, codes: Iterable[tuple[int, int]]) -> None:
        """Take over the present codes of some domains."""
        changed = []
        for domain, code in codes:
            if self.codes[domain] != code:
                self.codes[domain] = code
                changed.append(domain)
        if changed:
            self._note(np.array(changed, np.intp))

    def _note(self, changed: Ids) -> None:
        if len(changed):
            self._previous, self._changed, self.mark = self.mark, changed, next(_marks)

    def rows_since(self, mark: object) -> Ids | None:
        """Rows whose verdict changed after that mark; ``None`` if it is too old to tell."""
        if mark == self.mark:
            return _NO_ROWS
        if mark != self._previous:
            return None
        return self.domains.rows_in(self._changed)


def changes_since(verdicts: Mapping[K, DomainVerdicts], mark: object) -> tuple[object, Ids | None]:
    """A mark of some verdicts together, and the rows that changed since an earlier one."""
    now = {key: one.mark for key, one in verdicts.items()}
    if not isinstance(mark, dict) or mark.keys() != now.keys():
        return now, None
    found = _NO_ROWS
    for key, one in verdicts.items():
        rows = one.rows_since(mark[key])
        if rows is None:
            return now, None
        if len(rows):
            found = np.union1d(found, rows) if len(found) else rows
    return now, found

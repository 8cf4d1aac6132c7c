"""Outcomes of dry runs as columns, kept as long as nothing changes that they depend on."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ksched.framework import Status
from ksched.framework.freshness import ChangeLog, Cursor, RecentlyUsed
from ksched.framework.node_columns import NodeTable
from ksched.framework.plugins.default_preemption.candidates import Candidate

Rows: TypeAlias = NDArray[np.intp]
Outcome: TypeAlias = Candidate | Status
"""Whom to evict from a node, or why that would not help."""

UNKNOWN, REJECTED, VIOLATING, NON_VIOLATING = range(4)
"""Kinds of outcomes. The last two are candidates; the first of these violate a budget."""

_COSTS: Final = 5


class KnownOutcomes:
    """What dry runs for pods of one template and priority found, by row of the node table.

    Kept only where amounts alone decide. An outcome then depends on the node and its pods, on the
    pods nominated to it, on budgets and on pod groups, and on no other node.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._cursors = (table.row_log.cursor(), table.info_log.cursor())
        self._names: Cursor[str] | None = None
        self._generations: tuple[int, ...] = ()
        self._own = -1
        """The node that the pod itself is nominated to: there it expects others than its equals."""
        self._passing: list[int] = []
        """Rows whose outcomes hold for one pod only."""
        self.verdicts: RecentlyUsed[Hashable, Status] = RecentlyUsed()
        """Whether a node fits the pod once it is emptied, by its amounts, where these decide."""
        self._allocate(0)

    def _allocate(self, rows: int) -> None:
        self.kinds = np.zeros(rows, np.int8)
        """What kind of outcome is known of a row."""
        self._found = np.empty(rows, np.object_)
        self._costs = np.zeros((_COSTS, rows), np.int64)
        self._starts: dict[str, int] = {}
        """The start times in the last line of the costs, numbered as they came."""

    # -- writing --------------------------------------------------------------------------------

    def begin(self, *generations: int) -> None:
        """Forget what does not hold for the next pod. The table must not change during its search.

        Everything is forgotten if one of the ``generations`` is new.
        """
        if len(self._table) > len(self.kinds) or len(self._starts) > 2 * len(self.kinds):
            self._allocate(len(self._table) + len(self._table) // 4 + 16)
        for cursor in self._cursors:
            rows = cursor.changes()
            if rows is None or generations != self._generations:
                self.kinds[:] = UNKNOWN
                self._found[:] = None
            else:
                self._forget(rows)
            cursor.advance()
        self._generations = generations
        self._forget(self._passing)
        self._passing.clear()

    def follow(self, nominations: ChangeLog[str], own_node: str) -> None:
        """Forget what changed nominations decide: they may change during a search.

        ``own_node`` is where the pod that is searched for is nominated to, if it is.
        """
        if self._names is None:
            self._names = nominations.cursor()
        names = self._names.changes()
        if names is None:
            self.kinds[:] = UNKNOWN
        else:
            rows = self._table.rows
            self._forget([rows[name] for name in names if name in rows])
        self._names.advance()
        self._own = self._table.rows.get(own_node, -1)
        if self._own >= 0:
            self._forget([self._own])

    def _forget(self, rows: Iterable[int]) -> None:
        # The outcome itself stays: a search that came by has only its row.
        for row in rows:
            if row < len(self.kinds):
                self.kinds[row] = UNKNOWN

    def put(self, row: int, outcome: Outcome, *, is_lasting: bool = True) -> None:
        self._found[row] = outcome
        if not is_lasting or row == self._own:
            self._passing.append(row)
        if not isinstance(outcome, Candidate):
            self.kinds[row] = REJECTED
            return
        self.kinds[row] = VIOLATING if outcome.num_pdb_violations else NON_VIOLATING
        # Broken groups are counted later, where there are any.
        violations, highest, _, priorities = outcome.cost
        start = self._starts.setdefault(outcome.earliest_start_time, len(self._starts))
        self._costs[:, row] = (violations, highest, priorities, len(outcome.victims), start)

    # -- reading --------------------------------------------------------------------------------

    def of(self, rows: Rows | Sequence[int]) -> list[Outcome]:
        """The outcomes on rows that a search came by."""
        found: list[Outcome] = self._found[rows].tolist()
        return found

    def reach(self, rows: Rows, unknown: int, candidates: int) -> int:
        """How many rows have so many unknown outcomes, or so many candidates."""
        kinds = self.kinds[rows]
        ends = (
            np.searchsorted(np.cumsum(kinds == UNKNOWN), unknown),
            np.searchsorted(np.cumsum(kinds >= VIOLATING), candidates),
        )
        return int(min(ends)) + 1

    def cheapest(self, rows: Rows) -> tuple[list[int], bool]:
        """The candidates that ``pick_one_node_for_preemption`` chooses among, and if by chance.

        Without pod groups. One that is cheaper than all others is not chosen by chance.
        """
        for costs in self._costs[:3]:
            rows = _lowest(rows, costs)
        if len(rows) == 1:
            return rows.tolist(), False
        rows = _lowest(rows, self._costs[3])
        numbers = self._costs[4, rows]
        if numbers.min() != numbers.max():
            among, texts = set(numbers.tolist()), list(self._starts)
            rows = rows[numbers == max(among, key=texts.__getitem__)]
        return rows.tolist(), True


def _lowest(rows: Rows, costs: NDArray[np.int64]) -> Rows:
    values = costs[rows]
    lowest: Rows = rows[values == values.min()]
    return lowest

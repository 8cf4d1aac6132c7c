"""Room for the members of a group by amounts: what is free on each node, and how many fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.framework.node_columns import Ints

Bools = NDArray[np.bool_]

UNLIMITED = 1 << 40


class Kind(NamedTuple):
    """Members of a group that are alike."""

    number: int
    amounts: tuple[int, ...]
    """What one of them takes of every line of a matrix of free amounts."""
    open_rows: Bools
    """Nodes where evictions may help."""
    limit: int = UNLIMITED
    """How many fit on one node at most."""

    def slots(self, free: Ints) -> Ints:
        """How many fit on each node."""
        slots: Ints = np.where(self.open_rows, self.limit, 0)
        for line, amount in enumerate(self.amounts):
            if amount > 0:
                np.minimum(slots, np.maximum(free[line], 0) // amount, out=slots)
        return slots

    def slots_of_row(self, free: Sequence[int], row: int) -> int:
        if not self.open_rows[row]:
            return 0
        fitting = [max(have, 0) // one for have, one in zip(free, self.amounts, strict=True) if one]
        return min((self.limit, *fitting))


def fitting(free: Ints, kinds: Sequence[Kind]) -> int:
    """How many members have a place, those of the first kind first."""
    if len(kinds) == 1:
        return min(int(kinds[0].slots(free).sum()), kinds[0].number)
    return sum(int(rows.sum()) for rows in assign(free, kinds))


def fits(free: Ints, kinds: Sequence[Kind]) -> bool:
    return fitting(free, kinds) == sum(kind.number for kind in kinds)


def assign(
    free: Ints, kinds: Sequence[Kind], order: NDArray[np.float64] | None = None
) -> list[Ints]:
    """How many members of each kind go to each node, as far as there is room.

    Nodes with little room are filled first: the members after these may need the others. With an
    ``order`` those for which it is lowest come first.
    """
    free, assigned = free.copy(), []
    for kind in kinds:
        slots = kind.slots(free)
        rows = np.flatnonzero(slots)
        rank = slots if order is None else order
        rows = rows[np.argsort(rank[rows], kind="stable")]
        before = np.cumsum(slots[rows]) - slots[rows]
        taken = np.zeros_like(slots)
        taken[rows] = np.clip(kind.number - before, 0, slots[rows])
        for line, amount in enumerate(kind.amounts):
            free[line] -= taken * amount
        assigned.append(taken)
    return assigned

"""Results of columnar plugins, for many nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.framework.status import Status

CodesOfNodes = NDArray[np.int16] | NDArray[np.int32]


class Verdicts:
    """``codes[i]`` is 0 where node i passes, otherwise k for ``statuses[k - 1]``."""

    __slots__ = ("codes", "statuses")

    def __init__(
        self, codes: NDArray[np.int16] | NDArray[np.int32], statuses: Sequence[Status]
    ) -> None:
        self.codes = codes
        self.statuses = statuses

    @classmethod
    def rejecting(cls, rejected: NDArray[np.bool_], status: Status) -> Verdicts:
        """Reject the marked nodes, all with the same status."""
        return cls(rejected.astype(np.int16), (status,))

    @classmethod
    def passing(cls, count: int) -> Verdicts:
        return cls(np.zeros(count, np.int16), ())

    @classmethod
    def of(cls, statuses: Sequence[Status]) -> Verdicts:
        """Collect one status per node, as returned by a per-node filter."""
        table: dict[Status, int] = {}
        codes = [
            0 if status.is_success else table.setdefault(status, len(table) + 1)
            for status in statuses
        ]
        # Every node may have a different reason.
        return cls(np.array(codes, np.int32), tuple(table))


class ChangedVerdicts(NamedTuple):
    """New verdicts for rows whose verdict changed.

    A row may be in several pieces; the last one counts.
    """

    pieces: Sequence[tuple[NDArray[np.intp], Status]]
    """Rows of the node table, and the status that all of them have; a success passes."""


class ClassScores:
    """Scores of nodes that fall into few classes, such as zones: one score per class.

    ``values[k]`` is the score of class k, already normalized over the classes that occur;
    ``ids[i]`` is the class of node i, an index of ``values``. Classes that do not occur may have
    any score in the range.
    """

    __slots__ = ("ids", "values")

    def __init__(self, values: list[int], ids: NDArray[np.intp]) -> None:
        self.values = values
        self.ids = ids

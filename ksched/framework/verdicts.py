"""The answers of columnar plugins: for many nodes at once, and how long they hold."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.framework.status import Status


class Scope(Enum):
    """What a columnar verdict or score of one node depends on, beside the pod's template.

    The runtime keeps answers accordingly: ask for the narrowest scope that is true.
    """

    NODE = "node"
    """The node object: labels, taints, allocatable, images. Asked again when the node changes."""
    RESOURCES = "resources"
    """Amounts only: what the node offers, what its pods request, how many they are. Asked again
    when they change, and never twice about the same amounts, on whatever node."""
    ROW = "row"
    """The node object and the pods on the node. Asked again when either changes."""
    CLUSTER = "cluster"
    """Anything else. Asked in every cycle, for the nodes that are still feasible, unless the plugin
    says which answers changed (``filter_changes``)."""
    POD = "pod"
    """Also fields outside the template (name, annotations, status). Never kept. The default."""


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
        """Reject the marked nodes, all for the same reason."""
        return cls(rejected.astype(np.int16), (status,))

    @classmethod
    def passing(cls, count: int) -> Verdicts:
        return cls(np.zeros(count, np.int16), ())

    @classmethod
    def of(cls, statuses: Sequence[Status]) -> Verdicts:
        """Collect one status per node, as a per-node filter returns them."""
        table: dict[Status, int] = {}
        codes = [
            0 if status.is_success else table.setdefault(status, len(table) + 1)
            for status in statuses
        ]
        # Every node may have a reason of its own.
        return cls(np.array(codes, np.int32), tuple(table))


class ChangedVerdicts(NamedTuple):
    """What a filter says now of nodes about which it said something else before.

    One row may be in several pieces; the last one counts.
    """

    pieces: Sequence[tuple[NDArray[np.intp], Status]]
    """Rows of the node table, and the status that all of them have; a success passes."""


class ClassScores:
    """Scores of nodes that fall into few classes, zones for instance: one for each class.

    ``values[k]`` is the score of class k, normalised already over the classes that occur;
    ``ids[i]`` is the class of node i, an index of ``values``. Classes that do not occur may have
    any score in the range.
    """

    __slots__ = ("ids", "values")

    def __init__(self, values: list[int], ids: NDArray[np.intp]) -> None:
        self.values = values
        self.ids = ids

"""Why a pod fits on no node: statuses by node, counted into kube-scheduler's message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ksched.cache.node_table import NodeTable
from ksched.framework.queued_pod import SharedWait
from ksched.framework.status import SUCCESS, Code, Status, joined

NO_NODES_AVAILABLE = "no nodes available to schedule pods"


class NodeStatuses:
    """The status of every node that rejected a pod, by row of the node table.

    Valid during the attempt only: rows are renumbered when nodes are added or removed.
    """

    __slots__ = ("codes", "statuses", "table")

    def __init__(
        self, table: NodeTable, codes: NDArray[np.int32], statuses: Sequence[Status]
    ) -> None:
        self.table = table
        self.codes = codes
        """``codes[row]`` is 0 for a feasible node, otherwise k for ``statuses[k - 1]``."""
        self.statuses = statuses

    @classmethod
    def same_for_all(cls, table: NodeTable, status: Status) -> NodeStatuses:
        return cls(table, np.ones(len(table), np.int32), (status,))

    def get(self, node_name: str) -> Status:
        code = int(self.codes[self.table.rows[node_name]])
        return self.statuses[code - 1] if code else SUCCESS

    def rows_with(self, code: Code) -> NDArray[np.intp]:
        """Return the rows whose status has exactly this code."""
        is_wanted = [False, *(one.code is code for one in self.statuses)]
        if not any(is_wanted):
            return np.zeros(0, np.intp)
        return np.flatnonzero(np.array(is_wanted)[self.codes])

    def counted(self) -> Iterator[tuple[Status, int]]:
        """Yield each status that occurs, with its number of nodes."""
        counts = np.bincount(self.codes, minlength=len(self.statuses) + 1)
        for status, count in zip(self.statuses, counts[1:], strict=True):
            if count:
                yield status, int(count)


class Diagnosis(Struct, frozen=True, dict=True):
    """The outcome of an attempt that found no node.

    ``reasons`` counts nodes by reason. A rejection after a node was selected (Reserve, Permit)
    counts that one node only and has no ``node_statuses``.
    """

    num_all_nodes: int
    reasons: Mapping[str, int] = {}
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    pre_filter_message: str = ""
    post_filter_message: str = ""
    node_statuses: NodeStatuses | None = None
    shared_wait: SharedWait | None = None
    """What the pod waits for together with others."""
    completes_group: bool = False
    """Whether a group that is on nodes in part lacks the pod."""
    holds_for_template: bool = False
    """Whether template and nodes alone decided: any other pod of the template is rejected too."""
    is_momentary: bool = False
    """Whether what is under way here is about to end the rejection (``Status.is_momentary``)."""

    @cached_property
    def message(self) -> str:
        """The text of the PodScheduled condition (framework/types.go: FitError.Error, v1.36)."""
        text = f"0/{self.num_all_nodes} nodes are available:"
        if self.pre_filter_message:
            text += f" {self.pre_filter_message}."
        elif self.reasons:
            counted = sorted(f"{count} {reason}" for reason, count in self.reasons.items())
            text += f" {joined(counted)}."
        if self.post_filter_message:
            text += f" {self.post_filter_message}"
        return text


def count_reasons(statuses: Iterable[tuple[Status, int]]) -> Counter[str]:
    """Count nodes by reason."""
    counts: Counter[str] = Counter()
    for status, nodes in statuses:
        for reason in status.reasons:
            counts[reason] += nodes
    return counts


def rejectors(statuses: Iterable[Status]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the plugins that rejected, and those of them that returned PENDING.

    kube-scheduler: AddPluginStatus.
    """
    rejecting = [status for status in statuses if status.is_rejected and status.plugin]
    return (
        frozenset(status.plugin for status in rejecting),
        frozenset(status.plugin for status in rejecting if status.code is Code.PENDING),
    )


def diagnose(statuses: NodeStatuses) -> Diagnosis:
    """Build the diagnosis of an attempt whose filters left no node."""
    counted = list(statuses.counted())
    unschedulable, pending = rejectors(status for status, _ in counted)
    return Diagnosis(
        num_all_nodes=len(statuses.table),
        reasons=count_reasons(counted),
        unschedulable_plugins=unschedulable,
        pending_plugins=pending,
        node_statuses=statuses,
    )

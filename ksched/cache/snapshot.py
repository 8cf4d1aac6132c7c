"""What one scheduling cycle sees of the cluster; it does not change while the cycle runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.cache.columns import NodeTable
from ksched.cache.interning import ResourceAxis
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo


class Snapshot:
    """The published node table and the order in which nodes are visited.

    Updated in place by ``SchedulerCache.update_snapshot`` between cycles: a reference kept across
    cycles sees the future. Binding cycles get values, never the snapshot.
    """

    def __init__(self, axis: ResourceAxis) -> None:
        self.table = NodeTable(axis)
        self.generation = 0
        self.order: NDArray[np.intp] = np.zeros(0, np.intp)
        """Rows, nodes of different zones taking turns (only a partial search depends on it)."""

    def __len__(self) -> int:
        return len(self.table)

    def get(self, node_name: str) -> NodeInfo | None:
        row = self.table.rows.get(node_name)
        return None if row is None else self.table.infos[row]

    def row(self, node_name: str) -> int | None:
        return self.table.rows.get(node_name)

    def assume(self, pod: PodInfo, row: int) -> None:
        """Place a pod in this snapshot only; for trying several pods before committing to any."""
        info = self.table.infos[row].clone()
        info.add_pod(pod)
        self.table.put_pods(row, info)

    def forget(self, pod: PodInfo, row: int) -> None:
        """Undo ``assume``."""
        info = self.table.infos[row].clone()
        info.remove_pod(pod.uid)
        self.table.put_pods(row, info)

    def overlay(self, infos: list[NodeInfo]) -> NodeTable:
        """Build a small table of changed copies of nodes, for dry runs."""
        return NodeTable.of(infos, self.table.axis)

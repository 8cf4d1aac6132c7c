"""The view of the cluster of one scheduling cycle; no watch event changes it during the cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ksched.cache.node_info import NodeInfo
from ksched.cache.node_order import NodeTree
from ksched.cache.node_table import NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.resource_axis import ResourceAxis


class Snapshot:
    """The published node table, and nodes by name.

    Updated in place by ``SchedulerCache.update_snapshot`` between cycles: a reference held across
    cycles sees later states. A group's trial assumes its members in it and forgets them again.
    Binding cycles get values, never the snapshot.
    """

    def __init__(self, axis: ResourceAxis) -> None:
        self.table = NodeTable(axis)
        self._tree = NodeTree()
        self._order: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.table.infos)

    def get(self, node_name: str) -> NodeInfo | None:
        row = self.table.rows.get(node_name)
        return None if row is None else self.table.infos[row]

    @property
    def order(self) -> NDArray[np.intp]:
        """All rows, round-robin over zones."""
        if self._order is None:
            rows = self.table.rows
            self._order = np.array([rows[name] for name in self._tree.interleaved()], np.intp)
        return self._order

    def put(self, info: NodeInfo) -> None:
        """Publish a node that is new or whose node object changed."""
        if info.name not in self.table.rows:
            self._order = None
        self.table.put(info)
        self._tree.put(info.name, info.labels)

    def remove(self, node_name: str) -> None:
        self._tree.remove(node_name)
        self.table.remove(node_name)
        self._order = None

    def assume(self, pod: PodInfo, row: int) -> None:
        """Place a pod in this snapshot only: to try several pods before committing any."""
        info = self.table.infos[row].clone()
        info.add_pod(pod)
        self.table.put_pods(row, info)

    def forget(self, pod: PodInfo, row: int) -> None:
        """Undo ``assume``."""
        info = self.table.infos[row].clone()
        info.remove_pod(pod.uid)
        self.table.put_pods(row, info)

    def remove_pods(self, pods: Iterable[PodInfo]) -> dict[int, NodeInfo]:
        """Take pods off their nodes in this snapshot only; the result is for ``restore``."""
        replaced: dict[int, NodeInfo] = {}
        changed: dict[int, NodeInfo] = {}
        for pod in pods:
            row = self.table.rows.get(pod.node_name)
            if row is None or pod.uid not in self.table.infos[row].pods:
                continue
            if row not in changed:
                replaced[row] = self.table.infos[row]
                changed[row] = replaced[row].clone()
            if pod.uid in changed[row].pods:
                changed[row].remove_pod(pod.uid)
        for row, info in changed.items():
            self.table.put_pods(row, info)
        return replaced

    def restore(self, infos: Mapping[int, NodeInfo]) -> None:
        """Undo ``remove_pods``."""
        for row, info in infos.items():
            self.table.put_pods(row, info)

    def overlay(self, infos: list[NodeInfo]) -> NodeTable:
        """Build a small table of modified copies of nodes, for dry runs."""
        return NodeTable.of(infos, self.table.axis)

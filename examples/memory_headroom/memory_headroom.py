"""Prefers nodes on which much memory stays free; answers for all nodes at once, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksched.framework import (
    MAX_NODE_SCORE,
    CycleState,
    Handle,
    NodeRows,
    PodInfo,
    Scope,
    ScoreDependsOn,
)


class MemoryHeadroom:
    name = "MemoryHeadroom"
    score_depends_on = ScoreDependsOn(Scope.RESOURCES, reads_inter_pod_fields=False)
    """The scores depend on amounts alone, so they are cached until a node's amounts change, and
    shared by pods that request the same. With a declaration that is not true, pods would be placed
    by yesterday's scores."""

    def __init__(self, args: Any, handle: Handle) -> None:
        """Called once for each profile that enables the plugin."""

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        """From 0 (full) to 100 (empty), one whole number for each of ``nodes``."""
        offered = nodes.allocatable("memory")
        used = nodes.requested("memory") + pod.template.requests.get("memory", 0)
        # Bytes times 100 fit into 64 bits up to 80 PiB a node.
        free = np.maximum(offered - used, 0) * MAX_NODE_SCORE
        return free // np.maximum(offered, 1)

"""What the answers of a columnar method depend on, declared once and read by the runtime.

    filter_depends_on = FilterDependsOn(Scope.NODE, reads_inter_pod_fields=False)

The runtime caches answers between cycles as far as the declaration allows. A declaration that is
not true gives wrong decisions; ``ksched.testing`` recomputes what was cached and finds those.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ksched.cache.pod_info import PodInfo
from ksched.framework.cycle_state import CycleState
from ksched.framework.verdicts import ChangedVerdicts

if TYPE_CHECKING:
    from ksched.cache.snapshot import Snapshot


class Scope(Enum):
    """What a columnar verdict or score of one node depends on, beside the pod's template.

    The narrowest scope that is true is the fastest.
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
    says which answers changed (``FilterDependsOn.changes``)."""
    POD = "pod"
    """Also fields outside the template (name, annotations, status). Never cached. The default."""


CACHED_SCOPES = (Scope.NODE, Scope.RESOURCES, Scope.ROW)
"""Answers of these outlive the cycle."""

Changes: TypeAlias = tuple[object, ChangedVerdicts | NDArray[np.intp] | None]
"""A mark, and what changed since an earlier one."""


class FilterDependsOn(Struct, frozen=True):
    """What the verdicts of ``filter_nodes`` depend on; the attribute ``filter_depends_on``.

    Cached verdicts are shared by pods that differ in nothing the plugins read. One plugin that
    reads inter-pod fields and has no ``group`` has everything cached template by template.
    """

    scope: Scope = Scope.POD
    reads_inter_pod_fields: bool = True
    """Whether cached verdicts read what ties a pod to others: labels, controller, inter-pod
    affinity, spread constraints."""
    epoch: Callable[[CycleState, PodInfo], object] | None = None
    """With scope CLUSTER: while the value it returns stays the same, the verdicts do too, and a pod
    that fitted nowhere is rejected again without calling ``filter_nodes``."""
    changes: Callable[[CycleState, PodInfo, object], Changes] | None = None
    """With scope CLUSTER: called with the state, the pod and an earlier mark, first ``None``.
    Returns a new mark and the rows whose verdict may have changed since the earlier one (``None``
    for all rows), or the new verdicts themselves. The runtime caches the verdicts and calls
    ``filter_nodes`` for these rows and for changed nodes."""
    group: Callable[[CycleState, PodInfo], Hashable] | None = None
    """With ``changes``, and not called if PreFilter skipped the plugin: pods that are the same but
    for inter-pod fields, and are in the same group, get the same verdicts."""

    @property
    def is_cached(self) -> bool:
        """Whether the verdicts outlive the cycle."""
        return self.scope in CACHED_SCOPES or self.changes is not None


class ScoreDependsOn(Struct, frozen=True):
    """What the raw scores of ``score_nodes`` depend on; the attribute ``score_depends_on``."""

    scope: Scope = Scope.POD
    reads_inter_pod_fields: bool = True
    """As ``FilterDependsOn.reads_inter_pod_fields``."""
    epoch: Callable[[Snapshot], object] | None = None
    """With scope NODE, RESOURCES or ROW: all cached scores are dropped when the value it returns
    changes."""

    @property
    def is_cached(self) -> bool:
        """Whether the raw scores outlive the cycle."""
        return self.scope in CACHED_SCOPES

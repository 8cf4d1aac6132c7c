"""Declaration of what the results of a columnar method depend on, read by the runtime.

    filter_depends_on = FilterDependsOn(Scope.NODE, reads_inter_pod_fields=False)

The runtime caches results between cycles as far as the declaration allows. A false declaration
gives wrong decisions; ``ksched.testing`` recomputes cached results and detects it.
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
    """What a columnar verdict or score of one node depends on, besides the pod's template.

    The narrowest scope that is true is the fastest.
    """

    NODE = "node"
    """The node object: labels, taints, allocatable, images. Recomputed when the node changes."""
    RESOURCES = "resources"
    """Amounts only: what the node offers, what its pods request, how many they are. Recomputed when
    they change, and only once for equal amounts, whatever the node."""
    ROW = "row"
    """The node object and the pods on the node. Recomputed when the node changes, or its pods'
    templates, demand or whether they terminate (not for other fields of their status, nor for
    annotations)."""
    CLUSTER = "cluster"
    """Anything else. Recomputed in every cycle for the nodes that no earlier plugin in the calling
    order rejects, unless the plugin reports what changed (``FilterDependsOn.changes``)."""
    POD = "pod"
    """Also fields outside the template (name, annotations, status). Never cached. The default."""


CACHED_SCOPES = (Scope.NODE, Scope.RESOURCES, Scope.ROW)
"""Results with these scopes are cached between cycles."""

Changes: TypeAlias = tuple[object, ChangedVerdicts | NDArray[np.intp] | None]
"""A mark, and what changed since an earlier one."""


class FilterDependsOn(Struct, frozen=True):
    """What the verdicts of ``filter_nodes`` depend on; the attribute ``filter_depends_on``.

    Cached verdicts are shared by pods that are equal in everything the plugins read. A single
    plugin that reads inter-pod fields and has no ``group`` makes the cache per template.
    """

    scope: Scope = Scope.POD
    reads_inter_pod_fields: bool = True
    """Whether cached verdicts depend on inter-pod fields: labels, controller, inter-pod affinity,
    spread constraints."""
    epoch: Callable[[CycleState, PodInfo], object] | None = None
    """With scope CLUSTER: while the returned value stays equal, so do the verdicts, and a pod that
    fitted nowhere is rejected again without calling ``filter_nodes``."""
    changes: Callable[[CycleState, PodInfo, object], Changes] | None = None
    """With scope CLUSTER: called with the state, the pod and an earlier mark, first ``None``.
    Returns a new mark and the rows whose verdict may have changed since the earlier one (``None``
    for all rows), or the new verdicts themselves. The runtime caches the verdicts and calls
    ``filter_nodes`` for these rows and for changed nodes."""
    group: Callable[[CycleState, PodInfo], Hashable] | None = None
    """With ``changes``; not called if PreFilter skipped the plugin. Pods that are equal except for
    inter-pod fields and have equal groups get the same verdicts."""
    reads_claim_names: bool = True
    """Whether cached verdicts depend on the names of the pod's claims (PersistentVolumeClaims and
    ResourceClaims), other than through ``changes``. If no cached result does, pods that differ
    only in them share all."""

    @property
    def is_cached(self) -> bool:
        """Whether verdicts are cached between cycles."""
        return self.scope in CACHED_SCOPES or self.changes is not None


class ScoreDependsOn(Struct, frozen=True):
    """What the raw scores of ``score_nodes`` depend on; the attribute ``score_depends_on``."""

    scope: Scope = Scope.POD
    reads_inter_pod_fields: bool = True
    """As ``FilterDependsOn.reads_inter_pod_fields``."""
    epoch: Callable[[Snapshot], object] | None = None
    """With scope NODE, RESOURCES or ROW: all cached scores are dropped when the returned value
    changes."""
    reads_claim_names: bool = True
    """As ``FilterDependsOn.reads_claim_names``."""

    @property
    def is_cached(self) -> bool:
        """Whether raw scores are cached between cycles."""
        return self.scope in CACHED_SCOPES

"""PodTopologySpread: evenly over zones, hosts or any other label of nodes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

from ksched.api.label_selectors import InvalidSelector
from ksched.api.objects import Node, Pod
from ksched.cache.listings import Listings
from ksched.cache.pod_counts import Ints, PodLedger
from ksched.configuration.plugin_args import PodTopologySpreadArgs
from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    NodeInfo,
    NodeRows,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    error,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.default_selector import DefaultSelectors
from ksched.framework.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    Constraint,
    TrackedConstraint,
    compile_constraints,
    has_all_keys,
    own_constraints,
    track,
)
from ksched.framework.plugins.pod_topology_spread.filtering import HardSpread
from ksched.framework.plugins.pod_topology_spread.scoring import SoftSpread

KEPT_BYTES = 48 << 20
"""Memory for the counters of all templates."""

_BYTES_PER_NODE = 64
"""What the counters of one template take, roughly, for each node."""

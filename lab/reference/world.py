"""Everything the rules of the reference may look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ksched.api.objects import (
    Namespace,
    Node,
    NodeAffinity,
    Pod,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    TopologySpreadConstraint,
)
from ksched.api.pod_resources import pod_requests_with_status
from ksched.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

NO_AFFINITY = NodeAffinity()

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"

Verdict = tuple[str, list[str]] | None
"""Code and reasons, or ``None`` if the node passes."""


@dataclass(frozen=True)
class ReferenceProfile:
    """Which plugins decide, in which order and with which weights and arguments."""

    filters: Sequence[str] = (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
    )
    weights: Mapping[str, int] = field(
        default_factory=lambda: {
            "TaintToleration": 3,
            "NodeAffinity": 2,
            "NodeResourcesFit": 1,
            "NodeResourcesBalancedAllocation": 1,
            "ImageLocality": 1,
        }
    )
    added_affinity: NodeAffinity = NO_AFFINITY
    ignored_resources: Sequence[str] = ()
    ignored_resource_groups: Sequence[str] = ()
    strategy: str = "LeastAllocated"
    scored_resources: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    shape: Sequence[tuple[int, int]] = ()
    """(utilization, score) points of RequestedToCapacityRatio."""
    balanced_resources: Sequence[str] = ("cpu", "memory")
    spread_defaults: Sequence[TopologySpreadConstraint] | None = None
    """Constraints of pods without; ``None`` for the system's."""
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


DEFAULT_PROFILE = ReferenceProfile(
    filters=(
        *ReferenceProfile.filters,
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeDeclaredFeatures",
    ),
    weights={**ReferenceProfile().weights, "PodTopologySpread": 2, "InterPodAffinity": 2},
)
"""The default profile of kube-scheduler, as far as it filters and scores here."""


@dataclass(frozen=True)
class OtherObjects:
    """What rules look up beside nodes and pods."""

    namespaces: Sequence[Namespace] = ()
    services: Sequence[Service] = ()
    replication_controllers: Sequence[ReplicationController] = ()
    replica_sets: Sequence[ReplicaSet] = ()
    stateful_sets: Sequence[StatefulSet] = ()
    volumes: Sequence[PersistentVolume] = ()
    claims: Sequence[PersistentVolumeClaim] = ()
    storage_classes: Sequence[StorageClass] = ()
    csi_nodes: Sequence[CSINode] = ()
    csi_drivers: Sequence[CSIDriver] = ()
    capacities: Sequence[CSIStorageCapacity] = ()
    attachments: Sequence[VolumeAttachment] = ()


@dataclass(frozen=True)
class World:
    """Everything a rule may look at."""

    nodes: Sequence[Node]
    pods_by_node: Mapping[str, Sequence[Pod]]
    pod: Pod
    profile: ReferenceProfile
    others: OtherObjects = OtherObjects()

    def pods_on(self, node: Node) -> Sequence[Pod]:
        return self.pods_by_node.get(node.metadata.name, ())

    def used(self, node: Node) -> dict[str, int]:
        """What the pods on a node take of it."""
        total: Counter[str] = Counter()
        for pod in self.pods_on(node):
            total.update(pod_requests_with_status(pod))
        return dict(total)

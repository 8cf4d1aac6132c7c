"""The fields of Kubernetes objects that a scheduler reads, decoded straight from bytes.

A field that nobody here reads is not declared, so it costs nothing to decode and cannot change a
decision. Objects are frozen: a changed object is a new one (``msgspec.structs.replace``), and two
versions may be compared with ``==``. ``None`` stands where Kubernetes tells absent from empty and
the difference matters (a label selector, an affinity); elsewhere the empty value.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

Quantity: TypeAlias = str | int | float
Quantities: TypeAlias = dict[str, Quantity]
Labels: TypeAlias = dict[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Object(Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all API data: camelCase on the wire, immutable, empty values left out."""


# -- metadata -----------------------------------------------------------------------------------


class OwnerReference(Object):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Object):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: list[OwnerReference] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def key(self) -> str:
        """``namespace/name``, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class LabelSelectorRequirement(Object):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Object):
    match_labels: Labels = {}
    match_expressions: list[LabelSelectorRequirement] = []


# -- pod ----------------------------------------------------------------------------------------


class ResourceRequirements(Object):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Object):
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = ""


class ContainerRestartRule(Object):
    action: str = ""


class Container(Object):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] = []


class NodeSelectorRequirement(Object):
    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Object):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Object):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Object):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Object):
    required: NodeSelector | None = field(name=_REQUIRED, default=None)
    preferred: list[PreferredSchedulingTerm] | None = field(name=_PREFERRED, default=None)


class PodAffinityTerm(Object):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Object):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Object):
    """Shape of both ``podAffinity`` and ``podAntiAffinity``."""

    required: list[PodAffinityTerm] = field(name=_REQUIRED, default_factory=list)
    preferred: list[WeightedPodAffinityTerm] = field(name=_PREFERRED, default_factory=list)


class Affinity(Object):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Object):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Object):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class PodSchedulingGate(Object):
    name: str


class PodResourceClaim(Object):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PersistentVolumeClaimVolumeSource(Object):
    claim_name: str
    read_only: bool = False


class EphemeralVolumeSource(Object):
    """Only its presence counts: the claim it stands for is named after pod and volume."""


class GCEPersistentDiskVolumeSource(Object):
    pd_name: str
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Object):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class ISCSIVolumeSource(Object):
    iqn: str
    read_only: bool = False


class RBDVolumeSource(Object):
    image: str
    monitors: list[str] = []
    pool: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(Object):
    disk_name: str = ""
    disk_uri: str = field(name="diskURI", default="")


class CinderVolumeSource(Object):
    volume_id: str = field(name="volumeID", default="")


class CSIVolumeSource(Object):
    driver: str = ""
    volume_handle: str = ""


class ImageVolumeSource(Object):
    reference: str = ""


class Volume(Object):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None


class PodSpec(Object):
    """What decides where a pod may go. Equal specs are indistinguishable to every in-tree plugin."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    preemption_policy: str | None = None
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    volumes: list[Volume] = []
    scheduling_gates: list[PodSchedulingGate] = []
    resource_claims: list[PodResourceClaim] = []
    host_network: bool = False
    host_users: bool | None = None


class PodCondition(Object):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class ContainerStatus(Object):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}


class PodResourceClaimStatus(Object):
    name: str
    resource_claim_name: str | None = None


class PodStatus(Object):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}
    resource_claim_statuses: list[PodResourceClaimStatus] = []


class Pod(Object):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# -- node ---------------------------------------------------------------------------------------


class Taint(Object):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Object):
    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(Object):
    names: list[str] | None = None
    size_bytes: int = 0


class NodeCondition(Object):
    type: str
    status: str


class NodeStatus(Object):
    allocatable: Quantities = {}
    conditions: list[NodeCondition] = []
    images: list[ContainerImage] | None = None
    declared_features: list[str] = []


class Node(Object):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# -- listings that plugins ask for ---------------------------------------------------------------


class Namespace(Object):
    metadata: ObjectMeta


class ServiceSpec(Object):
    selector: Labels | None = None


class Service(Object):
    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Object):
    selector: Labels | None = None


class ReplicationController(Object):
    metadata: ObjectMeta
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class WorkloadSpec(Object):
    selector: LabelSelector | None = None


class ReplicaSet(Object):
    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Object):
    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()


class PodDisruptionBudgetSpec(Object):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Object):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Object):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

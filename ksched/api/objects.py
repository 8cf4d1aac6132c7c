"""The fields of Kubernetes objects that a scheduler reads, decoded straight from bytes.

A field that is not read is not declared, so it costs nothing to decode and cannot change a
decision. Objects are frozen: a changed object is a new one (``msgspec.structs.replace``), and two
versions may be compared with ``==``. ``None`` is used where Kubernetes distinguishes absent from
empty and the difference matters (a label selector, an affinity); elsewhere the empty value.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

# The API's own bounds: larger numbers cannot come from an API server and fit in no column.
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

Quantity: TypeAlias = str | int | float
Quantities: TypeAlias = dict[str, Quantity]
Labels: TypeAlias = dict[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Object(Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all API data: camelCase on the wire, immutable, empty values omitted."""


# -- metadata -----------------------------------------------------------------------------------


class OwnerReference(Object, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Object, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: list[OwnerReference] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class LabelSelectorRequirement(Object, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Object, frozen=True):
    match_labels: Labels = {}
    match_expressions: list[LabelSelectorRequirement] = []


# -- pod ----------------------------------------------------------------------------------------


class ResourceRequirements(Object, frozen=True):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Object, frozen=True):
    host_port: Int32 = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = ""


class ContainerRestartRule(Object, frozen=True):
    action: str = ""


class Container(Object, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] = []


class NodeSelectorRequirement(Object, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Object, frozen=True):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Object, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Object, frozen=True):
    weight: Int32
    preference: NodeSelectorTerm


class NodeAffinity(Object, frozen=True):
    required: NodeSelector | None = field(name=_REQUIRED, default=None)
    preferred: list[PreferredSchedulingTerm] | None = field(name=_PREFERRED, default=None)


class PodAffinityTerm(Object, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Object, frozen=True):
    weight: Int32
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Object, frozen=True):
    """Shape of both ``podAffinity`` and ``podAntiAffinity``."""

    required: list[PodAffinityTerm] = field(name=_REQUIRED, default_factory=list)
    preferred: list[WeightedPodAffinityTerm] = field(name=_PREFERRED, default_factory=list)


class Affinity(Object, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Object, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Object, frozen=True):
    max_skew: Int32
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class PodSchedulingGate(Object, frozen=True):
    name: str


class PodSchedulingGroup(Object, frozen=True):
    pod_group_name: str = ""


class PodResourceClaim(Object, frozen=True):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PersistentVolumeClaimVolumeSource(Object, frozen=True):
    claim_name: str
    read_only: bool = False


class EphemeralVolumeSource(Object, frozen=True):
    """Only its presence matters: the claim is named after pod and volume."""


class GCEPersistentDiskVolumeSource(Object, frozen=True):
    pd_name: str
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Object, frozen=True):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class ISCSIVolumeSource(Object, frozen=True):
    iqn: str
    read_only: bool = False


class RBDVolumeSource(Object, frozen=True):
    image: str
    monitors: list[str] = []
    pool: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(Object, frozen=True):
    disk_name: str = ""
    disk_uri: str = field(name="diskURI", default="")
    kind: str | None = None


class AzureFileVolumeSource(Object, frozen=True):
    secret_name: str = ""
    share_name: str = ""


class CinderVolumeSource(Object, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class VsphereVirtualDiskVolumeSource(Object, frozen=True):
    volume_path: str = ""


class PortworxVolumeSource(Object, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class CSIVolumeSource(Object, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class ImageVolumeSource(Object, frozen=True):
    reference: str = ""


class Volume(Object, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None


class PodSpec(Object, frozen=True):
    """What determines where a pod may go; no in-tree plugin can distinguish equal specs."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: Int32 | None = None
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
    scheduling_group: PodSchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None


class PodCondition(Object, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class ContainerStatus(Object, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}


class PodResourceClaimStatus(Object, frozen=True):
    name: str
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Object, frozen=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Object, frozen=True):
    resource_claim_name: str = ""
    request_mappings: list[ContainerExtendedResourceRequest] = []


class PodStatus(Object, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# -- node ---------------------------------------------------------------------------------------


class Taint(Object, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Object, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(Object, frozen=True):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeCondition(Object, frozen=True):
    type: str
    status: str


class NodeStatus(Object, frozen=True):
    allocatable: Quantities = {}
    conditions: list[NodeCondition] = []
    images: list[ContainerImage] | None = None
    declared_features: list[str] = []


class Node(Object, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# -- other kinds that plugins list ---------------------------------------------------------------


class Namespace(Object, frozen=True):
    metadata: ObjectMeta


class ServiceSpec(Object, frozen=True):
    selector: Labels | None = None


class Service(Object, frozen=True):
    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Object, frozen=True):
    selector: Labels | None = None


class ReplicationController(Object, frozen=True):
    metadata: ObjectMeta
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class WorkloadSpec(Object, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(Object, frozen=True):
    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Object, frozen=True):
    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()


class PodDisruptionBudgetSpec(Object, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Object, frozen=True):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

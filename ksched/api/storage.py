"""The fields of storage objects that a scheduler reads, with a few derived properties.

Decoded and frozen like everything in ``ksched.api.objects``. A claim here is a
PersistentVolumeClaim, a volume a PersistentVolume.
"""

from __future__ import annotations

from msgspec import field

from ksched.api.objects import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CinderVolumeSource,
    CSIVolumeSource,
    GCEPersistentDiskVolumeSource,
    Int32,
    LabelSelector,
    NodeSelector,
    Object,
    ObjectMeta,
    PortworxVolumeSource,
    Quantities,
    Quantity,
    VsphereVirtualDiskVolumeSource,
)

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"

NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
FILESYSTEM = "Filesystem"


# -- claims -------------------------------------------------------------------------------------


class VolumeResourceRequirements(Object, frozen=True):
    requests: Quantities = {}


class PersistentVolumeClaimSpec(Object, frozen=True):
    access_modes: list[str] = []
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str = FILESYSTEM
    volume_name: str = ""
    volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(Object, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def class_name(self) -> str:
        """The storage class, which an old annotation may name; empty if none is requested."""
        beta = self.metadata.annotations.get(BETA_STORAGE_CLASS)
        return beta if beta is not None else self.spec.storage_class_name or ""

    @property
    def is_fully_bound(self) -> bool:
        """Whether the controller has completed the binding; a volume's name is not enough.

        kube-scheduler: isPVCBound, isVolumeBound.
        """
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def request(self) -> Quantity:
        return self.spec.resources.requests.get("storage", 0)


# -- volumes ------------------------------------------------------------------------------------


class ObjectReference(Object, frozen=True):
    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class VolumeNodeAffinity(Object, frozen=True):
    required: NodeSelector | None = None


class AzureFilePersistentVolumeSource(AzureFileVolumeSource, frozen=True):
    secret_namespace: str | None = None


class PersistentVolumeSpec(Object, frozen=True):
    capacity: Quantities = {}
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = FILESYSTEM
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str = ""
    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFilePersistentVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None


class PersistentVolumeStatus(Object, frozen=True):
    phase: str = ""


class PersistentVolume(Object, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def class_name(self) -> str:
        beta = self.metadata.annotations.get(BETA_STORAGE_CLASS)
        return beta if beta is not None else self.spec.storage_class_name

    def is_bound_to(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the volume's ``claimRef`` is this claim; one without a UID was bound by hand."""
        reference = self.spec.claim_ref
        if reference is None:
            return False
        meta = claim.metadata
        return (reference.name, reference.namespace) == (meta.name, meta.namespace) and (
            not reference.uid or reference.uid == meta.uid
        )


# -- storage.k8s.io -----------------------------------------------------------------------------


class TopologySelectorLabelRequirement(Object, frozen=True):
    key: str
    values: list[str] = []


class TopologySelectorTerm(Object, frozen=True):
    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Object, frozen=True):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(Object, frozen=True):
    count: Int32 | None = None


class CSINodeDriver(Object, frozen=True):
    name: str
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Object, frozen=True):
    drivers: list[CSINodeDriver] = []


class CSINode(Object, frozen=True):
    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """Limit of volumes by driver; drivers without a limit are absent."""
        return {
            driver.name: driver.allocatable.count
            for driver in self.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """In-tree plugins whose volumes a CSI driver handles on the node."""
        return frozenset(self.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")) - {""}


class CSIDriverSpec(Object, frozen=True):
    storage_capacity: bool = False


class CSIDriver(Object, frozen=True):
    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True):
    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def volume_limit(self) -> Quantity | None:
        """The largest volume that can be provisioned; the maximum is more precise than the rest."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class VolumeAttachmentSource(Object, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Object, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(Object, frozen=True):
    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()

"""The fields of ResourceClaims, ResourceSlices and the like that a scheduler reads.

Decoded and frozen like everything in ``ksched.api.objects``. Opaque parameters stay the bytes that
they came in: an API server compares them byte by byte, and so refuses a claim that is written back
with other blanks in them.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, field
from msgspec.structs import force_setattr

from ksched.api.objects import Int64, NodeSelector, Object, ObjectMeta, Quantities, Quantity

FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
IMPLICIT_EXTENDED_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"

MAX_RESULTS = 32
"""Devices of one claim (AllocationResultsMaxSize)."""
MAX_RESERVATIONS = 256
"""Pods that may use one claim (ResourceClaimReservedForMaxSize)."""
MAX_SUBREQUESTS = 8
"""Alternatives of one request (FirstAvailableDeviceRequestMaxSize)."""

EXACT_COUNT = "ExactCount"
ALL = "All"
NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"


# -- claims -------------------------------------------------------------------------------------


class CELDeviceSelector(Object, frozen=True):
    expression: str = ""


class DeviceSelector(Object, frozen=True):
    cel: CELDeviceSelector | None = None


class CapacityRequirements(Object, frozen=True):
    requests: Quantities = {}


class DeviceToleration(Object, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class ExactDeviceRequest(Object, frozen=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Object, frozen=True):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(Object, frozen=True):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Object, frozen=True):
    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Object, frozen=True):
    requests: list[str] = []
    opaque: Raw = Raw(b"null")


class DeviceClaim(Object, frozen=True):
    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(Object, frozen=True, eq=False, weakref=True, gc=True):
    """The requests of a claim; specs with equal bytes are one object, compared by identity."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaimConsumerReference(Object, frozen=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceRequestAllocationResult(Object, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] = []
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: Quantities | None = None


class DeviceAllocationConfiguration(Object, frozen=True):
    source: str = ""
    requests: list[str] = []
    opaque: Raw = Raw(b"null")


class DeviceAllocationResult(Object, frozen=True):
    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(Object, frozen=True):
    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class DeviceCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Object, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(name="shareID", default=None)
    conditions: list[DeviceCondition] = []


class ResourceClaimStatus(Object, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(Object, frozen=True):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
    whole: bytes = field(name="-whole", default=b"")
    """Its JSON without ``managedFields``: what is written back must be all of it."""

    def is_reserved_for(self, uid: str) -> bool:
        """kube-scheduler: IsReservedForPod."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for)


# -- classes ------------------------------------------------------------------------------------


class DeviceClassConfiguration(Object, frozen=True):
    opaque: Raw = Raw(b"null")


class DeviceClassSpec(Object, frozen=True):
    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


# -- slices -------------------------------------------------------------------------------------


class DeviceAttribute(Object, frozen=True):
    int_value: Int64 | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string_value: str | None = field(name="string", default=None)
    version_value: str | None = field(name="version", default=None)


class CapacityRequestPolicyRange(Object, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Object, frozen=True):
    default: Quantity | None = None
    valid_values: list[Quantity] = []
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Object, frozen=True):
    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Object, frozen=True):
    value: Quantity = 0


Counters: TypeAlias = dict[str, Counter]


class CounterSet(Object, frozen=True):
    name: str = ""
    counters: Counters = {}


class DeviceCounterConsumption(Object, frozen=True):
    counter_set: str = ""
    counters: Counters = {}


class DeviceTaint(Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Device(Object, frozen=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class ResourcePool(Object, frozen=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Object, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(Object, frozen=True):
    metadata: ObjectMeta
    spec: ResourceSliceSpec = ResourceSliceSpec()


# -- taint rules --------------------------------------------------------------------------------


class DeviceTaintSelector(Object, frozen=True):
    """Devices that have all that is given."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Object, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Object, frozen=True):
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


# -- from bytes ---------------------------------------------------------------------------------

_specs: WeakValueDictionary[bytes, ResourceClaimSpec] = WeakValueDictionary()
_encode = msgspec.json.Encoder().encode


def whole_claim(claim: ResourceClaim, whole: bytes, spec_text: Raw) -> ResourceClaim:
    """Let a claim that was decoded from ``whole`` keep it, and share its spec."""
    spec = _specs.setdefault(bytes(spec_text), claim.spec)
    force_setattr(claim, "spec", spec)
    force_setattr(claim, "whole", whole)
    return claim


def shared_spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Return the one object for all specs that are written alike."""
    return _specs.setdefault(_encode(spec), spec)


def encoded(value: Any) -> Raw:
    """A part of an object as it is written to the API server."""
    return Raw(_encode(value))

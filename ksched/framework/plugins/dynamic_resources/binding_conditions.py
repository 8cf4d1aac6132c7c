"""Binding conditions: devices that must be ready before a pod is bound."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ksched.api.devices import (
    AllocatedDeviceStatus,
    DeviceCondition,
    DeviceRequestAllocationResult,
    ResourceClaim,
)


class BindingFailed(Exception):
    """A driver reports that a device will not become ready."""


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all devices of a claim are ready; raises ``BindingFailed``.

    kube-scheduler: isClaimReadyForBinding.
    """
    if claim.status.allocation is None:
        return False
    for result in claim.status.allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _device_status(claim, result)
        if status is None:
            return False
        for condition in status.conditions:
            if condition.type in result.binding_failure_conditions and condition.status == "True":
                raise BindingFailed(_failure(claim, condition))
        true = {one.type for one in status.conditions if one.status == "True"}
        if not true.issuperset(result.binding_conditions):
            return False
    return True


def is_timed_out(claim: ResourceClaim, timeout_seconds: float, now: float) -> bool:
    """Whether the binding timeout of a claim is over. kube-scheduler: isClaimTimeout."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return False
    if all(one.binding_conditions is None for one in allocation.devices.results):
        return False
    allocated = datetime.fromisoformat(allocation.allocation_timestamp).timestamp()
    return allocated + timeout_seconds < now


def have_binding_conditions(claims: Iterable[ResourceClaim]) -> bool:
    """kube-scheduler: hasBindingConditions."""
    return any(
        result.binding_conditions
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )


def _device_status(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> AllocatedDeviceStatus | None:
    wanted = (result.driver, result.pool, result.device)
    statuses = (one for one in claim.status.devices if (one.driver, one.pool, one.device) == wanted)
    return next(statuses, None)


def _failure(claim: ResourceClaim, condition: DeviceCondition) -> str:
    text = condition.message.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    name = claim.metadata.name
    return f'device binding failed: claim={name}, reason={condition.reason}, message="{text}"'

"""What a request consumes of a device (structured/internal/incubating: consumable_capacity.go)."""

from __future__ import annotations

from collections.abc import Mapping

from ksched.api.objects import Quantity
from ksched.api.quantity import NANOS, to_nanos, value
from ksched.devices.slices import Capacity, DeviceShape

_BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def consumed_capacity(
    requested: Mapping[str, tuple[Quantity, int]],
    shape: DeviceShape,
    *in_use: Mapping[str, int],
) -> dict[str, tuple[Quantity, int]] | None:
    """What a request consumes of every capacity; ``None`` if the device has too little.

    ``in_use`` are amounts that count as consumed already. Amounts are a quantity and the same in
    nano units.

    kube-scheduler: CmpRequestOverCapacity, GetConsumedCapacityFromRequest.
    """
    names = {one.name for one in shape.capacity}
    if not requested.keys() <= names:
        return None
    consumed: dict[str, tuple[Quantity, int]] = {}
    for capacity in shape.capacity:
        amount = _consumed(capacity, requested.get(capacity.name))
        if _violates_policy(capacity, amount[1]):
            return None
        total = amount[1] + sum(used.get(capacity.name, 0) for used in in_use)
        if total > capacity.nanos:
            return None
        consumed[capacity.name] = amount
    return consumed


def _consumed(capacity: Capacity, asked: tuple[Quantity, int] | None) -> tuple[Quantity, int]:
    """kube-scheduler: calculateConsumedCapacity."""
    policy = capacity.declared.request_policy
    if asked is None:
        if policy is not None and policy.default is not None:
            return policy.default, to_nanos(policy.default)
        return capacity.value, capacity.nanos
    if policy is None:
        return asked
    valid_range = policy.valid_range
    if valid_range is not None and valid_range.min is not None:
        least = to_nanos(valid_range.min)
        if asked[1] < least:
            return valid_range.min, least
        if valid_range.step is None:
            return asked
        start, step = value(valid_range.min), value(valid_range.step)
        steps = -((start - value(asked[0])) // step)
        units = start + step * steps
        return binary_quantity(units), units * NANOS
    for valid in policy.valid_values:
        if to_nanos(valid) >= asked[1]:
            return valid, to_nanos(valid)
    return asked


def _violates_policy(capacity: Capacity, nanos: int) -> bool:
    """kube-scheduler: violatesPolicy."""
    policy = capacity.declared.request_policy
    if policy is None or (policy.default is not None and nanos == to_nanos(policy.default)):
        return False
    valid_range = policy.valid_range
    if valid_range is not None:
        if valid_range.max is not None and nanos > to_nanos(valid_range.max):
            return True
        if valid_range.step is not None and valid_range.min is not None:
            above = nanos - to_nanos(valid_range.min)
            return above % to_nanos(valid_range.step) != 0
        return False
    if policy.valid_values:
        return all(to_nanos(valid) != nanos for valid in policy.valid_values)
    return False


def binary_quantity(units: int) -> str:
    """Whole units as Kubernetes writes a BinarySI quantity: with the largest exact unit."""
    power = 0
    while units and units % 1024 == 0 and power + 1 < len(_BINARY_UNITS):
        units //= 1024
        power += 1
    return f"{units}{_BINARY_UNITS[power]}"

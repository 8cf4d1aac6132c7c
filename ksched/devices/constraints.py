"""Constraints between the devices of a claim (structured/internal/incubating: constraint.go)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from ksched.api.devices import DeviceConstraint, DeviceTaint, DeviceToleration
from ksched.devices.pools import Pool
from ksched.devices.requests import AllocationFailed, Request
from ksched.devices.slices import DeviceShape

_Value: TypeAlias = tuple[str, int | str | bool]
"""Type and value of an attribute."""


class Constraint(Protocol):
    """Accepts or rejects the devices of one search, one after the other."""

    def add(self, request: Request, shape: DeviceShape) -> bool:
        """Add a device; False, without a change, if it violates the constraint."""
        ...

    def remove(self, request: Request) -> None:
        """Remove the device that was added last."""
        ...

    def rejects_all(self, request: Request, pool: Pool) -> bool:
        """Whether no device of a pool can be added now."""
        ...


class MatchAttribute:
    """All devices have the same value. kube-scheduler: matchAttributeConstraint."""

    def __init__(self, constraint: DeviceConstraint, attribute: str) -> None:
        self._requests = frozenset(constraint.requests)
        self._attribute = attribute
        self._value: _Value | None = None
        self._count = 0

    def add(self, request: Request, shape: DeviceShape) -> bool:
        if not _concerns(self._requests, request):
            return True
        found = attribute_value(shape, self._attribute)
        if found is None or (self._count and found != self._value):
            return False
        self._value = found
        self._count += 1
        return True

    def remove(self, request: Request) -> None:
        if _concerns(self._requests, request):
            self._count -= 1

    def rejects_all(self, request: Request, pool: Pool) -> bool:
        if not self._count or not _concerns(self._requests, request):
            return False
        values = pool.layout.values.get(self._attribute)
        if values is None:
            values = frozenset(attribute_value(one.shape, self._attribute) for one in pool.devices)
            pool.layout.values[self._attribute] = values
        return self._value not in values


class DistinctAttribute:
    """Devices of different requests have different values.

    As in kube-scheduler one value is stored for each request, that of its last device; after that
    device was removed, none.

    kube-scheduler: distinctAttributeConstraint.
    """

    def __init__(self, constraint: DeviceConstraint, attribute: str) -> None:
        self._requests = frozenset(constraint.requests)
        self._attribute = attribute
        self._values: dict[str, _Value] = {}

    def add(self, request: Request, shape: DeviceShape) -> bool:
        if not _concerns(self._requests, request):
            return True
        found = attribute_value(shape, self._attribute)
        if found is None or found in self._values.values():
            return False
        self._values[request.full_name] = found
        return True

    def remove(self, request: Request) -> None:
        if _concerns(self._requests, request):
            self._values.pop(request.full_name, None)

    def rejects_all(self, request: Request, pool: Pool) -> bool:
        return False


def make_constraints(declared: Sequence[DeviceConstraint], claim_key: str) -> list[Constraint]:
    """Return the constraints of a claim; raises ``AllocationFailed``."""
    made: list[Constraint] = []
    for index, one in enumerate(declared):
        if one.match_attribute is not None:
            made.append(MatchAttribute(one, one.match_attribute))
        elif one.distinct_attribute is not None:
            made.append(DistinctAttribute(one, one.distinct_attribute))
        else:
            text = "empty constraint (unsupported constraint type?)"
            raise AllocationFailed(f"claim {claim_key}, constraint #{index}: {text}")
    return made


def _concerns(requests: frozenset[str], request: Request) -> bool:
    return not requests or request.parent in requests or request.full_name in requests


def attribute_value(shape: DeviceShape, name: str) -> _Value | None:
    """Return an attribute by its full name. kube-scheduler: lookupAttribute."""
    attributes = shape.attributes
    attribute = attributes.get(name)
    if attribute is None:
        domain, _, identifier = name.partition("/")
        attribute = attributes.get(identifier) if domain == shape.driver else None
    if attribute is None:
        return None
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return None


def tolerates(tolerations: Sequence[DeviceToleration], taints: Sequence[DeviceTaint]) -> bool:
    """Whether every taint is tolerated. kube-scheduler: taintTolerated."""
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in taints)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value

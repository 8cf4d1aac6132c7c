"""The requests of a claim, prepared for the search; once for all claims with the same spec.

Problems that end the search are stored and raised when a claim is allocated, because the message
names the claim (structured/internal/incubating/allocator_incubating.go: Allocate, v1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ksched.api.devices import (
    ALL,
    EXACT_COUNT,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from ksched.api.objects import Quantity
from ksched.api.quantity import to_nanos
from ksched.devices.effort import Effort
from ksched.devices.selector_cache import CompiledSelector, SelectorCache, SelectorError
from ksched.devices.slices import DeviceShape

GetClass = Callable[[str], DeviceClass | None]


SHAPES_CACHED = 4096
"""Shapes of devices for which a request knows whether it selects them."""


class AllocationFailed(Exception):
    """A claim cannot be allocated on any node; the message names it and the reason."""


class Request:
    """One request of a claim, or one alternative of it."""

    __slots__ = (
        "_class_selectors",
        "_selectable",
        "_selectors",
        "admin_access",
        "capacity",
        "count",
        "device_class",
        "full_name",
        "is_all",
        "name",
        "parent",
        "problem",
        "tolerations",
    )

    def __init__(
        self,
        name: str,
        parent: str,
        asked: ExactDeviceRequest | DeviceSubRequest,
        get_class: GetClass,
        selectors: SelectorCache,
    ) -> None:
        self.name = name
        self.parent = parent or name
        """The name of the request in the claim; a subrequest has its own name besides."""
        self.full_name = f"{parent}/{name}" if parent else name
        self.is_all = asked.allocation_mode == ALL
        self.count = 0 if self.is_all else asked.count
        self.admin_access = isinstance(asked, ExactDeviceRequest) and bool(asked.admin_access)
        self.tolerations: Sequence[DeviceToleration] = asked.tolerations
        requested = asked.capacity.requests if asked.capacity is not None else {}
        self.capacity: Mapping[str, tuple[Quantity, int]] = {
            capacity: (amount, to_nanos(amount)) for capacity, amount in requested.items()
        }
        self.device_class = get_class(asked.device_class_name) if asked.device_class_name else None
        self.problem = self._problem(asked)
        self._class_selectors: tuple[CompiledSelector, ...] = ()
        if self.device_class is not None:
            self._class_selectors = _compiled(self.device_class.spec.selectors, selectors)
        self._selectors = _compiled(asked.selectors, selectors)
        self._selectable: dict[DeviceShape, bool] = {}

    def _problem(self, asked: ExactDeviceRequest | DeviceSubRequest) -> str:
        """kube-scheduler: validateDeviceRequest."""
        for index, selector in enumerate(asked.selectors):
            if selector.cel is None:
                text = "CEL expression empty (unsupported selector type?)"
                return f", request {self.name}, selector #{index}: {text}"
        wanted = asked.device_class_name
        if not wanted:
            text = "missing device class name (unsupported request type?)"
            return f", request {self.name}: {text}"
        if self.device_class is None:
            missing = f'deviceclass.resource.k8s.io "{wanted}" not found'
            text = f"could not retrieve device class {wanted}: {missing}"
            return f", request {self.name}: {text}"
        if asked.allocation_mode not in (ALL, EXACT_COUNT):
            return f", request {self.name}: unsupported count mode {asked.allocation_mode}"
        return ""

    def selects(self, shape: DeviceShape, claim_key: str, effort: Effort) -> bool:
        """Whether the selectors of class and request match devices of a shape.

        Raises ``AllocationFailed`` when one of them fails, or what ``effort`` raises.

        kube-scheduler: isSelectable, selectorsMatch.
        """
        known = self._selectable.get(shape)
        if known is not None:
            return known
        assert self.device_class is not None
        owner = f"class {self.device_class.metadata.name}"
        found = _all_match(self._class_selectors, shape, effort, owner) and _all_match(
            self._selectors, shape, effort, f"claim {claim_key}"
        )
        if len(self._selectable) >= SHAPES_CACHED:
            self._selectable.clear()
        self._selectable[shape] = found
        return found


def _all_match(
    selectors: Sequence[CompiledSelector], shape: DeviceShape, effort: Effort, owner: str
) -> bool:
    for index, selector in enumerate(selectors):
        try:
            if not selector.matches(shape, effort):
                return False
        except SelectorError as problem:
            raise AllocationFailed(f"{owner}: selector #{index}: {problem}") from problem
    return True


def _compiled(
    selectors: Sequence[DeviceSelector], cache: SelectorCache
) -> tuple[CompiledSelector, ...]:
    return tuple(cache.compiled(one.cel.expression) for one in selectors if one.cel is not None)


class Alternatives:
    """A request of a claim: one way to satisfy it, or several in order of preference."""

    __slots__ = ("has_subrequests", "name", "ways")

    def __init__(self, name: str, ways: Sequence[Request], has_subrequests: bool) -> None:
        self.name = name
        self.ways = ways
        self.has_subrequests = has_subrequests


class ClaimPlan:
    """The requests and constraints of claims with one spec."""

    __slots__ = ("constraints", "requests", "spec")

    def __init__(
        self, spec: ResourceClaimSpec, get_class: GetClass, selectors: SelectorCache
    ) -> None:
        self.spec = spec
        self.requests = tuple(
            _alternatives(one, get_class, selectors) for one in spec.devices.requests
        )
        self.constraints: Sequence[DeviceConstraint] = spec.devices.constraints


def _alternatives(
    asked: DeviceRequest, get_class: GetClass, selectors: SelectorCache
) -> Alternatives:
    if asked.first_available:
        ways = [
            Request(one.name, asked.name, one, get_class, selectors)
            for one in asked.first_available
        ]
        return Alternatives(asked.name, ways, True)
    exactly = asked.exactly or ExactDeviceRequest()
    return Alternatives(asked.name, [Request(asked.name, "", exactly, get_class, selectors)], False)

"""Published devices, parsed; equal devices share what is computed for them.

The *shape* of a device is everything but its name. A thousand nodes with the same eight devices
have at most eight shapes, and what is computed for a shape holds for all its devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from ksched.api.devices import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Counters,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourceSlice,
)
from ksched.api.node_selectors import NodeTerms, compile_node_selector
from ksched.api.objects import NodeSelector, Quantity
from ksched.api.quantity import to_nanos
from ksched.devices.device_selectors import DeviceView

PoolKey: TypeAlias = tuple[str, str]
"""Driver and name of a pool."""

CounterAmounts: TypeAlias = dict[str, dict[str, int]]
"""By counter set and counter, in nano units."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Capacity(NamedTuple):
    """One capacity of a device."""

    name: str
    value: Quantity
    nanos: int
    declared: DeviceCapacity


class NodeSelection:
    """The nodes to which a slice or a device is available."""

    __slots__ = ("__weakref__", "all_nodes", "node_name", "selector", "terms")

    def __init__(
        self, node_name: str | None, selector: NodeSelector | None, all_nodes: bool | None
    ) -> None:
        self.node_name = node_name or ""
        self.selector = selector
        self.terms: NodeTerms | None = None if selector is None else compile_node_selector(selector)
        self.all_nodes = bool(all_nodes)

    @property
    def is_given(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.terms is not None

    def matches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """kube-scheduler: nodeMatches."""
        if self.node_name:
            return self.node_name == node_name
        if self.all_nodes:
            return True
        return self.terms is not None and self.terms.matches(labels, node_name)


_selections: WeakValueDictionary[bytes, NodeSelection] = WeakValueDictionary()


def _selection(selector: NodeSelector | None, all_nodes: bool | None) -> NodeSelection:
    """One object for equal selections."""
    key = _encode((selector, all_nodes))
    known = _selections.get(key)
    if known is None:
        known = _selections[key] = NodeSelection(None, selector, all_nodes)
    return known


_numbers = count(1)


class DeviceShape:
    """Everything of a device but its name."""

    __slots__ = (
        "__weakref__",
        "capacity",
        "consumes",
        "device",
        "driver",
        "nodes",
        "number",
        "selectable",
        "taints",
    )

    def __init__(self, driver: str, device: Device) -> None:
        self.number = next(_numbers)
        self.driver = driver
        self.device = device
        self.capacity = tuple(
            Capacity(name, one.value, to_nanos(one.value), one)
            for name, one in device.capacity.items()
        )
        self.consumes: CounterAmounts = {}
        for one in device.consumes_counters:
            _add(self.consumes.setdefault(one.counter_set, {}), one.counters)
        self.taints: tuple[DeviceTaint, ...] = tuple(
            one for one in device.taints if one.effect in (NO_SCHEDULE, NO_EXECUTE)
        )
        self.nodes = NodeSelection(device.node_name, device.node_selector, device.all_nodes)
        self.selectable = DeviceView(driver, device)
        """The variable of CEL selectors."""

    @property
    def is_shareable(self) -> bool:
        return bool(self.device.allow_multiple_allocations)

    @property
    def attributes(self) -> Mapping[str, DeviceAttribute]:
        return self.device.attributes


class PoolDevice:
    """One device of a pool."""

    __slots__ = ("name", "published_by", "shape")

    def __init__(self, name: str, shape: DeviceShape, published_by: PublishedSlice) -> None:
        self.name = name
        self.shape = shape
        self.published_by = published_by

    @property
    def nodes(self) -> NodeSelection:
        """The nodes to which the device is available."""
        published_by = self.published_by
        return self.shape.nodes if published_by.is_per_device else published_by.nodes

    def __str__(self) -> str:
        driver, pool = self.published_by.pool
        return f"{driver}/{pool}/{self.name}"


class PublishedSlice:
    """A ResourceSlice, parsed."""

    __slots__ = (
        "counters",
        "declared_slices",
        "devices",
        "duplicate_set",
        "generation",
        "is_per_device",
        "name",
        "nodes",
        "pool",
    )

    def __init__(self, published: ResourceSlice) -> None:
        spec = published.spec
        self.name = published.metadata.name
        self.pool: PoolKey = (spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.declared_slices = spec.pool.resource_slice_count
        self.nodes = (
            NodeSelection(spec.node_name, spec.node_selector, spec.all_nodes)
            if spec.node_name
            else _selection(spec.node_selector, spec.all_nodes)
        )
        """One object for slices that select nodes alike."""
        self.is_per_device = bool(spec.per_device_node_selection)
        self.devices = tuple(
            PoolDevice(one.name, _shape(spec.driver, one), self) for one in spec.devices
        )
        self.counters: CounterAmounts = {}
        self.duplicate_set = ""
        for one in spec.shared_counters:
            if one.name in self.counters:
                self.duplicate_set = one.name
            _add(self.counters.setdefault(one.name, {}), one.counters)

    @property
    def has_counters(self) -> bool:
        return bool(self.counters)

    @property
    def is_local(self) -> bool:
        """Whether it is relevant to one node only."""
        return bool(self.nodes.node_name) and not self.counters

    def is_relevant(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Whether a slice is part of a node's view. kube-scheduler: GatherPools."""
        if self.counters:
            return True
        if self.nodes.is_given:
            return self.nodes.matches(node_name, labels)
        if self.is_per_device:
            return any(one.shape.nodes.matches(node_name, labels) for one in self.devices)
        return False


_shapes: WeakValueDictionary[tuple[str, bytes], DeviceShape] = WeakValueDictionary()


def _shape(driver: str, device: Device) -> DeviceShape:
    nameless = msgspec.structs.replace(device, name="")
    key = (driver, _encode(nameless))
    shape = _shapes.get(key)
    if shape is None:
        shape = _shapes[key] = DeviceShape(driver, nameless)
    return shape


def _add(amounts: dict[str, int], counters: Counters) -> None:
    for name, counter in counters.items():
        amounts[name] = amounts.get(name, 0) + to_nanos(counter.value)

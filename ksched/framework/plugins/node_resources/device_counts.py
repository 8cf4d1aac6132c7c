"""Devices of nodes as amounts of an extended resource, for scores.

Only where a DeviceClass backs a resource that is scored, and on nodes that do not offer it
themselves (noderesources/resource_allocation.go, v1.36: calculateDRAExtendedResource…).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ksched.api.devices import DeviceClass
from ksched.devices.allocated import PoolUse
from ksched.devices.effort import Effort, SearchIsLong
from ksched.devices.extended_resource_classes import (
    ExtendedResourceClasses,
    is_device_resource_name,
)
from ksched.devices.node_views import PublishedDevices
from ksched.devices.selector_cache import SelectorCache, SelectorError
from ksched.devices.slices import DeviceShape, PoolDevice, PoolKey
from ksched.framework import Listers, NodeInfo, NodeRows, Scope, ScoreDependsOn
from ksched.framework.plugins.node_resources.requests import Ints

if TYPE_CHECKING:
    from ksched.framework import Snapshot

_SECONDS = 0.01
"""For selectors that DynamicResources has not evaluated before; then the resource is ignored."""


class _Matching:
    """The devices of a node that a class selects."""

    __slots__ = ("allocated", "devices", "labels")

    def __init__(self, labels: Mapping[str, str], devices: Sequence[PoolDevice]) -> None:
        self.labels = labels
        """Those that the node had then."""
        self.devices = devices
        self.allocated: int | None = None
        """How many of them are, if it is known."""


class DeviceCounts:
    """The devices behind the scored resources of one plugin."""

    def __init__(self, listers: Listers, resources: Iterable[str]) -> None:
        self._listers = listers
        self._resources = [one for one in resources if is_device_resource_name(one)]
        self._selectors = SelectorCache()
        self._matching: dict[tuple[str, str], dict[str, _Matching]] = {}
        """By name and version of a class, then by node."""
        self._by_pool: dict[PoolKey, dict[tuple[str, str], _Matching]] = {}
        """Then by node and class."""
        self._published = self._allocated = -1
        """Generations of the slices and of the devices in use."""

    def score_depends_on(self) -> ScoreDependsOn:
        """What scores depend on: amounts alone, unless devices may be among them."""
        if not self._resources:
            return ScoreDependsOn(
                Scope.RESOURCES, reads_inter_pod_fields=False, reads_claim_names=False
            )
        return ScoreDependsOn(
            Scope.ROW, reads_inter_pod_fields=False, epoch=self._epoch, reads_claim_names=False
        )

    def _epoch(self, snapshot: Snapshot) -> object:
        classes = self._listers.known_view(ExtendedResourceClasses)
        devices = self._listers.known_view(PublishedDevices)
        if classes is None or devices is None or not any(map(classes.get, self._resources)):
            return None
        return devices.generation, classes.generation

    def count(
        self, resources: Sequence[str], nodes: NodeRows, used: Ints, capacities: Ints
    ) -> None:
        """Fill in capacity and use of the resources that nodes have as devices, in place."""
        for line, resource in enumerate(resources):
            if resource not in self._resources:
                continue
            classes = self._listers.known_view(ExtendedResourceClasses)
            devices = self._listers.known_view(PublishedDevices)
            device_class = None if classes is None else classes.get(resource)
            if devices is None or device_class is None:
                continue
            self._catch_up(devices)
            metadata = device_class.metadata
            by_node = self._matching.setdefault((metadata.name, metadata.resource_version), {})
            infos = nodes.infos
            for place in np.flatnonzero(capacities[line] == 0).tolist():
                node = infos[place]
                found = by_node.get(node.name)
                if found is None or found.labels is not node.labels:
                    found = by_node[node.name] = self._match(node, device_class, devices)
                if found.devices:
                    capacities[line, place] = len(found.devices)
                    used[line, place] = _allocated(found, devices)

    def _catch_up(self, devices: PublishedDevices) -> None:
        """Forget what other devices, or other ones in use, may have changed."""
        published = devices.slices.changed_nodes.generation
        changed_pools = devices.claims.devices.changed_pools
        changed = changed_pools.since(self._allocated)
        self._allocated = changed_pools.generation
        if changed is None or self._published != published:
            self._published = published
            self._matching.clear()
            self._by_pool.clear()
            return
        for pool in changed:
            for matching in self._by_pool.get(pool, {}).values():
                matching.allocated = None

    def _match(
        self, node: NodeInfo, device_class: DeviceClass, devices: PublishedDevices
    ) -> _Matching:
        """None match if a selector fails."""
        try:
            found = [
                one
                for published_slice in devices.slices.relevant(node.name, node.labels)
                for one in published_slice.devices
                if (
                    not published_slice.is_per_device
                    or one.shape.nodes.matches(node.name, node.labels)
                )
                and self._selects(device_class, one.shape)
            ]
        except (SelectorError, SearchIsLong):
            found = []
        matching = _Matching(node.labels, found)
        key = (node.name, device_class.metadata.name)
        for pool in {one.published_by.pool for one in found}:
            self._by_pool.setdefault(pool, {})[key] = matching
        return matching

    def _selects(self, device_class: DeviceClass, shape: DeviceShape) -> bool:
        effort = Effort(_SECONDS)
        return all(
            self._selectors.compiled(one.cel.expression).matches(shape, effort)
            for one in device_class.spec.selectors
            if one.cel is not None
        )


def _allocated(matching: _Matching, devices: PublishedDevices) -> int:
    if matching.allocated is None:
        in_use = devices.claims.devices
        matching.allocated = sum(
            _is_allocated(in_use.of(one.published_by.pool), one.name) for one in matching.devices
        )
    return matching.allocated


def _is_allocated(use: PoolUse, device: str) -> bool:
    return device in use.dedicated or use.has_capacity_entry(device)

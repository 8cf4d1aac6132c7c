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
from ksched.devices.slices import DeviceShape, PoolDevice
from ksched.framework import Listers, NodeInfo, NodeRows, Scope, ScoreDependsOn
from ksched.framework.plugins.node_resources.requests import Ints

if TYPE_CHECKING:
    from ksched.framework import Snapshot

_SECONDS = 0.01
"""For selectors that DynamicResources has not evaluated before; then the resource is ignored."""


class DeviceCounts:
    """The devices behind the scored resources of one plugin."""

    def __init__(self, listers: Listers, resources: Iterable[str]) -> None:
        self._listers = listers
        self._resources = [one for one in resources if is_device_resource_name(one)]
        self._selectors = SelectorCache()
        self._matching: dict[
            tuple[str, str, str], tuple[Mapping[str, str], Sequence[PoolDevice]]
        ] = {}
        """By node and class; with the labels that the node had then."""
        self._matching_of = -1

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
            infos = nodes.infos
            for place in np.flatnonzero(capacities[line] == 0).tolist():
                found = self._matching_on(infos[place], device_class, devices)
                if found:
                    in_use = devices.claims.devices
                    capacities[line, place] = len(found)
                    used[line, place] = sum(
                        _is_allocated(in_use.of(one.published_by.pool), one.name) for one in found
                    )

    def _matching_on(
        self, node: NodeInfo, device_class: DeviceClass, devices: PublishedDevices
    ) -> Sequence[PoolDevice]:
        """The devices of a node that a class selects; none if a selector fails."""
        published = devices.slices.changed_nodes.generation
        if self._matching_of != published:
            self._matching_of = published
            self._matching.clear()
        metadata = device_class.metadata
        key = (node.name, metadata.name, metadata.resource_version)
        labels, found = self._matching.get(key, (None, ()))
        if labels is not node.labels:
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
                found = ()
            self._matching[key] = (node.labels, found)
        return found

    def _selects(self, device_class: DeviceClass, shape: DeviceShape) -> bool:
        effort = Effort(_SECONDS)
        return all(
            self._selectors.compiled(one.cel.expression).matches(shape, effort)
            for one in device_class.spec.selectors
            if one.cel is not None
        )


def _is_allocated(use: PoolUse, device: str) -> bool:
    return device in use.dedicated or use.has_capacity_entry(device)

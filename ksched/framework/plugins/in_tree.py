"""The in-tree registry: every plugin that a configuration may name without registering it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ksched.framework import Handle, Listers, PluginFactory
from ksched.framework.plugins import names
from ksched.framework.plugins.coscheduling import Coscheduling
from ksched.framework.plugins.default_binder import DefaultBinder
from ksched.framework.plugins.default_preemption.plugin import DefaultPreemption
from ksched.framework.plugins.dynamic_resources.plugin import DynamicResources
from ksched.framework.plugins.gang_scheduling import GangScheduling
from ksched.framework.plugins.image_locality import ImageLocality
from ksched.framework.plugins.inter_pod_affinity.plugin import InterPodAffinity
from ksched.framework.plugins.node_affinity import NodeAffinity
from ksched.framework.plugins.node_declared_features import NodeDeclaredFeatures
from ksched.framework.plugins.node_name import NodeName
from ksched.framework.plugins.node_ports import NodePorts
from ksched.framework.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from ksched.framework.plugins.node_resources.fit import NodeResourcesFit
from ksched.framework.plugins.node_unschedulable import NodeUnschedulable
from ksched.framework.plugins.pod_topology_spread.plugin import PodTopologySpread
from ksched.framework.plugins.priority_sort import PrioritySort
from ksched.framework.plugins.scheduling_gates import SchedulingGates
from ksched.framework.plugins.selector_spread import SelectorSpread
from ksched.framework.plugins.taint_toleration import TaintToleration
from ksched.framework.plugins.volcano import Volcano
from ksched.framework.plugins.volumes.legacy_limits import (
    AzureDiskLimits,
    EBSLimits,
    GCEPDLimits,
)
from ksched.framework.plugins.volumes.node_volume_limits import NodeVolumeLimits
from ksched.framework.plugins.volumes.volume_binding import VolumeBinding
from ksched.framework.plugins.volumes.volume_restrictions import VolumeRestrictions
from ksched.framework.plugins.volumes.volume_zone import VolumeZone


def _plain(build: Callable[[], Any]) -> PluginFactory:
    return lambda args, handle: build()


def _with_args(build: Callable[[Any], Any]) -> PluginFactory:
    return lambda args, handle: build(args)


def _with_handle(build: Callable[[Handle], Any]) -> PluginFactory:
    return lambda args, handle: build(handle)


def _with_listings(build: Callable[[Any, Listers], Any]) -> PluginFactory:
    return lambda args, handle: build(args, handle.listers)


def _with_only_listings(build: Callable[[Listers], Any]) -> PluginFactory:
    return lambda args, handle: build(handle.listers)


IN_TREE: Final[Mapping[str, PluginFactory]] = MappingProxyType(
    {
        names.PRIORITY_SORT: _plain(PrioritySort),
        names.SCHEDULING_GATES: _plain(SchedulingGates),
        names.NODE_UNSCHEDULABLE: _plain(NodeUnschedulable),
        names.NODE_NAME: _plain(NodeName),
        names.TAINT_TOLERATION: _plain(TaintToleration),
        names.NODE_AFFINITY: lambda args, handle: NodeAffinity(args, handle.clock.now),
        names.NODE_PORTS: _plain(NodePorts),
        names.NODE_RESOURCES_FIT: _with_listings(NodeResourcesFit),
        names.NODE_RESOURCES_BALANCED_ALLOCATION: _with_listings(NodeResourcesBalancedAllocation),
        names.VOLUME_RESTRICTIONS: _with_only_listings(VolumeRestrictions),
        names.NODE_VOLUME_LIMITS: _with_only_listings(NodeVolumeLimits),
        names.VOLUME_BINDING: VolumeBinding,
        names.VOLUME_ZONE: _with_only_listings(VolumeZone),
        names.POD_TOPOLOGY_SPREAD: lambda args, handle: PodTopologySpread(
            args, handle.listers, handle.clock.now
        ),
        names.INTER_POD_AFFINITY: lambda args, handle: InterPodAffinity(
            args, handle.listers, handle.clock.now
        ),
        names.DEFAULT_PREEMPTION: DefaultPreemption,
        names.IMAGE_LOCALITY: _plain(ImageLocality),
        names.NODE_DECLARED_FEATURES: _plain(NodeDeclaredFeatures),
        names.DYNAMIC_RESOURCES: DynamicResources,
        names.GANG_SCHEDULING: GangScheduling,
        names.COSCHEDULING: Coscheduling,
        names.VOLCANO: _with_handle(Volcano),
        names.EBS_LIMITS: _with_only_listings(EBSLimits),
        names.GCE_PD_LIMITS: _with_only_listings(GCEPDLimits),
        names.AZURE_DISK_LIMITS: _with_only_listings(AzureDiskLimits),
        names.SELECTOR_SPREAD: _with_listings(SelectorSpread),
        names.DEFAULT_BINDER: _with_handle(DefaultBinder),
    }
)
"""Factories by plugin name; arguments of ``None`` are the defaults."""

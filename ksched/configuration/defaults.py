"""The default plugins of kube-scheduler v1.36 with its default feature gates, in order."""

from __future__ import annotations

from typing import Final

from ksched.configuration.plugins import Plugin, Plugins, PluginSet

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

# The order decides which plugin's reason a node is rejected with. The weights 3 and 2 make user
# preferences (taints, affinities, spread) outweigh resource use.
DEFAULT_MULTI_POINT: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)

DEFAULT_PLUGIN_NAMES: Final = frozenset(name for name, _ in DEFAULT_MULTI_POINT)

DEFAULT_PLUGINS: Final = Plugins(
    multi_point=PluginSet(
        enabled=tuple(Plugin(name=name, weight=weight) for name, weight in DEFAULT_MULTI_POINT)
    )
)

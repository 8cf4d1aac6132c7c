"""Names of the in-tree plugins; users write them in configurations and read them in metrics."""

from __future__ import annotations

from typing import Final

DEFAULT_BINDER: Final = "DefaultBinder"
IMAGE_LOCALITY: Final = "ImageLocality"
INTER_POD_AFFINITY: Final = "InterPodAffinity"
NODE_AFFINITY: Final = "NodeAffinity"
NODE_DECLARED_FEATURES: Final = "NodeDeclaredFeatures"
NODE_NAME: Final = "NodeName"
NODE_PORTS: Final = "NodePorts"
NODE_RESOURCES_BALANCED_ALLOCATION: Final = "NodeResourcesBalancedAllocation"
NODE_RESOURCES_FIT: Final = "NodeResourcesFit"
NODE_UNSCHEDULABLE: Final = "NodeUnschedulable"
POD_TOPOLOGY_SPREAD: Final = "PodTopologySpread"
PRIORITY_SORT: Final = "PrioritySort"
SCHEDULING_GATES: Final = "SchedulingGates"
SELECTOR_SPREAD: Final = "SelectorSpread"
TAINT_TOLERATION: Final = "TaintToleration"

"""Arguments of the in-tree plugins (kinds ``<PluginName>Args``).

A plugin that is not in ``ARGS`` belongs to somebody else: its arguments stay raw and it checks
them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from ksched.configuration.core_types import AddedAffinity, SpreadConstraint
from ksched.configuration.durations import Seconds
from ksched.configuration.strict_model import (
    API_VERSION,
    GROUP,
    Int32,
    Int64,
    Listed,
    StrictModel,
    decode,
    unless_zero,
)


class PluginArgs(StrictModel):
    """Base of all arguments with a known shape."""


class DefaultPreemptionArgs(PluginArgs):
    """How many nodes a dry run of preemption tries.

    The larger of the two bounds wins. Both are compromises between the best victims and the time
    that looking for them takes.
    """

    min_candidate_nodes_percentage: Int32 = 10
    """Percent of the nodes to shortlist; 10 keeps large clusters from trying every node."""
    min_candidate_nodes_absolute: Int32 = 100
    """Nodes to shortlist at least; 100 makes clusters of that size try every node."""


class InterPodAffinityArgs(PluginArgs):
    """How inter-pod affinity scores nodes."""

    hard_pod_affinity_weight: Int32 = 1
    """Score (0 to 100) of a node on which an existing pod *requires* pods like the incoming one;
    1 makes it a tie-breaker, 0 ignores such terms."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Exclude the preferred terms of existing pods from the score, which avoids visiting all pods
    when the incoming pod has no affinity itself. Off, because it changes placements."""


class NodeAffinityArgs(PluginArgs):
    """Node affinity that applies to every pod of the profile."""

    added_affinity: AddedAffinity | None = None
    """ANDed with the pod's own node affinity; absent by default. A pod that fits nowhere because
    of it cannot see why in its own spec."""


class ResourceSpec(StrictModel):
    """A resource and its share in a node's score."""

    name: str = ""
    weight: Annotated[Int64, unless_zero(1)] = 1
    """1 to 100; 0 means 1."""


class UtilizationShapePoint(StrictModel):
    """One point of a function from utilization to score, linear in between."""

    utilization: Int32 = 0
    """Percent, 0 to 100."""
    score: Int32 = 0
    """0 to 10."""


class RequestedToCapacityRatioParam(StrictModel):
    """The scoring function of the strategy RequestedToCapacityRatio."""

    shape: Listed[UtilizationShapePoint] = ()


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class ScoringStrategy(StrictModel):
    """How NodeResourcesFit ranks nodes by what is requested on them."""

    type: str = ""
    """``LeastAllocated`` (spread), ``MostAllocated`` (pack) or ``RequestedToCapacityRatio``."""
    resources: Annotated[Listed[ResourceSpec], unless_zero(CPU_AND_MEMORY)] = CPU_AND_MEMORY
    """Resources to consider; cpu and memory with equal weight if empty."""
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None
    """Only and always with the type of that name."""


class NodeResourcesFitArgs(PluginArgs):
    """What NodeResourcesFit checks and how it scores."""

    ignored_resources: Listed[str] = ()
    """Extended resources that the filter does not check."""
    ignored_resource_groups: Listed[str] = ()
    """Groups (the part before the slash) of extended resources that the filter does not check."""
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")
    """LeastAllocated: load is spread over the nodes unless packing is configured."""


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """Which resources should be used in equal shares on a node."""

    resources: Annotated[Listed[ResourceSpec], unless_zero(CPU_AND_MEMORY)] = CPU_AND_MEMORY
    """Resources to compare; the weight must be 1, it has no meaning in a deviation."""


class PodTopologySpreadArgs(PluginArgs):
    """Spread constraints of pods that define none."""

    default_constraints: Listed[SpreadConstraint] = ()
    """Without label selectors: they are deduced from the pod's services and controllers. Only with
    defaultingType ``List``."""
    defaulting_type: Annotated[str, unless_zero("System")] = "System"
    """``System`` prefers spreading over zones and hosts (what SelectorSpread did), ``List`` uses
    ``default_constraints`` and nothing if that is empty."""


class VolumeBindingArgs(PluginArgs):
    """How long to wait for volumes."""

    bind_timeout_seconds: Int64 = 600
    """Seconds until a pod whose volumes are not bound is requeued; 0 does not wait. Ten minutes,
    because provisioning a disk is slow and starting over does not make it faster."""
    shape: Listed[UtilizationShapePoint] | None = None
    """Scoring function of storage capacity. Only with the feature gate StorageCapacityScoring."""


class DynamicResourcesArgs(PluginArgs):
    """Time limits of dynamic resource allocation."""

    filter_timeout_seconds: Annotated[Seconds, Field(alias="filterTimeout")] = 10.0
    """Seconds for one node's filter; 0 is no limit. Allocation can be exponential in the claims."""
    binding_timeout_seconds: Annotated[Seconds, Field(alias="bindingTimeout")] = 600.0
    """Seconds to wait for the binding conditions of devices."""
    device_taint_rules: bool | None = None
    """Whether DeviceTaintRules taint devices, of all profiles. The feature gate DRADeviceTaintRules
    sets it; kube-scheduler has only the gate."""


class GangSchedulingArgs(PluginArgs):
    """When room is reserved for a group; kube-scheduler's GangScheduling has no arguments."""

    protect_after_seconds: Int64 = 0
    """After how many seconds of waiting room is reserved for a group that small pods would keep out
    for ever: its pods are nominated to nodes, and others of the same or a lower priority leave that
    room alone. One group per priority. 0: never."""
    max_protected_percentage: Int32 = 25
    """How much of every resource of the cluster may be reserved in this way."""


class CoschedulingArgs(GangSchedulingArgs):
    """What scheduler-plugins' Coscheduling takes, and when room is reserved for a group."""

    permit_waiting_time_seconds: Int64 = 60
    """Timeout of groups that set none. A group holds nothing while it waits; the timeout only
    distinguishes, after a restart, a group that was placed from one that is being placed."""
    pod_group_backoff_seconds: Int64 = 0
    """Without effect: a group that does not fit waits for an event that may help it."""
    pod_group_reject_percentage: Int32 = 10
    """Without effect: a group is rejected as a whole, or placed."""


ARGS: Final[Mapping[str, type[PluginArgs]]] = {
    "Coscheduling": CoschedulingArgs,
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "GangScheduling": GangSchedulingArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}


def decode_args(name: str, raw: Mapping[str, Any]) -> PluginArgs | dict[str, Any]:
    """Decode a plugin's arguments from a file's spelling; those of unknown plugins stay raw.

    Raises ``ValueError`` if the arguments say that they are of another kind.
    """
    model = ARGS.get(name)
    if model is None:
        return dict(raw)
    wanted = f"{name}Args"
    kind, version = raw.get("kind") or wanted, raw.get("apiVersion") or API_VERSION
    group = str(version).partition("/")[0]
    if (kind, group) != (wanted, GROUP):
        raise ValueError(
            f"args for plugin {name} were not of type {wanted}.{GROUP}, got {kind}.{group}"
        )
    if version != API_VERSION:
        raise ValueError(f"args for plugin {name}: apiVersion {version}, wanted {API_VERSION}")
    return decode(model, {k: v for k, v in raw.items() if k not in ("kind", "apiVersion")})

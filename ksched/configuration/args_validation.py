"""Validation of plugin arguments, with kube-scheduler's messages.

Follows pkg/scheduler/apis/config/validation/validation_pluginargs.go (v1.36). kube-scheduler checks
NodeResourcesFit's arguments only when it builds the plugin; here they are reported with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Final

from ksched.api.label_syntax import qualified_name_problems
from ksched.api.node_selectors import compile_node_selector, compile_term
from ksched.configuration.durations import format_duration
from ksched.configuration.field_errors import (
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from ksched.configuration.plugin_args import (
    CoschedulingArgs,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    GangSchedulingArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"
SCORING_STRATEGIES: Final = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)

_MAX_CUSTOM_PRIORITY_SCORE: Final = 10


@singledispatch
def find_args_problems(args: PluginArgs, path: str) -> list[str]:
    """Return everything that is wrong with a plugin's arguments, each with its full path."""
    raise TypeError(f"{path}: no rules for {type(args).__name__}")


@find_args_problems.register
def _(args: DefaultPreemptionArgs, path: str) -> list[str]:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    percentage_path = f"{path}.minCandidateNodesPercentage"
    absolute_path = f"{path}.minCandidateNodesAbsolute"
    problems = []
    if not 0 <= percentage <= 100:
        problems.append(invalid(percentage_path, percentage, "not in valid range [0, 100]"))
    if absolute < 0:
        problems.append(invalid(absolute_path, absolute, "not in valid range [0, inf)"))
    if percentage == absolute == 0:
        at_once = "cannot be zero at the same time as"
        problems += [
            invalid(percentage_path, 0, f"{at_once} minCandidateNodesAbsolute"),
            invalid(absolute_path, 0, f"{at_once} minCandidateNodesPercentage"),
        ]
    return problems


@find_args_problems.register
def _(args: GangSchedulingArgs, path: str) -> list[str]:
    problems = []
    seconds, share = args.protect_after_seconds, args.max_protected_percentage
    if seconds < 0:
        wanted = "not in valid range [0, inf)"
        problems.append(invalid(f"{path}.protectAfterSeconds", seconds, wanted))
    if not 0 <= share <= 100:
        wanted = "not in valid range [0, 100]"
        problems.append(invalid(f"{path}.maxProtectedPercentage", share, wanted))
    return problems


@find_args_problems.register
def _(args: CoschedulingArgs, path: str) -> list[str]:
    fields = {
        "permitWaitingTimeSeconds": args.permit_waiting_time_seconds,
        "podGroupBackoffSeconds": args.pod_group_backoff_seconds,
        "podGroupRejectPercentage": args.pod_group_reject_percentage,
    }
    problems = [
        invalid(f"{path}.{name}", value, "not in valid range [0, inf)")
        for name, value in fields.items()
        if value < 0
    ]
    shared = find_args_problems.dispatch(GangSchedulingArgs)
    return problems + shared(args, path)


@find_args_problems.register
def _(args: InterPodAffinityArgs, path: str) -> list[str]:
    weight = args.hard_pod_affinity_weight
    if 0 <= weight <= 100:
        return []
    return [invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0, 100]")]


@find_args_problems.register
def _(args: NodeAffinityArgs, path: str) -> list[str]:
    affinity = args.added_affinity
    if affinity is None:
        return []
    problems: list[str] = []
    at = f"{path}.addedAffinity"
    if affinity.required is not None:
        required_path = f"{at}.requiredDuringSchedulingIgnoredDuringExecution"
        problems += compile_node_selector(affinity.required, required_path).problems
    preferred_path = f"{at}.preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(affinity.preferred or ()):
        term = weighted.preference
        # A term that prefers nothing is legal and has no effect.
        if weighted.weight and (term.match_expressions or term.match_fields):
            problems += compile_term(term, f"{preferred_path}[{index}].preference").problems
    return problems


@find_args_problems.register
def _(args: NodeResourcesFitArgs, path: str) -> list[str]:
    problems: list[str] = []
    for index, name in enumerate(args.ignored_resources):
        problems += _label_name(f"{path}.ignoredResources[{index}]", name)
    for index, group in enumerate(args.ignored_resource_groups):
        at = f"{path}.ignoredResourceGroups[{index}]"
        if "/" in group:
            problems.append(invalid(at, group, "resource group name can't contain '/'"))
        problems += _label_name(at, group)
    return problems + _scoring_strategy(f"{path}.scoringStrategy", args.scoring_strategy)


@find_args_problems.register
def _(args: NodeResourcesBalancedAllocationArgs, path: str) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        at = f"{path}.resources[{index}]"
        if resource.name in seen:
            problems.append(duplicate(f"{at}.name", resource.name))
        seen.add(resource.name)
        if resource.weight != 1:
            problems.append(invalid(f"{at}.weight", resource.weight, "must be 1"))
    return problems


@find_args_problems.register
def _(args: PodTopologySpreadArgs, path: str) -> list[str]:
    problems: list[str] = []
    kind = args.defaulting_type
    if kind not in ("System", "List"):
        problems.append(unsupported(f"{path}.defaultingType", kind, ("System", "List")))
    elif kind == "System" and args.default_constraints:
        detail = "when .defaultConstraints are not empty"
        problems.append(invalid(f"{path}.defaultingType", kind, detail))
    actions = ("DoNotSchedule", "ScheduleAnyway")
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(args.default_constraints):
        at = f"{path}.defaultConstraints[{index}]"
        key, action = constraint.topology_key, constraint.when_unsatisfiable
        if constraint.max_skew <= 0:
            detail = "not in valid range (0, inf)"
            problems.append(invalid(f"{at}.maxSkew", constraint.max_skew, detail))
        if not key:
            problems.append(required(f"{at}.topologyKey", "can not be empty"))
        else:
            problems += _label_name(f"{at}.topologyKey", key)
        if not action:
            problems.append(required(f"{at}.whenUnsatisfiable", "can not be empty"))
        elif action not in actions:
            problems.append(unsupported(f"{at}.whenUnsatisfiable", action, actions))
        if constraint.label_selector is not None:
            detail = "constraint must not define a selector, as they deduced for each pod"
            problems.append(forbidden(f"{at}.labelSelector", detail))
        if (key, action) in seen:
            problems.append(duplicate(at, f"{{{key}, {action}}}"))
        seen.add((key, action))
    return problems


@find_args_problems.register
def _(args: VolumeBindingArgs, path: str) -> list[str]:
    problems = []
    if args.bind_timeout_seconds < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        problems.append(invalid(f"{path}.bindTimeoutSeconds", args.bind_timeout_seconds, detail))
    if args.shape is not None:
        detail = (
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        )
        problems.append(invalid(f"{path}.shape", args.shape, detail))
    return problems


@find_args_problems.register
def _(args: DynamicResourcesArgs, path: str) -> list[str]:
    problems = []
    if args.filter_timeout_seconds < 0:
        shown = format_duration(args.filter_timeout_seconds)
        problems.append(invalid(f"{path}.filterTimeout", shown, "must be zero or positive"))
    if args.binding_timeout_seconds < 1:
        shown = format_duration(args.binding_timeout_seconds)
        problems.append(invalid(f"{path}.bindingTimeout", shown, "must be at least 1 second"))
    return problems


def _label_name(path: str, name: str) -> list[str]:
    return [invalid(path, name, problem) for problem in qualified_name_problems(name)]


def _scoring_strategy(path: str, strategy: ScoringStrategy) -> list[str]:
    problems: list[str] = []
    if strategy.type not in SCORING_STRATEGIES:
        problems.append(unsupported(f"{path}.type", strategy.type, SCORING_STRATEGIES))
    for index, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            detail = f"resource weight of {resource.name} not in valid range (0, 100]"
            problems.append(invalid(f"{path}.resources[{index}].weight", resource.weight, detail))
    ratio, at = strategy.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if strategy.type == REQUESTED_TO_CAPACITY_RATIO:
        if ratio is None:
            problems.append(required(at, "must be specified when type is RequestedToCapacityRatio"))
        else:
            problems += _shape(f"{at}.shape", ratio.shape)
    elif ratio is not None:
        problems.append(forbidden(at, "must be nil when type is not RequestedToCapacityRatio"))
    return problems


def _shape(path: str, shape: Sequence[UtilizationShapePoint]) -> list[str]:
    if not shape:
        return [required(path, "at least one point must be specified")]
    problems: list[str] = []
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            at, detail = f"{path}[{index}].utilization", "values must be sorted in increasing order"
            problems.append(invalid(at, shape[index].utilization, detail))
            break
    highest = _MAX_CUSTOM_PRIORITY_SCORE
    for index, point in enumerate(shape):
        at = f"{path}[{index}]"
        if not 0 <= point.utilization <= 100:
            detail = "not in valid range [0, 100]"
            problems.append(invalid(f"{at}.utilization", point.utilization, detail))
        if not 0 <= point.score <= highest:
            detail = f"not in valid range [0, {highest}]"
            problems.append(invalid(f"{at}.score", point.score, detail))
    return problems

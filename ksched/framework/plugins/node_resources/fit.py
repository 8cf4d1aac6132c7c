"""NodeResourcesFit: whether there is room, and how much is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Node, Pod
from ksched.api.pod_resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    amounts,
    is_extended_resource_name,
    is_scalar_resource_name,
    non_missing_requests,
    pod_requests,
    pod_requests_with_status,
)
from ksched.configuration.plugin_args import NodeResourcesFitArgs
from ksched.framework import (
    PASS_TEMPLATE,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    NodeRows,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    template_fact,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.node_resources.asked import Asked, Ints, stacked
from ksched.framework.plugins.node_resources.scorers import scorer_of

TOO_MANY_PODS = "Too many pods"
DEFAULTS = NodeResourcesFitArgs()


class NodeResourcesFit:
    """Rejects nodes whose free resources do not cover the pod's requests, and rates what is left.

    All shortages of a node are named: ``Too many pods``, ``Insufficient cpu``, ``Insufficient
    memory``, ``Insufficient ephemeral-storage``, ``Insufficient <resource>``. If the pod asks for
    more than the node has when empty, evicting other pods is not tried there.

    Arguments: ``ignoredResources`` and ``ignoredResourceGroups`` name extended resources that are
    not checked (somebody else, an extender, keeps account of them). ``scoringStrategy`` rates the
    nodes: ``LeastAllocated`` (the default) prefers free ones, ``MostAllocated`` full ones,
    ``RequestedToCapacityRatio`` follows a configured shape; ``resources`` says what to look at and
    with which weights (cpu and memory alike by default).

    For the score a container that asks for no cpu or memory counts as 100m and 200Mi, and pod-level
    requests do not count, although they do for the filter: this is what kube-scheduler does.
    """

    name: ClassVar[str] = names.NODE_RESOURCES_FIT
    reads_relations: ClassVar[bool] = False
    filter_scope: ClassVar[Scope] = Scope.RESOURCES
    score_scope: ClassVar[Scope] = Scope.RESOURCES

    def __init__(self, args: NodeResourcesFitArgs | None = None) -> None:
        args = args or DEFAULTS
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        weights: Counter[str] = Counter()
        for one in strategy.resources:
            weights[one.name] += one.weight
        self._scorer = scorer_of(strategy)
        self._checked = template_fact(self._select_checked)
        self._scored = template_fact(
            lambda template: Asked.scored(weights, _scored_requests(template))
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        """Never skips: even a pod that asks for nothing is one pod more."""
        return PASS_TEMPLATE

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        asked = self._checked(pod.template)
        full = nodes.pod_count >= nodes.allowed_pods
        allocatable = stacked(nodes.allocatable, asked.resources, len(nodes))
        # A resource the pod does not ask for cannot reject it, not even on an overcommitted node
        # where the free amount is negative: such resources are not among these.
        free = allocatable - stacked(nodes.requested, asked.resources, len(nodes))
        short = asked.amounts > free
        if not np.count_nonzero(full) and not np.count_nonzero(short):
            return Verdicts.passing(len(nodes))
        beyond = (asked.amounts > allocatable).any(axis=0)
        return _verdicts(np.vstack((beyond, full, short)), asked.resources)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        """Never skips: a pod that asks for nothing is rated with defaults."""
        return PASS_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints:
        scored = self._scored(pod.template)

        def used(resource: str) -> Ints:
            if resource in (CPU, MEMORY):
                return nodes.non_zero_requested(resource)
            return nodes.requested(resource)

        totals = scored.on_top_of(stacked(used, scored.resources, len(nodes)))
        capacities = stacked(nodes.allocatable, scored.resources, len(nodes))
        return self._scorer(totals, capacities, scored.weights)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # Deletions and resizes are one registration upstream. They are two here because only the
        # second looks at who the pod is: the first is asked once for all pods of a template.
        deleted = ClusterEvent(Resource.POD, Action.DELETE)
        scaled_down = ClusterEvent(Resource.POD, Action.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        return (
            ClusterEventWithHint(deleted, self._after_pod_deleted, per_pod=False),
            ClusterEventWithHint(scaled_down, self._after_pod_scaled_down),
            ClusterEventWithHint(node, self._after_node_change, per_pod=False),
        )

    def _after_pod_deleted(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        held_room = old.spec.node_name or old.status.nominated_node_name
        return QueueingHint.QUEUE if held_room else QueueingHint.SKIP

    def _after_pod_scaled_down(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        if new.metadata.uid == pod.uid:
            return QueueingHint.QUEUE
        if not new.spec.node_name:
            return QueueingHint.SKIP
        before, after = pod_requests_with_status(old), pod_requests_with_status(new)
        for resource, _ in _asked(pod.template):
            if before.get(resource, 0) > after.get(resource, 0):
                return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        checked = self._checked(pod.template)
        offered = amounts(new.status.allocatable)
        if offered.get(PODS, 0) < 1:
            return QueueingHint.SKIP
        for resource, amount in zip(checked.resources, checked.amounts[:, 0], strict=True):
            if amount > offered.get(resource, 0):
                return QueueingHint.SKIP
        if old is None:
            return QueueingHint.QUEUE
        offered_before = amounts(old.status.allocatable)
        for resource in (PODS, *checked.resources):
            if offered.get(resource, 0) > offered_before.get(resource, 0):
                return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _select_checked(self, template: PodTemplate) -> Asked:
        return Asked.of(
            (resource, amount)
            for resource, amount in _asked(template)
            if not self._is_ignored(resource)
        )

    def _is_ignored(self, resource: str) -> bool:
        if not is_extended_resource_name(resource):
            return False
        return resource in self._ignored or resource.partition("/")[0] in self._ignored_groups


def _asked(template: PodTemplate) -> Iterator[tuple[str, int]]:
    """Yield what a pod asks for and nodes keep account of, in the order of the reasons."""
    requests = template.requests
    scalars = sorted(resource for resource in requests if is_scalar_resource_name(resource))
    for resource in (CPU, MEMORY, EPHEMERAL_STORAGE, *scalars):
        if requests.get(resource, 0) > 0:
            yield resource, requests[resource]


def _scored_requests(template: PodTemplate) -> Mapping[str, int]:
    """Return requests of the containers alone, with defaults for cpu and memory."""
    spec = msgspec.structs.replace(template.spec, resources=None)
    cpu_millis, memory_bytes = non_missing_requests(spec)
    return {**pod_requests(spec), CPU: cpu_millis, MEMORY: memory_bytes}


def _verdicts(marks: NDArray[np.bool_], resources: Sequence[str]) -> Verdicts:
    """Name the reasons of each node; there are many nodes and few combinations of reasons.

    The first line marks nodes where evicting pods does not help, the second those with too many
    pods, the others those that are short of a resource.
    """
    # Python's integers where a machine word is too short, for a pod with sixty resources.
    dtype = np.int64 if len(marks) < 63 else object
    combinations = np.array([1 << line for line in range(len(marks))], dtype) @ marks
    present = sorted(set(combinations.tolist()))
    statuses: list[Status] = []
    codes = []
    for combination in present:
        if combination:
            statuses.append(_status(combination, resources))
        codes.append(len(statuses))
    return Verdicts(np.array(codes, np.int16)[np.searchsorted(present, combinations)], statuses)


def _status(combination: int, resources: Sequence[str]) -> Status:
    reasons = (TOO_MANY_PODS, *(f"Insufficient {resource}" for resource in resources))
    named = tuple(reason for line, reason in enumerate(reasons, 1) if combination >> line & 1)
    return unresolvable(*named) if combination & 1 else unschedulable(*named)

"""NodeResourcesFit: whether there is room, and how much is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Code,
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
)
from ksched.framework.plugins import names
from ksched.framework.plugins.node_resources.scorers import ResourceUse, scorer_of

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
    filter_scope: ClassVar[Scope] = Scope.RESOURCES
    score_scope: ClassVar[Scope] = Scope.RESOURCES

    def __init__(self, args: NodeResourcesFitArgs | None = None) -> None:
        args = args or DEFAULTS
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        self._scorer = scorer_of(strategy)
        self._scored = tuple((one.name, one.weight) for one in strategy.resources)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        """Never skips: even a pod that asks for nothing is one pod more."""
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        shortages = _Shortages(len(nodes))
        shortages.add(nodes.pod_count >= nodes.allowed_pods, TOO_MANY_PODS)
        for resource, amount in self._checked(pod.template):
            allocatable = nodes.allocatable(resource)
            # A resource the pod does not ask for cannot reject it, not even on an overcommitted
            # node where the free amount is negative.
            short = amount > allocatable - nodes.requested(resource)
            shortages.add(short, f"Insufficient {resource}", amount > allocatable)
        return shortages.verdicts()

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        """Never skips: a pod that asks for nothing is rated with defaults."""
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        requests = _scored_requests(pod.template)
        uses = []
        for resource, weight in self._scored:
            amount = requests.get(resource, 0)
            if amount == 0 and is_scalar_resource_name(resource):
                continue
            if resource in (CPU, MEMORY):
                used = nodes.non_zero_requested(resource)
            else:
                used = nodes.requested(resource)
            uses.append(ResourceUse(used + amount, nodes.allocatable(resource), weight))
        return self._scorer(uses, len(nodes))

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
        if any(amount > offered.get(resource, 0) for resource, amount in checked):
            return QueueingHint.SKIP
        if old is None:
            return QueueingHint.QUEUE
        offered_before = amounts(old.status.allocatable)
        for resource in (PODS, *(resource for resource, _ in checked)):
            if offered.get(resource, 0) > offered_before.get(resource, 0):
                return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _checked(self, template: PodTemplate) -> Sequence[tuple[str, int]]:
        asked = _asked(template)
        if not self._ignored and not self._ignored_groups:
            return asked
        return [one for one in asked if not self._is_ignored(one[0])]

    def _is_ignored(self, resource: str) -> bool:
        if not is_extended_resource_name(resource):
            return False
        return resource in self._ignored or resource.partition("/")[0] in self._ignored_groups


@template_fact
def _asked(template: PodTemplate) -> tuple[tuple[str, int], ...]:
    """Resources a pod asks for and nodes keep account of, in the order of the reasons."""
    requests = template.requests
    scalars = sorted(resource for resource in requests if is_scalar_resource_name(resource))
    return tuple(
        (resource, requests[resource])
        for resource in (CPU, MEMORY, EPHEMERAL_STORAGE, *scalars)
        if requests.get(resource, 0) > 0
    )


@template_fact
def _scored_requests(template: PodTemplate) -> Mapping[str, int]:
    """Requests of the containers alone, with defaults for those that ask for no cpu or memory."""
    spec = msgspec.structs.replace(template.spec, resources=None)
    cpu_millis, memory_bytes = non_missing_requests(spec)
    return {**pod_requests(spec), CPU: cpu_millis, MEMORY: memory_bytes}


class _Shortages:
    """Which combination of reasons each node has; there are few combinations and many nodes."""

    def __init__(self, nodes: int) -> None:
        self._numbers = np.zeros(nodes, np.int64)
        self._combinations: list[tuple[str, ...]] = [()]
        self._unresolvable = np.zeros(nodes, np.bool_)

    def add(
        self, short: NDArray[np.bool_], reason: str, beyond: NDArray[np.bool_] | None = None
    ) -> None:
        """Give the nodes that are short one reason more; ``beyond`` marks those without hope."""
        if not short.any():
            return
        present, self._numbers = np.unique(2 * self._numbers + short, return_inverse=True)
        self._combinations = [
            (*self._combinations[number >> 1], reason)
            if number & 1
            else self._combinations[number >> 1]
            for number in present.tolist()
        ]
        if beyond is not None:
            self._unresolvable |= beyond

    def verdicts(self) -> Verdicts:
        if self._combinations == [()]:
            return Verdicts.passing(len(self._numbers))
        present, inverse = np.unique(2 * self._numbers + self._unresolvable, return_inverse=True)
        statuses: list[Status] = []
        codes = []
        for number in present.tolist():
            reasons = self._combinations[number >> 1]
            if reasons:
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if number & 1 else Code.UNSCHEDULABLE
                statuses.append(Status(code, reasons))
            codes.append(len(statuses) if reasons else 0)
        return Verdicts(np.array(codes, np.int16)[inverse], statuses)

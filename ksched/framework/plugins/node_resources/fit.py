"""NodeResourcesFit: whether a node has enough free resources, and how much remains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.devices import DeviceClass
from ksched.api.objects import Node, Pod
from ksched.api.pod_resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    amounts,
    container_requests,
    is_extended_resource_name,
    non_missing_requests,
    pod_requests_with_status,
    scalar_resource_names,
)
from ksched.configuration.plugin_args import NodeResourcesFitArgs
from ksched.devices.extended_resource_classes import (
    ExtendedResourceClasses,
    implicit_name,
    is_device_resource_name,
)
from ksched.framework import (
    PASS_TEMPLATE,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    Listers,
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
from ksched.framework.memoizing import memoize_last
from ksched.framework.node_columns import ResourceAxis
from ksched.framework.plugins import names
from ksched.framework.plugins.node_resources.device_counts import DeviceCounts
from ksched.framework.plugins.node_resources.requests import Ints, Requests, stacked
from ksched.framework.plugins.node_resources.scorers import scorer_of

TOO_MANY_PODS = "Too many pods"
DEFAULTS = NodeResourcesFitArgs()
NO_RESOURCES: frozenset[str] = frozenset()


class NodeResourcesFit:
    """Rejects nodes whose free resources do not cover the pod's requests, and scores the rest.

    All shortages of a node are named: ``Too many pods``, ``Insufficient cpu``, ``Insufficient
    memory``, ``Insufficient ephemeral-storage``, ``Insufficient <resource>``. If the pod requests
    more than the node has when empty, evicting other pods is not tried there.

    Arguments: ``ignoredResources`` and ``ignoredResourceGroups`` name extended resources that are
    not checked (for example because an extender manages them). ``scoringStrategy`` scores the
    nodes: ``LeastAllocated`` (the default) prefers free ones, ``MostAllocated`` full ones,
    ``RequestedToCapacityRatio`` follows a configured shape; ``resources`` lists the resources and
    their weights (cpu and memory equally by default).

    For the score a container without requests for cpu or memory counts as 100m and 200Mi, and
    pod-level requests do not count, although they do for the filter: as in kube-scheduler.
    """

    name: ClassVar[str] = names.NODE_RESOURCES_FIT
    filter_depends_on: ClassVar = FilterDependsOn(
        Scope.RESOURCES, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def __init__(
        self, args: NodeResourcesFitArgs | None = None, listers: Listers | None = None
    ) -> None:
        args = args or DEFAULTS
        self._listers = listers or Listers()
        strategy = args.scoring_strategy
        weights: Counter[str] = Counter()
        for one in strategy.resources:
            weights[one.name] += one.weight
        self._scorer = scorer_of(strategy)
        self._device_counts = DeviceCounts(self._listers, weights)
        self.score_depends_on = self._device_counts.score_depends_on()
        self._checked = template_fact(
            _Selection(args.ignored_resources, args.ignored_resource_groups).checked
        )
        self._scored = template_fact(
            lambda template: Requests.scored(weights, _scored_requests(template))
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        """Never skips: even a pod without requests takes one of the node's pod slots.

        kube-scheduler: computePodResourceRequest.
        """
        if pod.template.is_large:
            # Tens of thousands of names: not in one step with the filter.
            self._checked(pod.template).offered_on(snapshot.table.axis)
        return PASS_TEMPLATE

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        """kube-scheduler: fitsRequest."""
        checked = self._checked(pod.template)
        backed = self._backed_by_devices(checked)
        request = checked.offered_on(nodes.table.axis)
        full = nodes.pod_count >= nodes.allowed_pods
        allocatable = stacked(nodes.allocatable, request.resources, len(nodes))
        # A resource that the pod does not request cannot reject it, not even on an overcommitted
        # node where the free amount is negative: such resources are not among these.
        free = allocatable - stacked(nodes.requested, request.resources, len(nodes))
        short = request.amounts > free
        for line, resource in enumerate(request.resources) if backed else ():
            # On nodes that do not offer the resource, DynamicResources allocates devices for it.
            if resource in backed:
                short[line] &= allocatable[line] > 0
        absent = checked.absent - backed
        if not absent and not np.count_nonzero(full) and not np.count_nonzero(short):
            return Verdicts.passing(len(nodes))
        beyond = ((request.amounts > allocatable) & short).any(axis=0)
        return _verdicts(np.vstack((beyond, full, short)), request.resources, checked, absent)

    def _backed_by_devices(self, checked: _Checked) -> frozenset[str]:
        """Resources backed by a DeviceClass, if DynamicResources is enabled to allocate them.

        kube-scheduler: shouldDelegateResourceToDRA.
        """
        classes = self._listers.known_view(ExtendedResourceClasses)
        if classes is None:
            return NO_RESOURCES
        return classes.backed_among(checked.names)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        """Never skips: a pod without requests is scored with defaults."""
        return PASS_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints:
        scored = self._scored(pod.template)

        def used(resource: str) -> Ints:
            if resource in (CPU, MEMORY):
                return nodes.non_zero_requested(resource)
            return nodes.requested(resource)

        in_use = stacked(used, scored.resources, len(nodes))
        capacities = stacked(nodes.allocatable, scored.resources, len(nodes))
        self._device_counts.count(scored.resources, nodes, in_use, capacities)
        return self._scorer(scored.on_top_of(in_use), capacities, scored.weights)

    def checked_requests(self, template: PodTemplate) -> dict[str, int]:
        """What the filter compares with what nodes have, by resource."""
        checked = self._checked(template).request
        return dict(zip(checked.resources, checked.amounts[:, 0].tolist(), strict=True))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # Deletions and resizes are one registration in kube-scheduler. They are three here because
        # only the hint for a pod's own resize is per pod: the others are called once per template.
        deleted = ClusterEvent(Resource.POD, Action.DELETE)
        scaled_down = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
        own = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        return (
            ClusterEventWithHint(deleted, self._is_schedulable_after_pod_event, per_pod=False),
            ClusterEventWithHint(
                scaled_down, self._is_schedulable_after_pod_scale_down, per_pod=False
            ),
            ClusterEventWithHint(own, self._is_schedulable_after_own_scale_down),
            ClusterEventWithHint(node, self._is_schedulable_after_node_change, per_pod=False),
            ClusterEventWithHint(
                ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
                self._is_schedulable_after_device_class_event,
                per_pod=False,
            ),
        )

    def _is_schedulable_after_device_class_event(
        self, pod: PodInfo, old: DeviceClass | None, new: DeviceClass
    ) -> QueueingHint:
        name = new.spec.extended_resource_name
        if old is not None and old.spec.extended_resource_name == name:
            return QueueingHint.SKIP
        wanted = self._checked(pod.template).names
        is_requested = (name in wanted and is_device_resource_name(name)) or (
            old is None and implicit_name(new) in wanted
        )
        return QueueingHint.QUEUE if is_requested else QueueingHint.SKIP

    def _is_schedulable_after_pod_event(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        held_room = old.spec.node_name or old.status.nominated_node_name
        return QueueingHint.QUEUE if held_room else QueueingHint.SKIP

    def _is_schedulable_after_own_scale_down(
        self, pod: PodInfo, old: Pod, new: Pod
    ) -> QueueingHint:
        return QueueingHint.QUEUE if new.metadata.uid == pod.uid else QueueingHint.SKIP

    def _is_schedulable_after_pod_scale_down(
        self, pod: PodInfo, old: Pod, new: Pod
    ) -> QueueingHint:
        before, after = _occupied_by(old), _occupied_by(new)
        for resource, _ in _resource_requests(pod.template):
            if before.get(resource, 0) > after.get(resource, 0):
                return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node
    ) -> QueueingHint:
        """kube-scheduler: haveAnyRequestedResourcesIncreased."""
        known = self._checked(pod.template)
        checked = known.request
        backed = self._backed_by_devices(known)
        offered = _offered_by(new)
        by_devices = {one for one in backed if not offered.get(one, 0)}
        if offered.get(PODS, 0) < 1:
            return QueueingHint.SKIP
        for resource, amount in zip(checked.resources, checked.amounts[:, 0], strict=True):
            if amount > offered.get(resource, 0) and resource not in by_devices:
                return QueueingHint.SKIP
        if old is None or by_devices:
            return QueueingHint.QUEUE
        offered_before = _offered_by(old)
        for resource in (PODS, *checked.resources):
            if offered.get(resource, 0) > offered_before.get(resource, 0):
                return QueueingHint.QUEUE
        return QueueingHint.SKIP


class _Selection:
    """Which requests are checked; not a method of the plugin, which would refer to itself."""

    def __init__(self, ignored: Iterable[str], ignored_groups: Iterable[str]) -> None:
        self._ignored = frozenset(ignored)
        self._ignored_groups = frozenset(ignored_groups)

    def checked(self, template: PodTemplate) -> _Checked:
        request = _resource_requests(template)
        if self._ignored or self._ignored_groups:
            request = (pair for pair in request if not self._is_ignored(pair[0]))
        return _Checked(request)

    def _is_ignored(self, resource: str) -> bool:
        if not is_extended_resource_name(resource):
            return False
        return resource in self._ignored or resource.partition("/")[0] in self._ignored_groups


class _Checked:
    """The requests of a pod; only resources that some node offers have to be compared."""

    __slots__ = ("_absent", "_offered", "_seen", "names", "request")

    def __init__(self, requests: Iterable[tuple[str, int]]) -> None:
        self.request = Requests.of(requests)
        self.names = frozenset(self.request.resources)
        self._offered = self.request
        self._absent = NO_RESOURCES
        self._seen: tuple[ResourceAxis, int] | None = None

    def offered_on(self, axis: ResourceAxis) -> Requests:
        """Return the part that is on the axis; a pod that requests more fits nowhere."""
        if self._seen is None or self._seen[0] is not axis or self._seen[1] != len(axis):
            self._seen = (axis, len(axis))
            request = self.request
            pairs = zip(request.resources, request.amounts[:, 0].tolist(), strict=True)
            found = [pair for pair in pairs if axis.find(pair[0]) >= 0]
            is_whole = len(found) == len(request.resources)
            self._offered = request if is_whole else Requests.of(found)
            self._absent = self.names.difference(self._offered.resources)
        return self._offered

    @property
    def absent(self) -> frozenset[str]:
        """Requested resources that were not on the axis when it was last searched."""
        return self._absent


def _resource_requests(template: PodTemplate) -> Iterator[tuple[str, int]]:
    """Yield the pod's requests that nodes account for, in the order of the reasons."""
    requests = template.requests
    for resource in (CPU, MEMORY, EPHEMERAL_STORAGE, *sorted(scalar_resource_names(requests))):
        if requests.get(resource, 0) > 0:
            yield resource, requests[resource]


def _scored_requests(template: PodTemplate) -> Mapping[str, int]:
    """Return requests of the containers alone, with defaults for cpu and memory.

    kube-scheduler: calculatePodResourceRequest.
    """
    requests, (cpu_millis, memory_bytes) = template.requests, template.non_zero
    spec = template.spec
    if spec.resources is not None:
        requests, (cpu_millis, memory_bytes) = container_requests(spec), non_missing_requests(spec)
    return {**requests, CPU: cpu_millis, MEMORY: memory_bytes}


def _verdicts(
    marks: NDArray[np.bool_],
    resources: Sequence[str],
    checked: _Checked,
    absent: frozenset[str],
) -> Verdicts:
    """Build the statuses of the nodes; there are many nodes and few combinations of reasons.

    The first line marks nodes where evicting pods does not help, the second those with too many
    pods, the others those that are short of a resource. All nodes lack what is ``absent``.
    """
    if len(marks) < 63:
        lines = range(len(marks))
        combinations = np.array([1 << line for line in lines], np.int64) @ marks
        present = sorted(set(combinations.tolist()))
        inverse = np.searchsorted(present, combinations)
        columns = [[one >> line & 1 for line in lines] for one in present]
    else:
        # Too many for a machine word: columns are compared as bytes.
        packed = np.ascontiguousarray(np.packbits(marks, axis=0).T)
        whole = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, examples, inverse = np.unique(whole, return_index=True, return_inverse=True)
        columns = marks[:, examples].T.tolist()
    statuses: list[Status] = []
    codes = []
    for column in columns:
        status = _status(column, resources, checked, absent)
        if status is not None:
            statuses.append(status)
        codes.append(0 if status is None else len(statuses))
    return Verdicts(np.array(codes, np.int16)[inverse.ravel()], statuses)


def _status(
    marked: Sequence[int], resources: Sequence[str], checked: _Checked, absent: frozenset[str]
) -> Status | None:
    """kube-scheduler: InsufficientResource."""
    beyond, full, *short = marked
    missing = {one for one, is_short in zip(resources, short, strict=True) if is_short}
    request = checked.request.resources
    if absent:
        beyond = 1
        missing.update(absent)
    if not full and not missing:
        return None
    reasons = [f"Insufficient {resource}" for resource in request if resource in missing]
    named = (TOO_MANY_PODS, *reasons) if full else tuple(reasons)
    return unresolvable(*named) if beyond else unschedulable(*named)


@memoize_last
def _offered_by(node: Node) -> Mapping[str, int]:
    return amounts(node.status.allocatable)


@memoize_last
def _occupied_by(pod: Pod) -> Mapping[str, int]:
    return pod_requests_with_status(pod)

"""At most so many pods of an app in a zone, as the ZoneQuota of the app's name says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from ksched.api.objects import Pod
from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    Handle,
    NodeInfo,
    NodeRows,
    ObjectMeta,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    Snapshot,
    Status,
    Verdicts,
    WatchedKind,
    unschedulable,
)
from ksched.framework.counters import (
    Counts,
    DomainAttempt,
    DomainFilter,
    DomainRule,
    Holds,
    PerTemplate,
    counters_of,
)

APP = "app"
ZONE = "topology.kubernetes.io/zone"
UNLIMITED = 2**31
FULL = unschedulable("node(s) were in a zone whose quota for this app is used up")


class ZoneQuotaSpec(Struct, frozen=True, rename="camel"):
    max_pods: int


class ZoneQuota(Struct, frozen=True):
    """Named after the app, in the namespace of its pods; nothing else of the object is read."""

    metadata: ObjectMeta
    spec: ZoneQuotaSpec


ZONE_QUOTAS = WatchedKind.custom(
    ZoneQuota, group="example.com", version="v1", plural="zonequotas", kind="ZoneQuota"
)


def judge(counts: Sequence[Counts], max_pods: int) -> Iterator[tuple[int, Holds]]:
    """The one rule: of a zone's number of pods, or of the numbers of all zones at once."""
    yield 1, counts[0] >= max_pods


def is_pod_of(namespace: str, app: str, template: PodTemplate) -> bool:
    return template.namespace == namespace and template.labels.get(APP) == app


class ZoneQuotas:
    name = "ZoneQuotas"

    def __init__(self, args: Any, handle: Handle) -> None:
        self._quotas = handle.listers.require(ZONE_QUOTAS)
        self._filters: PerTemplate[DomainFilter] = PerTemplate()
        self.filter_depends_on = FilterDependsOn(
            Scope.CLUSTER, changes=self._changes, group=self._group
        )

    def sweep(self) -> None:
        self._filters.sweep()

    # -- filtering ------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        template = pod.template
        app = template.labels.get(APP)
        if app is None or self._quotas.get(app, template.namespace) is None:
            return SKIP
        counters = counters_of(snapshot.table)
        rule = self._filters.get(counters, template)
        if rule is None:
            pods = counters.pod_counts(
                (self.name, template.namespace, app),
                partial(is_pod_of, template.namespace, app),
                include_terminating=True,
            )
            zones = counters.domain_counts(pods, ZONE)
            rule = DomainFilter(
                [DomainRule(zones.topology, ((zones,),), judge)],
                [FULL],
                partial(self._max_pods, template.namespace, app),
            )
            self._filters.put(template, rule)
        state.write(self.name, rule.catch_up())
        return SUCCESS

    def _max_pods(self, namespace: str, app: str, counted: object) -> Sequence[int]:
        """What the rule needs to know beside the numbers; another limit has all zones judged."""
        quota = self._quotas.get(app, namespace)
        return (UNLIMITED if quota is None else quota.spec.max_pods,)

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        return self._move(state, pod, added, node, 1)

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        return self._move(state, pod, removed, node, -1)

    def _move(
        self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int
    ) -> Status:
        """A dry run of preemption moves a pod."""
        app, zone = pod.template.labels[APP], node.labels.get(ZONE)
        if zone is not None and is_pod_of(pod.namespace, app, other.template):
            state.read(self.name, DomainAttempt).change(0, 0, zone, more)
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return state.read(self.name, DomainAttempt).verdicts(nodes)

    def _changes(self, state: CycleState, pod: PodInfo, mark: object) -> Any:
        return state.read(self.name, DomainAttempt).filter.changes_since(mark)

    def _group(self, state: CycleState, pod: PodInfo) -> DomainFilter:
        return state.read(self.name, DomainAttempt).filter

    # -- waking ---------------------------------------------------------------------------------

    def events_to_register(self) -> list[ClusterEventWithHint]:
        quota = ClusterEvent(ZONE_QUOTAS.event_resource, Action.UPDATE | Action.DELETE)
        gone = ClusterEvent(Resource.POD, Action.DELETE)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return [
            ClusterEventWithHint(quota, self._after_quota_change),
            ClusterEventWithHint(gone, self._after_pod_deletion),
            ClusterEventWithHint(node),
        ]

    def _after_quota_change(
        self, pod: PodInfo, old: ZoneQuota | None, new: ZoneQuota | None
    ) -> QueueingHint:
        """More room, or no quota any more."""
        known = new or old
        assert known is not None
        is_mine = known.metadata.key == f"{pod.namespace}/{pod.template.labels.get(APP)}"
        is_more = old is None or new is None or new.spec.max_pods > old.spec.max_pods
        return QueueingHint.QUEUE if is_mine and is_more else QueueingHint.SKIP

    def _after_pod_deletion(self, pod: PodInfo, old: Pod, new: None) -> QueueingHint:
        mine = pod.template
        is_same = old.metadata.namespace == mine.namespace and (
            old.metadata.labels.get(APP) == mine.labels.get(APP)
        )
        return QueueingHint.QUEUE if is_same else QueueingHint.SKIP

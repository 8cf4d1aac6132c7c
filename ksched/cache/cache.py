"""The single writer of nodes and of assigned and assumed pods."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from msgspec import Struct

from ksched.api.objects import Node, Pod
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo, PodTemplate, TemplateRegistry
from ksched.cache.pod_states import CachedPod
from ksched.cache.resource_axis import ResourceAxis
from ksched.cache.snapshot import Snapshot
from ksched.errors import InvariantBroken

log = logging.getLogger(__name__)


# What of a published node is stale: only pod objects that count the same, the set of its pods, or
# the node object. Plain integers, because members of an enumeration compare slowly.
_OBJECTS, _PODS, _NODE = 0, 1, 2


class CacheStatistics(Struct, frozen=True):
    """Sizes, for metrics and tests; ``nodes`` includes ghosts as kube-scheduler's metric does."""

    nodes: int
    pods: int
    assumed_pods: int
    templates: int
    nodes_set_apart: int


class PlacementListener(Protocol):
    """Receives every placement, and its end."""

    def placed(self, pod: PodInfo, *, is_assumed: bool) -> None: ...

    def displaced(self, uid: str) -> None: ...


class SchedulerCache:
    """Nodes with their assigned and assumed pods; publishes them to one snapshot.

    With ``assume_ttl_seconds`` of 0 assumed pods never expire: the watch or ``forget_pod`` decides.

    kube-scheduler: cacheImpl.
    """

    def __init__(self, now: Callable[[], float], assume_ttl_seconds: float = 0.0) -> None:
        self._now = now
        self._assume_ttl_seconds = assume_ttl_seconds
        axis = ResourceAxis()
        self._axis = axis
        self._templates = TemplateRegistry(axis)
        self._nodes: dict[str, NodeInfo] = {}
        self._pods: dict[str, CachedPod] = {}
        self._assumed: dict[str, CachedPod] = {}
        self.changed_nodes: dict[str, int] = {}
        """Nodes that ``update_snapshot`` has to publish, and what of each is stale."""
        self._apart: dict[str, Node] = {}
        self.listener: PlacementListener | None = None
        """Called when a pod is assumed, added, updated or removed."""
        self.on_departure: Callable[[str], None] | None = None
        """Called when a pod is seen terminating and when it is gone, after the cache shows it."""
        self.snapshot = Snapshot(axis)

    def pod_info(self, pod: Pod) -> PodInfo:
        """Attach a pod's template. Raises ``InvalidObject`` for an unparsable quantity."""
        return self._templates.pod_info(pod)

    # -- pods -----------------------------------------------------------------------------------

    def assume_pod(self, pod: PodInfo) -> None:
        """Count a pod on its node (``pod.node_name``) before the API server confirms the bind."""
        if pod.uid in self._pods:
            raise InvariantBroken(f"pod {pod.key}: is in the cache, so it cannot be assumed")
        cached = CachedPod(pod, is_assumed=True)
        self._pods[pod.uid] = self._assumed[pod.uid] = cached
        self._add_to_node(pod)
        if self.listener is not None:
            self.listener.placed(pod, is_assumed=True)

    def finish_binding(self, uid: str) -> None:
        """Start the expiry of an assumed pod: its bind call succeeded, the watch must confirm.

        kube-scheduler: finishBinding.
        """
        cached = self._assumed.get(uid)
        if cached is not None:
            cached.is_bound = True
            if self._assume_ttl_seconds > 0:
                cached.deadline = self._now() + self._assume_ttl_seconds

    def bound_assumed(self) -> list[str]:
        """Return the assumed pods whose bind call succeeded but is not confirmed by the watch."""
        return [uid for uid, cached in self._assumed.items() if cached.is_bound]

    def forget_pod(self, pod: PodInfo) -> None:
        """Undo ``assume_pod``; an unknown pod is ignored."""
        cached = self._pods.get(pod.uid)
        if cached is None:
            return
        if not cached.is_assumed:
            raise InvariantBroken(f"pod {pod.key}: was not assumed, so it cannot be forgotten")
        self._drop(cached)

    def expire_assumed(self) -> list[PodInfo]:
        """Remove assumed pods past their deadline and return them."""
        now = self._now()
        expired = [
            cached
            for cached in self._assumed.values()
            if cached.deadline is not None and cached.deadline <= now
        ]
        for cached in expired:
            log.warning("assumed pod expired", extra={"pod": cached.info.key})
            self._drop(cached)
        return [cached.info for cached in expired]

    def add_pod(self, pod: PodInfo) -> None:
        """Add an assigned pod from the watch; confirms it if it was assumed."""
        if self.listener is not None:
            self.listener.placed(pod, is_assumed=False)
        cached = self._pods.get(pod.uid)
        if cached is None:
            self._pods[pod.uid] = CachedPod(pod, is_assumed=False)
            self._add_to_node(pod)
            self._seen(pod)
            return
        if cached.info.node_name != pod.node_name:
            log.warning(
                "pod is on another node than assumed or known",
                extra={"pod": pod.key, "before": cached.info.node_name, "node": pod.node_name},
            )
        self._assumed.pop(pod.uid, None)
        cached.is_assumed, cached.deadline = False, None
        self._replace(cached, pod)
        self._seen(pod)

    def update_pod(self, pod: PodInfo) -> None:
        """Apply a new version of an assigned pod."""
        self.add_pod(pod)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a pod, assumed or not; returns its last version."""
        cached = self._pods.get(uid)
        if cached is None:
            return None
        self._drop(cached)
        return cached.info

    def is_assumed(self, uid: str) -> bool:
        """kube-scheduler: IsAssumedPod."""
        return uid in self._assumed

    def assumed(self) -> list[str]:
        """Return the UIDs of all assumed pods."""
        return list(self._assumed)

    def get_pod(self, uid: str) -> PodInfo | None:
        cached = self._pods.get(uid)
        return cached.info if cached is not None else None

    def pods(self) -> list[PodInfo]:
        return [cached.info for cached in self._pods.values()]

    def _replace(self, cached: CachedPod, pod: PodInfo) -> None:
        old, cached.info = cached.info, pod
        is_same = old.template is pod.template
        takes_the_same = (
            old.node_name == pod.node_name
            and (old.demand is pod.demand or old.demand == pod.demand)
            and old.non_zero == pod.non_zero
            and (is_same or _take_the_same(old.template, pod.template))
        )
        if not takes_the_same:
            self._remove_from_node(old)
            self._add_to_node(pod)
        elif is_same and old.is_terminating == pod.is_terminating:
            self._nodes[pod.node_name].replace_pod(pod)
            self._mark(pod.node_name, _OBJECTS)
        else:
            # Also a pod that got labels of its node when it was bound.
            self._nodes[pod.node_name].change_phase(pod)
            self._mark(pod.node_name, _PODS)

    def _drop(self, cached: CachedPod) -> None:
        del self._pods[cached.info.uid]
        self._assumed.pop(cached.info.uid, None)
        self._remove_from_node(cached.info)
        if self.listener is not None:
            self.listener.displaced(cached.info.uid)
        if self.on_departure is not None:
            self.on_departure(cached.info.uid)

    def _seen(self, pod: PodInfo) -> None:
        if pod.is_terminating and self.on_departure is not None:
            self.on_departure(pod.uid)

    def _add_to_node(self, pod: PodInfo) -> None:
        self._node(pod.node_name).add_pod(pod)
        self._mark(pod.node_name, _PODS)

    def _remove_from_node(self, pod: PodInfo) -> None:
        info = self._nodes[pod.node_name]
        info.remove_pod(pod.uid)
        self._mark(pod.node_name, _PODS)
        if info.node is None and not info.pods:
            del self._nodes[pod.node_name]

    # -- nodes ----------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add or update a node. On ``InvalidObject`` the previous version stays.

        kube-scheduler: AddNode, UpdateNode.
        """
        info = self._node(node.metadata.name)
        known = len(self._axis)
        try:
            info.set_node(node)
        finally:
            if info.node is None and not info.pods:
                del self._nodes[info.name]
            if len(self._axis) > known and self._axis.unplaced:
                self._place_demands(known)
        self._mark(info.name, _NODE)

    def _place_demands(self, first: int) -> None:
        """Count existing pods' requests for resources that no node offered until now."""
        offered = self._axis.values[first:]
        late = {
            demand
            for demand in list(self._axis.unplaced)
            if any(name in demand.requests for name in offered)
        }
        for demand in late:
            demand.place(self._axis)
        for info in self._nodes.values() if late else ():
            for pod in info.pods.values():
                if pod.demand in late:
                    info.count_new_resources(pod.demand, first)
                    self._mark(info.name, _PODS)

    def remove_node(self, name: str) -> None:
        """Remove a node; while it still has known pods, a ghost entry counts them."""
        info = self._nodes.get(name)
        if info is None or info.node is None:
            return
        info.clear_node()
        if not info.pods:
            del self._nodes[name]
        self._mark(name, _NODE)

    def get_node(self, name: str) -> NodeInfo | None:
        info = self._nodes.get(name)
        return info if info is not None and info.node is not None else None

    def node_names(self) -> list[str]:
        """Return the names of existing nodes, without ghosts."""
        return [name for name, info in self._nodes.items() if info.node is not None]

    def _node(self, name: str) -> NodeInfo:
        info = self._nodes.get(name)
        if info is None:
            info = self._nodes[name] = NodeInfo(name, self._axis)
        return info

    # -- publishing -----------------------------------------------------------------------------

    def _mark(self, node_name: str, dirty: int) -> None:
        if dirty >= self.changed_nodes.get(node_name, _OBJECTS):
            self.changed_nodes[node_name] = dirty

    def update_snapshot(self, at_most: int | None = None) -> Snapshot:
        """Publish what changed to the snapshot. Call before a cycle reads it, never during one.

        ``at_most`` limits the number of nodes, so that the caller can yield between batches.
        """
        snapshot = self.snapshot
        table = snapshot.table
        changed = self.changed_nodes
        if at_most is not None and len(changed) > at_most:
            changed = dict(islice(changed.items(), at_most))
            for name in changed:
                del self.changed_nodes[name]
        else:
            self.changed_nodes = {}
        for name, dirty in changed.items():
            info = self._nodes.get(name)
            row = table.rows.get(name)
            if info is None or info.node is None:
                self._apart.pop(name, None)
                if row is not None:
                    snapshot.remove(name)
                continue
            if self._apart and self._apart.get(name) is info.node:
                continue
            try:
                if row is None or dirty == _NODE:
                    snapshot.put(info.clone())
                elif dirty == _PODS:
                    table.put_pods(row, info.clone())
                else:
                    table.put_info(row, info.clone())
                if self._apart:
                    self._apart.pop(name, None)
            except Exception:
                log.exception("node excluded, it cannot be published", extra={"node": name})
                self._exclude(name, info.node)
        return snapshot

    def _exclude(self, name: str, node: Node) -> None:
        """Exclude a node that cannot be published from the snapshot until its object changes."""
        self._apart[name] = node
        if name in self.snapshot.table.rows:
            self.snapshot.remove(name)

    def sweep(self) -> None:
        """Let go of what no pod refers to."""
        self._templates.sweep()

    def templates(self) -> Iterator[PodTemplate]:
        """The templates of all pods, pending ones too."""
        return iter(self._templates)

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(
            nodes=len(self._nodes),
            pods=len(self._pods),
            assumed_pods=len(self._assumed),
            templates=len(self._templates),
            nodes_set_apart=len(self._apart),
        )


def _take_the_same(one: PodTemplate, other: PodTemplate) -> bool:
    """Whether pods of two templates take the same of a node, amounts apart."""
    return one.host_ports == other.host_ports and one.claim_names == other.claim_names

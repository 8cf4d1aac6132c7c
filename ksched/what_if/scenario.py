"""The copy of a cluster with the changes made in it, and the pods that have to be placed then."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ksched.api.objects import Node, Pod, PodDisruptionBudget
from ksched.api.watched_kinds import watched_kind
from ksched.cache.pod_info import PodInfo
from ksched.errors import KschedError
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.text_tables import counted, listed
from ksched.what_if.changes import AddNodes, Changes, RemoveTaint, Scale
from ksched.what_if.draining import (
    UNSCHEDULABLE,
    budget_notes,
    cordoned,
    reason_to_be_lost,
    reason_to_stay,
)
from ksched.what_if.new_nodes import add_nodes_like
from ksched.what_if.new_pods import NewPods
from ksched.what_if.prediction import Cause, Departure, Staying
from ksched.what_if.scaling import more_pods, read_workload, surplus_pods
from ksched.what_if.subjects import Subject

NAMES_SHOWN = 5


class Scenario:
    """Makes changes in a cluster that was read; ``subjects`` are in the order of their creation."""

    def __init__(self, cluster: ClusterCopy) -> None:
        self.cluster = cluster
        self.new_pods = NewPods(cluster.listers, cluster.clock)
        self.subjects: list[Subject] = []
        self.departures: list[Departure] = []
        self.staying: list[Staying] = []
        self.notes: list[str] = list(cluster.invalid)
        pending = sorted(
            (pod for pod in cluster.pending if not pod.is_terminating),
            key=lambda pod: (pod.pod.metadata.creation_timestamp or "", pod.key),
        )
        for pod in pending:
            self.subjects.append(Subject(pod, Cause.PENDING))

    async def apply(self, changes: Changes) -> None:
        """Make the changes; raises ``KschedError`` for what does not exist."""
        if changes.add_nodes is not None:
            self._add_nodes(changes.add_nodes)
        for taint in changes.remove_taints:
            self._remove_taint(taint)
        if changes.drain:
            self._drain([self._node("--drain", name) for name in dict.fromkeys(changes.drain)])
        for scale in changes.scale:
            await self._scale(scale)

    def _node(self, option: str, name: str) -> Node:
        info = self.cluster.cache.get_node(name)
        if info is None or info.node is None:
            known = listed(sorted(self.cluster.cache.node_names()), NAMES_SHOWN)
            raise KschedError(f"{option}: no node is named {name}; there are {known or 'none'}")
        return info.node

    def _add_nodes(self, change: AddNodes) -> None:
        add_nodes_like(self.cluster, self.new_pods, self._node("--like", change.like), change.count)

    def _remove_taint(self, change: RemoveTaint) -> None:
        cache = self.cluster.cache
        nodes = [self._node("--remove-taint", name) for name in change.nodes or cache.node_names()]
        found = False
        for node in nodes:
            rest = [
                one
                for one in node.spec.taints
                if one.key != change.key
                or (change.value is not None and one.value != change.value)
                or (change.effect and one.effect != change.effect)
            ]
            if len(rest) < len(node.spec.taints):
                found = True
                # The node controller would add the taint again while the node is cordoned.
                is_cordoned = node.spec.unschedulable and change.key != UNSCHEDULABLE
                spec = replace(node.spec, taints=rest, unschedulable=is_cordoned)
                cache.add_node(replace(node, spec=spec))
        if not found:
            keys = sorted({taint.key for node in nodes for taint in node.spec.taints})
            there = f"there are {', '.join(keys)}" if keys else "there are no taints at all"
            where = ", ".join(change.nodes) or f"any of {counted(len(nodes), 'node')}"
            raise KschedError(f"--remove-taint: {change.taint} is not on {where}; {there}")

    # -- drain ----------------------------------------------------------------------------------

    def _drain(self, nodes: Iterable[Node]) -> None:
        evicted: list[Pod] = []
        for node in nodes:
            self.cluster.cache.add_node(cordoned(node))
            info = self.cluster.cache.get_node(node.metadata.name)
            assert info is not None
            for pod in sorted(info.pods.values(), key=lambda pod: pod.key):
                reason = reason_to_stay(pod.pod)
                if reason:
                    self.staying.append(Staying(pod.key, pod.node_name, reason))
                    continue
                evicted.append(pod.pod)
                self.remove(pod)
                self.replace(pod, Cause.DRAINED)
        budgets = self.cluster.listers.required().get(watched_kind(PodDisruptionBudget))
        if budgets is not None:
            self.notes += budget_notes(budgets, evicted)

    def remove(self, pod: PodInfo) -> None:
        """Take a pod off the cluster, wherever it is."""
        if pod.node_name:
            self.cluster.cache.remove_pod(pod.uid)
        self.cluster.pending.remove(pod.uid)
        self.cluster.nominator.delete(pod.uid)
        if self.cluster.groups.is_on:
            self.cluster.groups.gone(pod.uid)

    def replace(self, pod: PodInfo, cause: Cause) -> Subject | None:
        """Let the controller of a removed pod make another one; ``None`` if there is none."""
        reason = reason_to_be_lost(pod.pod)
        if reason:
            self.departures.append(Departure(pod.key, pod.node_name, reason))
            return None
        new = self.new_pods.replacement(pod.pod)
        return self.add(new, cause, before=pod.node_name, replaces=pod.key)

    def add(self, pod: Pod, cause: Cause, *, before: str = "", replaces: str = "") -> Subject:
        """Add a pod that is to be placed."""
        info = self.cluster.cache.pod_info(pod)
        self.cluster.put_pod(info)
        subject = Subject(info, cause, before=before, replaces=replaces)
        self.subjects.append(subject)
        return subject

    # -- scale ----------------------------------------------------------------------------------

    async def _scale(self, scale: Scale) -> None:
        workload = await read_workload(self.cluster.client, scale)
        everywhere = [*self.cluster.cache.pods(), *self.cluster.pending]
        pods = [pod for pod in everywhere if workload.owns(pod.pod) and not pod.is_terminating]
        pods.sort(key=lambda pod: pod.key)
        more = scale.replicas - len(pods)
        if more > 0:
            known = [pod.pod for pod in pods]
            for new in await more_pods(self.cluster.client, workload, known, more, self.new_pods):
                self.add(new, Cause.SCALED)
        for pod in surplus_pods(workload, pods, max(-more, 0)):
            self.remove(pod)
            self.subjects = [one for one in self.subjects if one.pod.uid != pod.uid]
            self.departures.append(Departure(pod.key, pod.node_name, "scaled down", True))

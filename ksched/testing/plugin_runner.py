"""One plugin on a few nodes, without a scheduler: for tables of verdicts and scores.

    run_filter(NodeResourcesFit(), pod, nodes=[node])["n1"].reasons == ("Insufficient cpu",)

Works for plugins at both levels, per node and columnar.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from ksched.api.objects import Node, Pod
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.cache.snapshot import Snapshot
from ksched.framework import (
    SUCCESS,
    ClassScores,
    ClusterEvent,
    CycleState,
    PreFilterResult,
    QueueingHint,
    Status,
    unresolvable,
)


class PluginBench:
    """A snapshot of some nodes and the pods on them, and attempts to place a pod there.

    ``existing_pods`` are on the nodes that their ``spec.nodeName`` says.
    """

    def __init__(self, nodes: Iterable[Node], existing_pods: Iterable[Pod] = ()) -> None:
        axis = ResourceAxis()
        self.templates = TemplateRegistry(axis)
        self.snapshot = Snapshot(axis)
        infos: dict[str, NodeInfo] = {}
        for node in nodes:
            info = infos[node.metadata.name] = NodeInfo(node.metadata.name, axis)
            info.set_node(node)
        for pod in existing_pods:
            infos[pod.spec.node_name].add_pod(self.pod_info(pod))
        for info in infos.values():
            self.snapshot.table.put(info)

    def pod_info(self, pod: Pod) -> PodInfo:
        return self.templates.pod_info(pod)

    def filter(self, plugin: Any, pod: Pod) -> dict[str, Status]:
        """Run PreFilter and Filter as a cycle would; the answer names the plugin nowhere."""
        state, info = CycleState(), self.pod_info(pod)
        nodes = self.snapshot.table.all()
        status, only = self._pre_filter(plugin, state, info)
        if not status.is_success:
            return dict.fromkeys(nodes.names, SUCCESS if status.is_skip else status)
        if hasattr(plugin, "filter_nodes"):
            verdicts = plugin.filter_nodes(state, info, nodes)
            by_code = (SUCCESS, *verdicts.statuses)
            answers = dict(
                zip(nodes.names, (by_code[code] for code in verdicts.codes), strict=True)
            )
        else:
            answers = {node.name: plugin.filter(state, info, node) for node in nodes.infos}
        if only is not None:
            absent = unresolvable(f"node(s) didn't satisfy plugin(s) [{plugin.name}]")
            return {name: answers[name] if name in only else absent for name in answers}
        return answers

    def score(
        self, plugin: Any, pod: Pod, node_names: Iterable[str] | None = None
    ) -> dict[str, int]:
        """Run PreScore, Score and Normalize on the named nodes (all if ``None``).

        The answer is empty if the plugin skips the pod.
        """
        state, info = CycleState(), self.pod_info(pod)
        nodes = self.snapshot.table.all()
        if node_names is not None:
            rows = [self.snapshot.table.rows[name] for name in node_names]
            nodes = self.snapshot.table.some(np.array(rows, np.intp))
        if hasattr(plugin, "pre_score"):
            status = plugin.pre_score(state, info, nodes)
            if status.is_skip:
                return {}
            if not status.is_success:
                raise PluginRefused(plugin.name, "pre_score", status)
        if hasattr(plugin, "score_nodes"):
            scores = plugin.score_nodes(state, info, nodes)
        else:
            scores = np.array([plugin.score(state, info, node) for node in nodes.infos], np.int64)
        if isinstance(scores, ClassScores):
            scores = np.array(scores.values, np.int64)[scores.ids]
        elif hasattr(plugin, "normalize"):
            scores = plugin.normalize(state, info, nodes, scores)
        return dict(zip(nodes.names, scores.tolist(), strict=True))

    def _pre_filter(
        self, plugin: Any, state: CycleState, pod: PodInfo
    ) -> tuple[Status, frozenset[str] | None]:
        if not hasattr(plugin, "pre_filter"):
            return SUCCESS, None
        answer = plugin.pre_filter(state, pod, self.snapshot)
        if inspect.isawaitable(answer):
            raise TypeError(f"{plugin.name}: pre_filter is async, run it in a cluster instead")
        if isinstance(answer, PreFilterResult):
            return answer.status, answer.node_names
        return answer, None


class PluginRefused(AssertionError):
    """A plugin answered with a status where the test wanted scores."""

    def __init__(self, plugin: str, point: str, status: Status) -> None:
        self.status = status
        super().__init__(f"{plugin}: {point} answered {status.code.value}: {status.message}")


def run_filter(
    plugin: Any, pod: Pod, nodes: Iterable[Node], existing_pods: Iterable[Pod] = ()
) -> dict[str, Status]:
    """Ask a plugin on which nodes a pod may run."""
    return PluginBench(nodes, existing_pods).filter(plugin, pod)


def run_score(
    plugin: Any, pod: Pod, nodes: Iterable[Node], existing_pods: Iterable[Pod] = ()
) -> dict[str, int]:
    """Ask a plugin how it rates the nodes for a pod, normalised; empty if it skips the pod."""
    return PluginBench(nodes, existing_pods).score(plugin, pod)


def run_hint(
    plugin: Any, event: ClusterEvent, pod: Pod, old: object = None, new: object = None
) -> QueueingHint:
    """Ask a plugin whether an event makes a pod that it rejected worth another attempt."""
    info = TemplateRegistry(ResourceAxis()).pod_info(pod)
    for registered in plugin.events_to_register():
        if registered.event.matches(event) and (
            registered.hint is None or registered.hint(info, old, new) is QueueingHint.QUEUE
        ):
            return QueueingHint.QUEUE
    return QueueingHint.SKIP

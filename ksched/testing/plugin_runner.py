"""One plugin on a few nodes, without a scheduler: for tables of verdicts and scores.

    run_filter(NodeResourcesFit(), pod, nodes=[node])["n1"].reasons == ("Insufficient cpu",)

Works for plugins at both levels, per node and columnar. A plugin that a scheduler would reject at
start-up is rejected here, and the declared dependencies of a columnar one are tested
(``declaration_trials``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ksched.api.objects import Node, Pod
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.cache.snapshot import Snapshot
from ksched.errors import ConfigError
from ksched.framework import (
    SUCCESS,
    ClassScores,
    ClusterEvent,
    CycleState,
    NodeRows,
    PreFilterResult,
    QueueingHint,
    Status,
    unresolvable,
)
from ksched.framework.runtime.plugin_contract import find_problems
from ksched.testing.declaration_trials import Answers, DeclarationTrial


class PluginBench:
    """A snapshot of some nodes and the pods on them, and attempts to place a pod there.

    ``existing_pods`` are on the nodes in their ``spec.nodeName``. Plugins' declarations are checked
    unless ``check_declarations`` is False.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        existing_pods: Iterable[Pod] = (),
        *,
        check_declarations: bool = True,
    ) -> None:
        self._check_declarations = check_declarations
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
        """Run PreFilter and Filter as a cycle would; statuses are not attributed to the plugin."""
        state, info = CycleState(), self.pod_info(pod)
        nodes = self.snapshot.table.all()
        status, only = self._pre_filter(plugin, state, info)
        if not status.is_success:
            return dict.fromkeys(nodes.names, SUCCESS if status.is_skip else status)
        answers = _verdicts(plugin, state, info, nodes)
        if self._check_declarations:

            def ask(bench: PluginBench, pod: Pod) -> dict[str, Status] | None:
                state, info = CycleState(), bench.pod_info(pod)
                if not bench._pre_filter(plugin, state, info)[0].is_success:
                    return None
                return _verdicts(plugin, state, info, bench.snapshot.table.all())

            self._try_out(plugin, "filter_depends_on", pod, answers, ask)
        if only is not None:
            absent = unresolvable(f"node(s) didn't satisfy plugin(s) [{plugin.name}]")
            return {name: answers[name] if name in only else absent for name in answers}
        return answers

    def score(
        self, plugin: Any, pod: Pod, node_names: Iterable[str] | None = None
    ) -> dict[str, int]:
        """Run PreScore, Score and Normalize on the named nodes (all if ``None``).

        The result is empty if the plugin skips the pod.
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
        scores = _raw_scores(plugin, state, info, nodes)
        if self._check_declarations and not isinstance(scores, ClassScores):

            def ask(bench: PluginBench, pod: Pod) -> dict[str, int] | None:
                state, info, nodes = CycleState(), bench.pod_info(pod), bench.snapshot.table.all()
                if hasattr(plugin, "pre_score") and plugin.pre_score(state, info, nodes).is_skip:
                    return None
                raw = _raw_scores(plugin, state, info, nodes)
                return dict(zip(nodes.names, raw.tolist(), strict=True))

            raw = dict(zip(nodes.names, scores.tolist(), strict=True))
            self._try_out(plugin, "score_depends_on", pod, raw, ask)
        if isinstance(scores, ClassScores):
            scores = np.array(scores.values, np.int64)[scores.ids]
        elif hasattr(plugin, "normalize"):
            scores = plugin.normalize(state, info, nodes, scores)
        return dict(zip(nodes.names, scores.tolist(), strict=True))

    def _try_out(
        self,
        plugin: Any,
        declaration: str,
        pod: Pod,
        answers: Answers,
        ask: Callable[[PluginBench, Pod], Answers | None],
    ) -> None:
        """Check a plugin's declaration; see ``declaration_trials``."""
        if problems := list(find_problems(plugin.name, plugin)):
            raise ConfigError([f'plugin "{plugin.name}": {problem}' for problem in problems])
        declared = getattr(plugin, declaration, None)
        if declared is None:
            return
        infos = [self.snapshot.table.infos[self.snapshot.table.rows[name]] for name in answers]

        def variant(nodes: Sequence[Node], pods: Sequence[Pod], pod: Pod) -> Answers | None:
            return ask(PluginBench(nodes, pods, check_declarations=False), pod)

        DeclarationTrial(plugin.name, declared, infos, pod, answers, variant).run()

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


def _verdicts(plugin: Any, state: CycleState, pod: PodInfo, nodes: NodeRows) -> dict[str, Status]:
    if not hasattr(plugin, "filter_nodes"):
        return {node.name: plugin.filter(state, pod, node) for node in nodes.infos}
    verdicts = plugin.filter_nodes(state, pod, nodes)
    by_code = (SUCCESS, *verdicts.statuses)
    return dict(zip(nodes.names, (by_code[code] for code in verdicts.codes), strict=True))


def _raw_scores(plugin: Any, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Any:
    if hasattr(plugin, "score_nodes"):
        return plugin.score_nodes(state, pod, nodes)
    return np.array([plugin.score(state, pod, node) for node in nodes.infos], np.int64)


class PluginRefused(AssertionError):
    """A plugin returned a failure status where the test expected scores."""

    def __init__(self, plugin: str, point: str, status: Status) -> None:
        self.status = status
        super().__init__(f"{plugin}: {point} answered {status.code.value}: {status.message}")


def run_filter(
    plugin: Any, pod: Pod, nodes: Iterable[Node], existing_pods: Iterable[Pod] = ()
) -> dict[str, Status]:
    """Return a plugin's status for a pod on each node."""
    return PluginBench(nodes, existing_pods).filter(plugin, pod)


def run_score(
    plugin: Any, pod: Pod, nodes: Iterable[Node], existing_pods: Iterable[Pod] = ()
) -> dict[str, int]:
    """Return a plugin's normalized scores of the nodes for a pod; empty if it skips the pod."""
    return PluginBench(nodes, existing_pods).score(plugin, pod)


def run_hint(
    plugin: Any, event: ClusterEvent, pod: Pod, old: object = None, new: object = None
) -> QueueingHint:
    """Return whether an event makes a pod that the plugin rejected worth another attempt."""
    info = TemplateRegistry(ResourceAxis()).pod_info(pod)
    for registered in plugin.events_to_register():
        if registered.event.matches(event) and (
            registered.hint is None or registered.hint(info, old, new) is QueueingHint.QUEUE
        ):
            return QueueingHint.QUEUE
    return QueueingHint.SKIP

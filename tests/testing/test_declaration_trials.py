"""The plugin runner finds declarations that are not true, with a single question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ksched.errors import ConfigError
from ksched.framework import (
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    Scope,
    ScoreDependsOn,
    Verdicts,
    unschedulable,
)
from ksched.framework.runtime.declaration_checks import FalseDeclaration
from ksched.testing import make_node, make_pod
from ksched.testing.device_builders import with_claim
from ksched.testing.plugin_runner import PluginBench, run_filter, run_score

POD = with_claim(make_pod("web").label(app="web").req(cpu="1").pvc("data"), "gpu").obj()
NODES = [make_node(name).label(zone=name).obj() for name in ("n1", "n2", "n3")]
RUNNING = [make_pod("old").node("n1").obj()]

Mark = Callable[[PodInfo, NodeRows], Any]
"""Marks some of the nodes."""


def has_pods(pod: PodInfo, nodes: NodeRows) -> Any:
    return nodes.pod_count > 0


def is_first(pod: PodInfo, nodes: NodeRows) -> Any:
    return np.array([name == "n1" for name in nodes.names])


def is_emptiest(pod: PodInfo, nodes: NodeRows) -> Any:
    return nodes.pod_count == nodes.pod_count.min()


def is_meant(pod: PodInfo, nodes: NodeRows) -> Any:
    return is_first(pod, nodes) & ("app" in pod.labels)


def is_attached(pod: PodInfo, nodes: NodeRows) -> Any:
    return is_first(pod, nodes) & ("data" in pod.template.claim_names)


def has_gpu(pod: PodInfo, nodes: NodeRows) -> Any:
    names = [one.resource_claim_name for one in pod.template.spec.resource_claims]
    return is_first(pod, nodes) & ("gpu" in names)


class Marking:
    """Rejects, or prefers, marked nodes."""

    name = "Marking"

    def __init__(self, mark: Mark, scope: Scope, **reads: Any) -> None:
        self._mark = mark
        self.filter_depends_on = FilterDependsOn(scope, **reads)
        self.score_depends_on = ScoreDependsOn(scope, **reads)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(self._mark(pod, nodes), unschedulable("marked"))

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Any:
        return 10 * np.array(self._mark(pod, nodes), np.int64)


@pytest.mark.parametrize("run", [run_filter, run_score])
@pytest.mark.parametrize(
    ("plugin", "untrue", "node"),
    [
        (Marking(has_pods, Scope.NODE), "scope=Scope.NODE", "n1"),
        (Marking(is_emptiest, Scope.ROW), "scope=Scope.ROW", "n1"),
        (Marking(is_first, Scope.RESOURCES), "scope=Scope.RESOURCES", "n1"),
        (
            Marking(is_meant, Scope.NODE, reads_inter_pod_fields=False),
            "reads_inter_pod_fields=False",
            "n1",
        ),
        (
            Marking(is_attached, Scope.NODE, reads_claim_names=False),
            "reads_claim_names=False",
            "n1",
        ),
        (
            Marking(has_gpu, Scope.NODE, reads_claim_names=False),
            "reads_claim_names=False",
            "n1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_false_declaration_is_named(run: Any, plugin: Marking, untrue: str, node: str) -> None:
    # Of nodes with equal amounts the first two: n1 alone has a pod, unless only the name counts.
    running = [] if untrue == "scope=Scope.RESOURCES" else RUNNING
    with pytest.raises(FalseDeclaration) as found:
        run(plugin, POD, NODES, running)
    assert (found.value.plugin, found.value.untrue) == ("Marking", untrue)
    assert (found.value.node, found.value.pod) == (node, "default/web")
    assert found.value.cached != found.value.recomputed


@pytest.mark.parametrize("run", [run_filter, run_score])
@pytest.mark.parametrize(
    "plugin",
    [
        Marking(is_first, Scope.NODE, reads_inter_pod_fields=False),
        Marking(has_pods, Scope.RESOURCES, reads_inter_pod_fields=False),
        Marking(has_pods, Scope.ROW, reads_inter_pod_fields=False),
        Marking(is_meant, Scope.NODE),
        Marking(is_attached, Scope.NODE),
        Marking(has_gpu, Scope.NODE),
        Marking(is_first, Scope.NODE, reads_claim_names=False),
        Marking(is_emptiest, Scope.CLUSTER),
        Marking(is_emptiest, Scope.POD),
    ],
)
def test_a_true_declaration_is_believed(run: Any, plugin: Marking) -> None:
    assert set(run(plugin, POD, NODES, RUNNING)) == {"n1", "n2", "n3"}


def test_trials_can_be_left_out() -> None:
    bench = PluginBench(NODES, RUNNING, check_declarations=False)
    plugin = Marking(has_pods, Scope.NODE)
    assert bench.filter(plugin, POD)["n1"].is_rejected
    assert bench.score(plugin, POD) == {"n1": 10, "n2": 0, "n3": 0}


def test_what_a_scheduler_would_refuse_is_refused() -> None:
    class Misspelt(Marking):
        def filter_node(self) -> None: ...

    with pytest.raises(ConfigError, match='"Marking": unknown attribute filter_node, did you mean'):
        run_filter(Misspelt(is_first, Scope.NODE), POD, NODES)

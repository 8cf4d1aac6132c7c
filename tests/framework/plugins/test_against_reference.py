"""Every columnar plugin against the naive reference, on random nodes, pods and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ksched.api.objects import Node, Pod
from ksched.configuration.plugin_args import (
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from ksched.framework import SUCCESS, CycleState, Status, Verdicts
from ksched.framework.plugins.image_locality import ImageLocality
from ksched.framework.plugins.node_affinity import NodeAffinity
from ksched.framework.plugins.node_name import NodeName
from ksched.framework.plugins.node_ports import NodePorts
from ksched.framework.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from ksched.framework.plugins.node_resources.fit import NodeResourcesFit
from ksched.framework.plugins.node_unschedulable import NodeUnschedulable
from ksched.framework.plugins.taint_toleration import TaintToleration
from ksched.testing.plugin_runner import PluginBench
from lab.random_clusters import GPU, PAGES, SCORED_RESOURCES, RandomCluster
from lab.reference import ReferenceProfile, decide


class Scene(NamedTuple):
    nodes: list[Node]
    running: list[Pod]
    pod: Pod
    profile: ReferenceProfile

    @property
    def by_node(self) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {node.metadata.name: [] for node in self.nodes}
        for pod in self.running:
            by_node[pod.spec.node_name].append(pod)
        return by_node


def _scene(seed: int) -> Scene:
    random = Random(seed)
    cluster = RandomCluster(random)
    names = [f"n{number}" for number in range(random.randint(1, 5))]
    return Scene(
        nodes=[cluster.node(name) for name in names],
        running=[cluster.running_pod(f"p{n}", names) for n in range(random.randint(0, 6))],
        pod=cluster.incoming_pod("incoming", names),
        profile=_profile(random, cluster, names),
    )


def _profile(random: Random, cluster: RandomCluster, names: list[str]) -> ReferenceProfile:
    def resources() -> list[str]:
        known = [*SCORED_RESOURCES, "pods", "example.com/none"]
        return random.sample(known, random.randint(1, 5))

    utilizations = sorted(random.sample(range(101), random.randint(1, 4)))
    return ReferenceProfile(
        added_affinity=cluster.node_affinity(names, with_mistakes=False),
        ignored_resources=cluster.several(lambda: cluster.one_of((GPU, "cpu", PAGES)), 2),
        ignored_resource_groups=cluster.several(
            lambda: cluster.one_of(("example.com", "example")), 1
        ),
        strategy=cluster.one_of(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        scored_resources={name: random.randint(1, 100) for name in resources()},
        shape=[(utilization, random.randint(0, 10)) for utilization in utilizations],
        balanced_resources=resources(),
    )


# A seed instead of one choice after another: a scene has hundreds of them, and hypothesis would
# spend its time on generating and shrinking them.
seeds = st.integers(0, 2**32 - 1)


# -- the same question to both -------------------------------------------------------------------


def _plugin(name: str, profile: ReferenceProfile) -> Any:
    """Build the plugin with the arguments that the profile gives the reference."""
    match name:
        case "NodeAffinity":
            return NodeAffinity(NodeAffinityArgs(added_affinity=profile.added_affinity))
        case "NodeResourcesFit":
            shape = tuple(UtilizationShapePoint(utilization=x, score=y) for x, y in profile.shape)
            strategy = ScoringStrategy(
                type=profile.strategy,
                resources=_specs_of(profile.scored_resources),
                requested_to_capacity_ratio=RequestedToCapacityRatioParam(shape=shape),
            )
            return NodeResourcesFit(
                NodeResourcesFitArgs(
                    ignored_resources=tuple(profile.ignored_resources),
                    ignored_resource_groups=tuple(profile.ignored_resource_groups),
                    scoring_strategy=strategy,
                )
            )
        case "NodeResourcesBalancedAllocation":
            resources = _specs_of(dict.fromkeys(profile.balanced_resources, 1))
            return NodeResourcesBalancedAllocation(
                NodeResourcesBalancedAllocationArgs(resources=resources)
            )
    simple = (NodeUnschedulable, NodeName, TaintToleration, NodePorts, ImageLocality)
    return next(kind for kind in simple if kind.name == name)()


def _specs_of(weights: Mapping[str, int]) -> tuple[ResourceSpec, ...]:
    return tuple(ResourceSpec(name=name, weight=weight) for name, weight in weights.items())


def _only(profile: ReferenceProfile, **plugins: Any) -> ReferenceProfile:
    return ReferenceProfile(**{**vars(profile), "filters": (), "weights": {}, **plugins})


@pytest.mark.parametrize("name", ReferenceProfile().filters)
@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_filters_agree_with_the_reference(name: str, seed: int) -> None:
    scene = _scene(seed)
    bench = PluginBench(scene.nodes, scene.running)
    expected = decide(scene.nodes, scene.by_node, scene.pod, _only(scene.profile, filters=(name,)))

    answers = bench.filter(_plugin(name, scene.profile), scene.pod)

    assert {
        node: (status.code.value, status.reasons)
        for node, status in answers.items()
        if not status.is_success
    } == {node: (one.code, one.reasons) for node, one in expected.rejections.items()}


@pytest.mark.parametrize("name", ReferenceProfile().weights)
@settings(max_examples=100, deadline=None)
@example(seed=195)  # an explicit zero in the status of a running pod
@given(seed=seeds)
def test_scores_agree_with_the_reference(name: str, seed: int) -> None:
    scene = _scene(seed)
    bench = PluginBench(scene.nodes, scene.running)
    expected = decide(
        scene.nodes, scene.by_node, scene.pod, _only(scene.profile, weights={name: 1})
    )

    answers = bench.score(_plugin(name, scene.profile), scene.pod)

    assert answers == {node: one[name] for node, one in expected.scores.items() if name in one}


@settings(max_examples=50, deadline=None)
@given(seed=seeds)
def test_one_row_gets_the_answer_it_gets_among_all(seed: int) -> None:
    """What the runtime catches up row by row is what it would have computed at once."""
    scene = _scene(seed)
    bench = PluginBench(scene.nodes, scene.running)
    pod, table = bench.pod_info(scene.pod), bench.snapshot.table
    rows = [table.some(np.array([row], np.intp)) for row in range(len(table))]

    for name in ReferenceProfile().filters:
        plugin, state = _plugin(name, scene.profile), CycleState()
        together = _statuses(plugin.filter_nodes(state, pod, table.all()))
        apart = [_statuses(plugin.filter_nodes(state, pod, row))[0] for row in rows]
        assert apart == together, name
    for name in ReferenceProfile().weights:
        plugin, state = _plugin(name, scene.profile), CycleState()
        if hasattr(plugin, "pre_score") and plugin.pre_score(state, pod, table.all()).is_skip:
            continue
        together = plugin.score_nodes(state, pod, table.all()).tolist()
        assert [plugin.score_nodes(state, pod, row).tolist()[0] for row in rows] == together, name


def _statuses(verdicts: Verdicts) -> list[Status]:
    return [(SUCCESS, *verdicts.statuses)[code] for code in verdicts.codes]

"""plugins/noderesources: least_allocated.go, most_allocated.go, requested_to_capacity_ratio.go.

Covers ``ksched.framework.plugins.node_resources.requests`` and
``ksched.framework.plugins.node_resources.scorers`` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.objects import Pod
from ksched.configuration.plugin_args import NodeResourcesFitArgs, ScoringStrategy
from ksched.errors import ConfigError
from ksched.framework.plugins.node_resources.fit import NodeResourcesFit
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_score

GPU = "example.com/gpu"
NODE = make_node("n").capacity(cpu="4", memory="32Gi")


def _plugin(strategy: str, **more: Any) -> NodeResourcesFit:
    data = {"scoringStrategy": {"type": strategy, **more}}
    return NodeResourcesFit(NodeResourcesFitArgs.model_validate(data))


def _ratio(*points: tuple[int, int], **more: Any) -> NodeResourcesFit:
    shape = [{"utilization": utilization, "score": score} for utilization, score in points]
    return _plugin("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape}, **more)


def _running(cpu: str, memory: str) -> list[Pod]:
    return [make_pod("running").req(cpu=cpu, memory=memory).node("n").obj()]


SMALL = make_pod().req(cpu="100m", memory="500Mi")
MEDIUM = make_pod().req(cpu="1", memory="1Gi")


@pytest.mark.parametrize(
    ("running", "pod", "least", "most"),
    [
        pytest.param([], SMALL, 97, 1, id="an empty node"),
        pytest.param(_running("2", "16Gi"), SMALL, 47, 51, id="half full"),
        pytest.param(_running("3", "4Gi"), MEDIUM, 42, 57, id="cpu runs out"),
        pytest.param(_running("1", "16Gi"), MEDIUM, 48, 51, id="memory ahead of cpu"),
        pytest.param([], make_pod(), 98, 1, id="a pod that asks for nothing counts all the same"),
        pytest.param(_running("4", "32Gi"), MEDIUM, 0, 100, id="overcommitted"),
    ],
)
def test_golden_numbers(running: list[Pod], pod: PodBuilder, least: int, most: int) -> None:
    nodes = [NODE.obj()]

    assert run_score(NodeResourcesFit(), pod.obj(), nodes, running) == {"n": least}
    assert run_score(_plugin("MostAllocated"), pod.obj(), nodes, running) == {"n": most}


@pytest.mark.parametrize(
    ("plugin", "score"),
    [
        pytest.param(_ratio((0, 0), (100, 10)), 52, id="half a point rounds up"),
        pytest.param(_ratio((0, 10), (100, 0)), 49, id="downhill"),
        pytest.param(_ratio((0, 0), (40, 10)), 100, id="beyond the last point"),
        pytest.param(_ratio((60, 3), (100, 10)), 30, id="before the first point"),
        pytest.param(
            _ratio((52, 0), (100, 10)), 0, id="a resource rated zero drops out of the average"
        ),
        pytest.param(_ratio((51, 0), (52, 10)), 100, id="so the other one decides alone"),
    ],
)
def test_requested_to_capacity_ratio_follows_its_shape(
    plugin: NodeResourcesFit, score: int
) -> None:
    """2100m of 4000m cpu is 52 %, 16884Mi of 32Gi memory is 51 %."""
    assert run_score(plugin, SMALL.obj(), [NODE.obj()], _running("2", "16Gi")) == {"n": score}


def test_descending_shapes_round_towards_the_point_on_the_left() -> None:
    """Go's division truncates: 100 + (-10 * 1) / 3 is 97, not 96."""
    plugin = _ratio((0, 10), (3, 9), (100, 9), resources=[{"name": "cpu"}])
    pod = make_pod().req(cpu="40m").obj()

    assert run_score(plugin, pod, [NODE.obj()]) == {"n": 97}


@pytest.mark.parametrize(
    ("resources", "pod", "score"),
    [
        pytest.param({"cpu": 3, "memory": 1}, MEDIUM.req(cpu="2", memory=0), 62, id="weights"),
        pytest.param(
            {"cpu": 1, GPU: 1}, make_pod().req(cpu="2"), 50, id="unrequested scalars do not count"
        ),
        pytest.param(
            {"cpu": 1, GPU: 1}, make_pod().req({GPU: 1}, cpu="2"), 62, id="requested ones do"
        ),
        pytest.param(
            {"cpu": 1, "example.com/tpu": 9},
            make_pod().req({"example.com/tpu": 1}, cpu="2"),
            50,
            id="a node without the resource is rated by the others",
        ),
        pytest.param({"example.com/tpu": 1}, make_pod(), 0, id="nothing to rate by"),
        pytest.param(
            {"ephemeral-storage": 1},
            make_pod().req(ephemeral_storage="1Gi"),
            50,
            id="ephemeral storage",
        ),
        pytest.param({"pods": 1}, make_pod(), 0, id="places are not a resource here"),
    ],
)
def test_the_configured_resources_count(
    resources: dict[str, int], pod: PodBuilder, score: int
) -> None:
    listed = [{"name": name, "weight": weight} for name, weight in resources.items()]
    node = NODE.capacity({GPU: 4}, ephemeral_storage="2Gi").obj()

    assert run_score(_plugin("LeastAllocated", resources=listed), pod.obj(), [node]) == {"n": score}


def test_a_resource_named_twice_counts_twice() -> None:
    listed = [{"name": "cpu", "weight": 1}, {"name": "memory"}, {"name": "cpu", "weight": 2}]
    pod = make_pod().req(cpu="2", memory=0).obj()

    assert run_score(_plugin("LeastAllocated", resources=listed), pod, [NODE.obj()]) == {"n": 62}


def test_every_container_that_asks_for_nothing_counts() -> None:
    two = make_pod().container()
    cpu = _plugin("MostAllocated", resources=[{"name": "cpu"}])
    running = [two.uid("running").node("n").obj()]

    assert run_score(cpu, two.obj(), [NODE.obj()], running) == {"n": 10}


def test_pod_level_requests_of_the_incoming_pod_are_ignored() -> None:
    """Upstream builds this scorer without pod-level resources, although the filter honours them."""
    cpu = _plugin("MostAllocated", resources=[{"name": "cpu"}])
    incoming = make_pod().req(cpu="1").pod_level_req(cpu="3")
    running = [make_pod("running").req(cpu="1").pod_level_req(cpu="2").node("n").obj()]

    assert run_score(cpu, incoming.obj(), [NODE.obj()], running) == {"n": 75}


def test_pod_level_huge_pages_are_ignored_too() -> None:
    pages = "hugepages-2Mi"
    plugin = _plugin("MostAllocated", resources=[{"name": pages}])
    incoming = make_pod().req({pages: "2Mi"}).pod_level_req({pages: "8Mi"})

    score = run_score(plugin, incoming.obj(), [NODE.capacity({pages: "8Mi"}).obj()])

    assert score == {"n": 25}


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        pytest.param(ScoringStrategy(type="Best"), 'Unsupported value: "Best"', id="unknown"),
        pytest.param(
            ScoringStrategy(type="RequestedToCapacityRatio"), "at least one point", id="no shape"
        ),
    ],
)
def test_a_strategy_that_makes_no_sense_stops_the_start(
    strategy: ScoringStrategy, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=strategy))

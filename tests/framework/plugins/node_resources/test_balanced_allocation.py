"""plugins/noderesources/balanced_allocation.go: balancedResourceScorer (the formula of v1.36)."""

from __future__ import annotations

import pytest

from ksched.api.objects import Pod
from ksched.configuration.plugin_args import NodeResourcesBalancedAllocationArgs, ResourceSpec
from ksched.framework.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_score

GPU = "example.com/gpu"
NODE = make_node("n").capacity(cpu="4", memory="32Gi")


def _plugin(*resources: str) -> NodeResourcesBalancedAllocation:
    listed = tuple(ResourceSpec(name=name) for name in resources)
    return NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(resources=listed))


def _running(cpu: str, memory: str) -> list[Pod]:
    return [make_pod("running").req(cpu=cpu, memory=memory).node("n").obj()]


SMALL = make_pod().req(cpu="100m", memory="500Mi")
MEDIUM = make_pod().req(cpu="1", memory="1Gi")


@pytest.mark.parametrize(
    ("running", "pod", "scores"),
    [
        pytest.param([], SMALL, {"n": 74}, id="an empty node"),
        pytest.param(_running("2", "16Gi"), SMALL, {"n": 74}, id="half full"),
        pytest.param(_running("3", "4Gi"), MEDIUM, {"n": 69}, id="makes it worse"),
        pytest.param(_running("1", "16Gi"), MEDIUM, {"n": 80}, id="makes it better"),
        pytest.param([], make_pod(), {}, id="a pod that asks for nothing is skipped"),
        pytest.param(
            [], make_pod().req({GPU: 1}), {}, id="a pod that asks for something else is skipped"
        ),
        pytest.param([], make_pod().req(cpu="4"), {"n": 50}, id="as bad as it gets"),
        pytest.param(_running("4", "0"), make_pod().req(memory="32Gi"), {"n": 100}, id="as good"),
        pytest.param(_running("4", "0"), make_pod().req(cpu="4"), {"n": 75}, id="full is full"),
        pytest.param(
            _running("1", "8Gi"),
            make_pod().req(cpu="1").pod_level_req(cpu="1", memory="8Gi"),
            {"n": 75},
            id="pod-level requests count",
        ),
    ],
)
def test_golden_numbers(running: list[Pod], pod: PodBuilder, scores: dict[str, int]) -> None:
    plugin = NodeResourcesBalancedAllocation()

    assert run_score(plugin, pod.obj(), [NODE.obj()], running) == scores


@pytest.mark.parametrize(
    ("resources", "pod", "score"),
    [
        pytest.param(("cpu",), MEDIUM, 75, id="one resource is always balanced"),
        pytest.param(("cpu", "memory", GPU), MEDIUM, 69, id="an unrequested scalar does not count"),
        pytest.param(
            ("cpu", "memory", GPU),
            make_pod().req({GPU: 2}, cpu="2", memory="16Gi"),
            75,
            id="three resources, all half used",
        ),
        pytest.param(
            # Shares 0.25, 0.03125 and 0.5: standard deviation 0.19139, balance 80.
            ("cpu", "memory", GPU),
            MEDIUM.req({GPU: 2}),
            65,
            id="three resources, unevenly used",
        ),
        pytest.param(
            ("cpu", "memory", "example.com/tpu"),
            MEDIUM.req({"example.com/tpu": 1}),
            69,
            id="a resource the node lacks does not count",
        ),
    ],
)
def test_the_configured_resources_count(
    resources: tuple[str, ...], pod: PodBuilder, score: int
) -> None:
    node = NODE.capacity({GPU: 4}).obj()

    assert run_score(_plugin(*resources), pod.obj(), [node]) == {"n": score}

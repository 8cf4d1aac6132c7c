"""Amounts at the ends of what an API server admits, decided by columns and by the reference.

The reference counts in Python's integers, which have no end. A cluster changes step by step, so
that sums which left the range of an int64 come back into it.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ksched.api.objects import ContainerImage, ContainerStatus, Node, Pod, ResourceRequirements
from ksched.configuration.loading import load_config
from ksched.testing import make_node, make_pod
from ksched.testing.virtual_time import run
from lab.decider import Decider, Verdict
from lab.reference import DEFAULT_PROFILE, ReferenceProfile, World, decide
from lab.reference.preemption import preempt

LARGEST = 2**63 - 1
GPU = "example.com/gpu"
RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU)
QUANTITIES = (
    *("0", "1n", "1", "100m", "1500m", "4", "200Mi", "8Gi", "1Pi", "7Ei", "8Ei", "1e18", "1e400"),
    *("9223372036854775807", "9223372036854775806", "9223372036854775807m"),
    *("9223372036854775807Ei", "9223372036854775.807", "0." + "0" * 5000 + "1", "9" * 5000),
    *(str(LARGEST // 100 + step) for step in (-1, 0, 1)),
    *(str(LARGEST // 99), str(LARGEST // 2), str(LARGEST // 2 + 1)),
)
NONSENSE = ("-1", "-4", "-9223372036854775808", "-1e400", "-9223372036854775807Ei")
IMAGE_SIZES = (-(2**63), -1, 0, 20 << 20, 900 << 20, LARGEST // 100, LARGEST)
SHAPE = ((0, 0), (50, 7), (100, 10))
SEEDS = st.integers(0, 2**32 - 1)
RATIO = "RequestedToCapacityRatio"
STRATEGIES = ("LeastAllocated", "MostAllocated", RATIO)


def _quantity(rng: Random, *, nonsense: bool = False) -> str:
    if nonsense and rng.random() < 0.1:
        return rng.choice(NONSENSE)
    if rng.random() < 0.3:
        return str(rng.getrandbits(rng.randint(1, 64)))
    return rng.choice(QUANTITIES)


def _node(rng: Random, name: str) -> Node:
    allocatable = {
        resource: _quantity(rng, nonsense=True) for resource in RESOURCES if rng.random() < 0.9
    }
    pods = rng.choice(("110", "110", "110", "0", "-1", "9223372036854775807", "1e400"))
    node = make_node(name).capacity({**allocatable, "pods": pods}).obj()
    # Every node reports the same size: whose report comes first is the cache's affair.
    images = [
        ContainerImage(names=[f"image{size}:latest"], size_bytes=size)
        for size in IMAGE_SIZES
        if rng.random() < 0.7
    ]
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))


def _pod(rng: Random, name: str, node_name: str = "") -> Pod:
    builder = make_pod(name).image(f"image{rng.choice(IMAGE_SIZES)}:latest")
    requests = {resource: _quantity(rng) for resource in RESOURCES if rng.random() < 0.4}
    builder = builder.req(requests).priority(rng.choice((-(2**31), 0, 2**31 - 1)))
    pod = (builder.node(node_name) if node_name else builder).obj()
    if node_name and rng.random() < 0.3:
        status = ContainerStatus(
            name=pod.spec.containers[0].name,
            resources=ResourceRequirements(requests={"memory": _quantity(rng, nonsense=True)}),
            allocated_resources={"memory": _quantity(rng, nonsense=True)},
        )
        statuses = msgspec.structs.replace(pod.status, container_statuses=[status])
        pod = msgspec.structs.replace(pod, status=statuses)
    return pod


class Cluster:
    """A cluster as the cache sees it, and as plain lists for the reference."""

    def __init__(self, seed: int, strategy: str = "LeastAllocated") -> None:
        self.rng = Random(seed)
        self.decider = Decider(load_config(_config(strategy)), seed=seed)
        self.profile = ReferenceProfile(
            filters=DEFAULT_PROFILE.filters,
            weights=DEFAULT_PROFILE.weights,
            strategy=strategy,
            scored_resources=dict.fromkeys(RESOURCES, 1),
            balanced_resources=RESOURCES,
            shape=SHAPE,
        )
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        for number in range(self.rng.randint(1, 4)):
            self.put_node(f"n{number}")

    def put_node(self, name: str) -> None:
        self.nodes[name] = _node(self.rng, name)
        self.decider.cache.add_node(self.nodes[name])

    def add_pod(self, name: str) -> None:
        pod = _pod(self.rng, name, self.rng.choice([*self.nodes]))
        self.pods[pod.metadata.uid] = pod
        self.decider.cache.add_pod(self.decider.cache.pod_info(pod))

    def change(self, step: int) -> None:
        choice = self.rng.random()
        if choice < 0.2:
            self.put_node(self.rng.choice([*self.nodes]))
        elif choice < 0.5 and self.pods:
            uid = self.rng.choice([*self.pods])
            del self.pods[uid]
            self.decider.cache.remove_pod(uid)
        else:
            self.add_pod(f"p{step}")

    @property
    def by_node(self) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {name: [] for name in self.nodes}
        for pod in self.pods.values():
            by_node[pod.spec.node_name].append(pod)
        return by_node

    def judge(self, pod: Pod) -> Verdict:
        """Decide twice, and see that both agree."""
        nodes = list(self.nodes.values())
        verdict = run(self.decider.decide(pod))
        wanted = decide(nodes, self.by_node, pod, self.profile)
        assert verdict.feasible == wanted.scores.keys()
        if len(verdict.feasible) > 1:
            assert verdict.scores == wanted.scores
        return verdict


def _config(strategy: str) -> str:
    resources = ", ".join(f"{{name: {name}, weight: 1}}" for name in RESOURCES)
    shape = ", ".join(f"{{utilization: {x}, score: {y}}}" for x, y in SHAPE)
    ratio = f"requestedToCapacityRatio: {{shape: [{shape}]}}" if strategy == RATIO else ""
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: {strategy}
        resources: [{resources}]
        {ratio}
  - name: NodeResourcesBalancedAllocation
    args:
      resources: [{resources}]
"""


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_the_largest_amounts_are_decided_as_by_the_reference(strategy: str, seed: int) -> None:
    cluster = Cluster(seed, strategy)
    waiting = [_pod(cluster.rng, f"waiting{number}") for number in range(3)]
    for step in range(8):
        cluster.change(step)
        for pod in waiting:
            cluster.judge(pod)


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_the_largest_amounts_are_evicted_as_by_the_reference(seed: int) -> None:
    cluster = Cluster(seed)
    for step in range(cluster.rng.randint(1, 8)):
        cluster.add_pod(f"p{step}")
    pod = _pod(cluster.rng, "waiting")
    expected: dict[str, list[Pod]] = {}
    for number in range(cluster.rng.choice((0, 0, 1, 2))):
        other = _pod(cluster.rng, f"nominated{number}")
        name = cluster.rng.choice([*cluster.nodes])
        expected.setdefault(name, []).append(other)
        cluster.decider.nominator.add(cluster.decider.cache.pod_info(other), name)
    nodes = list(cluster.nodes.values())

    if expected:
        verdict = run(cluster.decider.decide(pod))
    else:
        verdict = cluster.judge(pod)

    if not verdict.feasible:
        wanted = preempt(World(nodes, cluster.by_node, pod, DEFAULT_PROFILE), (), expected)
        choices = wanted.choices
        assert bool(verdict.nominated) == bool(choices)
        if choices:
            assert verdict.victims == choices[verdict.nominated or ""]


@example(memory=LARGEST // 99)
@given(memory=st.integers(-(2**64), 2**64))
def test_a_node_of_any_size_takes_part_in_the_score_of_all(memory: int) -> None:
    """A score out of range would be an error of the attempt, and no pod would be placed."""
    decider = Decider()
    decider.set_cluster(
        [
            make_node("odd").capacity(cpu="4", memory=str(memory), pods="110").obj(),
            make_node("n1").capacity(cpu="4", memory="8Gi", pods="110").obj(),
            make_node("n2").capacity(cpu="4", memory="8Gi", pods="110").obj(),
        ]
    )

    verdict = run(decider.decide(make_pod("web").req(cpu="1").obj()))

    assert verdict.feasible == {"odd", "n1", "n2"}
    assert all(0 <= total <= 1500 for total in verdict.totals.values())

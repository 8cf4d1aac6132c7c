"""Random full clusters and pods that could only be placed at somebody's expense.

Everything is valid for an API server, so that the same case can be decided by several schedulers;
nothing hangs on when a pod was created. Values come from small sets, so that candidates are equal
in some criteria and differ in others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from ksched.api.objects import PodDisruptionBudget
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod

NAMESPACE: Final = "preempt"
PRIORITIES: Final = (0, 10, 50, 100, 1000)
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
PORT: Final = 8080
_APPS = ("a", "b", "c")
_CPU_MILLIS = (500, 500, 1000, 1000, 1500, 2000)


@dataclass(frozen=True)
class Budget:
    """A PodDisruptionBudget for the pods of an application, and what its controller would say."""

    app: str
    allowed: int
    disrupted: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"budget-{self.app}", "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": self.app}}},
        }

    @property
    def status(self) -> dict[str, Any]:
        disrupted = dict.fromkeys(self.disrupted, "2026-01-01T00:00:00Z")
        return {"disruptionsAllowed": self.allowed, "disruptedPods": disrupted}

    def obj(self) -> PodDisruptionBudget:
        return msgspec.convert({**self.to_dict(), "status": self.status}, PodDisruptionBudget)


@dataclass(frozen=True)
class Case:
    """A cluster and a pod that wants in."""

    nodes: tuple[NodeBuilder, ...]
    pods: tuple[PodBuilder, ...]
    """Bound and started."""
    budgets: tuple[Budget, ...]
    pod: PodBuilder


def random_case(random: Random) -> Case:
    nodes = tuple(_node(random, number) for number in range(random.choice((2, 3, 5, 8))))
    pods: list[PodBuilder] = []
    # Rare, because one pod that objects makes every node a matter of affinity.
    objecting = random.choice((0, 0, 0, 0.1))
    for number in range(len(nodes)):
        pods += _pods_of_node(random, f"n{number}", len(pods), objecting)
    names = [pod.to_dict()["metadata"]["name"] for pod in pods]
    budgets = tuple(
        Budget(app, random.choice((0, 0, 1, 2)), _some(random, names, 0.05))
        for app in _APPS
        if random.random() < 0.4
    )
    return Case(nodes, tuple(pods), budgets, _incoming(random))


def _some(random: Random, names: list[str], share: float) -> tuple[str, ...]:
    return tuple(name for name in names if random.random() < share)


def _node(random: Random, number: int) -> NodeBuilder:
    node = make_node(f"n{number}").capacity(cpu="4", memory="8Gi", pods=random.choice(("4", "20")))
    node = node.label({ZONE: f"z{number % 2}", "disk": random.choice(("ssd", "hdd"))})
    if random.random() < 0.1:
        node = node.taint("team", "x")
    return node


def _pods_of_node(random: Random, node_name: str, first: int, objecting: float) -> list[PodBuilder]:
    """Pods that leave at most half a core, and share no host port."""
    pods: list[PodBuilder] = []
    free, is_port_free = 4000, True
    # No two at the same time on one node: which of them goes first would be anybody's guess.
    days = random.sample(range(1, 13), 8)
    while free > random.choice((0, 500)):
        cpu = min(random.choice(_CPU_MILLIS), free)
        free -= cpu
        pod = make_pod(f"v{first + len(pods)}", NAMESPACE).req(cpu=f"{cpu}m")
        pod = pod.priority(random.choice(PRIORITIES[:4] if random.random() < 0.9 else PRIORITIES))
        pod = pod.node(node_name).started(f"2026-01-{days[len(pods)]:02}T00:00:00Z")
        if random.random() < 0.95:
            pod = pod.label(app=random.choice(_APPS))
        if is_port_free and random.random() < 0.15:
            pod, is_port_free = pod.host_port(PORT), False
        if random.random() < 0.3:
            pod = pod.req(memory=random.choice(("1Gi", "2Gi")))
        if random.random() < objecting:
            pod = pod.pod_anti_affinity(random.choice((HOSTNAME, ZONE)), {"app": "q"})
        pods.append(pod)
    return pods


def _incoming(random: Random) -> PodBuilder:
    pod = make_pod("q", NAMESPACE).label(app="q").req(cpu=random.choice(("1", "2", "3", "4")))
    pod = pod.priority(random.choice((50, 100, 1000, 1000)))
    if random.random() < 0.05:
        pod = pod.preemption_policy("Never")
    if random.random() < 0.2:
        pod = pod.req(memory=random.choice(("2Gi", "8Gi", "9Gi")))
    if random.random() < 0.15:
        pod = pod.host_port(PORT)
    if random.random() < 0.2:
        key = random.choice((HOSTNAME, HOSTNAME, ZONE))
        pod = pod.pod_anti_affinity(key, {"app": random.choice(_APPS)})
    if random.random() < 0.1:
        pod = pod.pod_affinity(ZONE, {"app": random.choice(_APPS)})
    if random.random() < 0.15:
        labels = {"app": random.choice(_APPS)}
        pod = pod.spread(random.choice((HOSTNAME, ZONE)), labels, max_skew=random.choice((1, 2)))
    if random.random() < 0.1:
        pod = pod.node_selector(disk="ssd")
    return pod.toleration("team") if random.random() < 0.3 else pod

"""A random cluster from a seed: nodes, pods that run on them, and pods to be scheduled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.conformance.vocabulary import Vocabulary

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONES: Final = ("a", "b", "c")
APPS: Final = ("web", "db", "batch")
IMAGES: Final = ("registry.example.com/web:1", "registry.example.com/db:2")
TAINT: Final = "example.com/dedicated"
GPU: Final = "example.com/gpu"
PRIORITIES: Final = {"": 0, "low": 10, "high": 1000}
"""By the name of the class."""
PODS_PER_NODE: Final = 2
DISTINCT: Final = 200
"""So many nodes and running pods are made; in a larger cluster there are copies of them."""


class RandomCluster(Struct, frozen=True):
    """The same seed, size and vocabulary make the same cluster."""

    seed: int
    nodes: list[NodeBuilder]
    running: list[PodBuilder]
    """Pods with a node."""
    pending: list[PodBuilder]
    """Pods to be scheduled; several of each template."""

    @property
    def priority_classes(self) -> list[dict[str, Any]]:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        return [
            {**kind, "metadata": {"name": name}, "value": value}
            for name, value in PRIORITIES.items()
            if name
        ]


def random_cluster(
    seed: int, nodes: int, pending: int = 24, words: Vocabulary | None = None
) -> RandomCluster:
    maker = _Maker(random.Random(seed), words or Vocabulary())
    kinds = [maker.node("n") for _ in range(min(nodes, DISTINCT))]
    made = [_named(kinds[number % DISTINCT], f"n{number}") for number in range(nodes)]
    templates = [maker.running() for _ in range(min(nodes * PODS_PER_NODE, DISTINCT))]
    running = [
        templates[number % DISTINCT].merge(
            {
                "metadata": {"name": f"r{number}", "uid": f"uid:default/r{number}"},
                "spec": {"nodeName": f"n{maker.rng.randrange(nodes)}"},
            }
        )
        for number in range(nodes * PODS_PER_NODE)
    ]
    return RandomCluster(seed, made, running, list(maker.pending(pending)))


def _named(node: NodeBuilder, name: str) -> NodeBuilder:
    return node.merge(
        {"metadata": {"name": name, "uid": f"uid:{name}", "labels": {HOSTNAME: name}}}
    )


class _Maker:
    def __init__(self, rng: random.Random, words: Vocabulary) -> None:
        self.rng = rng
        self._words = words

    def node(self, name: str) -> NodeBuilder:
        rng = self.rng
        node = make_node(name).capacity(
            cpu=str(rng.choice((2, 4, 8, 16))), memory=f"{rng.choice((4, 8, 32))}Gi"
        )
        node = node.label({ZONE: rng.choice(ZONES), **self._labels()})
        node = node.annotation(self._labels())
        if self._happens(0.2):
            node = node.capacity({GPU: "4"})
        for key in self._words.prefixed:
            if self._happens(0.3):
                node = node.capacity({key: "4"})
            if self._happens(0.1):
                node = node.taint(key, rng.choice(self._words.values))
        if self._happens(0.2):
            node = node.taint(TAINT, rng.choice(APPS), rng.choice(("NoSchedule", "NoExecute")))
        if self._happens(0.2):
            node = node.taint(TAINT, "", "PreferNoSchedule")
        if self._happens(0.3):
            node = node.image(rng.choice(IMAGES), rng.randrange(1, 900) * 1_000_000)
        return node.unschedulable() if self._happens(0.05) else node

    def running(self) -> PodBuilder:
        pod = self._plain("r")
        return pod.host_port(self.rng.choice((80, 443))) if self._happens(0.1) else pod

    def pending(self, count: int) -> Iterator[PodBuilder]:
        """Pods of templates of one, two and three pods, one after the other."""
        number = 0
        while number < count:
            template = self._template()
            for _ in range(min(self.rng.choice((1, 2, 3)), count - number)):
                data = template.to_dict()
                name = f"p{number}"
                identity = {"name": name, "uid": f"uid:default/{name}"}
                yield PodBuilder(data).merge({"metadata": identity})
                number += 1

    def _plain(self, name: str) -> PodBuilder:
        rng = self.rng
        app = rng.choice(APPS)
        pod = make_pod(name).label({"app": app, **self._labels()}).annotation(self._labels())
        pod = pod.owner("ReplicaSet", f"{app}-rs").image(rng.choice(IMAGES))
        name = rng.choice(("", "", *PRIORITIES))
        if name:
            spec = {"priorityClassName": name, "priority": PRIORITIES[name]}
            pod = pod.merge({"spec": spec})
        if self._happens(0.8):
            pod = pod.req(cpu=f"{rng.choice((50, 200, 700, 1900))}m")
        if self._happens(0.8):
            pod = pod.req(memory=f"{rng.choice((64, 300, 900, 2500))}Mi")
        return pod

    def _template(self) -> PodBuilder:
        rng, pod = self.rng, self._plain("p")
        app = rng.choice(APPS)
        if self._happens(0.15):
            pod = _with_device(pod, rng.choice((GPU, *self._words.prefixed)))
        if self._happens(0.2):
            pod = pod.node_selector({ZONE: rng.choice(ZONES)})
        if self._happens(0.3):
            pod = pod.toleration(rng.choice(("", TAINT, *self._words.prefixed)))
        if self._happens(0.2):
            pod = pod.host_port(rng.choice((80, 443)))
        if self._happens(0.2):
            pod = pod.preferred_node_affinity(rng.randrange(1, 100), (ZONE, "In", ["a"]))
        if self._happens(0.2):
            pod = pod.required_node_affinity((ZONE, "NotIn", [rng.choice(ZONES)]))
        if self._happens(0.2):
            pod = pod.pod_anti_affinity(HOSTNAME, {"app": app})
        if self._happens(0.2):
            pod = pod.pod_affinity(ZONE, {"app": app}, weight=rng.randrange(1, 100))
        if self._happens(0.2):
            how = rng.choice(("DoNotSchedule", "ScheduleAnyway"))
            pod = pod.spread(ZONE, {"app": app}, max_skew=2, when_unsatisfiable=how)
        return pod

    def _labels(self) -> dict[str, str]:
        return {
            key: self.rng.choice(self._words.values)
            for key in self._words.keys
            if self._happens(0.5)
        }

    def _happens(self, probability: float) -> bool:
        return self.rng.random() < probability


def _with_device(pod: PodBuilder, resource: str) -> PodBuilder:
    """Extended resources are requested and limited alike."""
    data = pod.req({resource: "1"}).to_dict()
    data["spec"]["containers"][-1]["resources"]["limits"] = {resource: "1"}
    return PodBuilder(data)

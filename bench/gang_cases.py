"""The cases of ``python -m bench.gangs``: clusters, what runs there, and the gangs that come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bench.workloads import NAMESPACE, Object, node, pod

RACK = "example.com/rack"
FILLER_NAMESPACE = "fill"
LOW, HIGH = "low", "high"
PRIORITIES = {LOW: 1, HIGH: 1000}
GATES = ("GenericWorkload", "GangScheduling")
TOPOLOGY_GATE = "TopologyAwareWorkloadScheduling"
PREEMPTION_GATE = "WorkloadAwarePreemption"
ALL_GATES = (*GATES, TOPOLOGY_GATE, PREEMPTION_GATE)

FRAGMENTS = (20, 24, 26, 28, 30)
"""CPUs in use on the nodes in turn: 80 % of all, and on every fifth node too little is left."""


@dataclass(frozen=True)
class Case:
    """Gangs that come to a cluster at once."""

    name: str
    gangs: int
    size: int
    cpu: str = "100m"
    nodes: int = 5000
    node_cpu: int = 32
    racks: int = 0
    """Every gang has to stay in one of so many racks."""
    fragments: bool = False
    """Whether nodes are in use as FRAGMENTS says."""
    evictable_per_node: int = 0
    """Pods of a low priority on every node; the gangs have a high one."""
    evictable_cpu: int = 0

    @property
    def pods(self) -> int:
        return self.gangs * self.size

    def smaller(self, part: int) -> Case:
        """A case of the same kind with a part of the nodes and of the pods."""
        gangs, size = self.gangs, self.size
        if gangs >= part:
            gangs //= part
        else:
            size //= part
        kind = self.name.split()[0]
        nodes = self.nodes // part
        return replace(self, name=f"{kind} {gangs}x{size}", gangs=gangs, size=size, nodes=nodes)

    @property
    def gates(self) -> tuple[str, ...]:
        """What kube-scheduler needs for it."""
        more = [TOPOLOGY_GATE] if self.racks else []
        more += [PREEMPTION_GATE] if self.evictable_per_node else []
        return (*GATES, *more)

    def node(self, index: int) -> Object:
        body = node(index)
        for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
            amounts["cpu"] = str(self.node_cpu)
        if self.racks:
            body["metadata"]["labels"][RACK] = f"rack-{index % self.racks}"
        return body

    def fillers(self) -> Iterator[Object]:
        """The pods that run there before."""
        for index in range(self.nodes):
            if self.fragments:
                yield _filler(index, 0, FRAGMENTS[index % len(FRAGMENTS)])
            for number in range(self.evictable_per_node):
                filler = _filler(index, number, self.evictable_cpu)
                filler["spec"]["priorityClassName"] = LOW
                yield filler

    def objects(self) -> list[Object]:
        """The PodGroups."""
        return [self._pod_group(number) for number in range(self.gangs)]

    def members(self) -> Iterator[tuple[str, Object]]:
        """The pods, each with the name of its gang, one gang after the other."""
        for number in range(self.gangs):
            for index in range(self.size):
                yield gang_name(number), member(number, index, self.cpu, self._priority)

    @property
    def _priority(self) -> str:
        return HIGH if self.evictable_per_node else ""

    def _pod_group(self, number: int) -> Object:
        body = pod_group(number, self.size)
        if self.racks:
            body["spec"]["schedulingConstraints"] = {"topology": [{"key": RACK}]}
        if self._priority:
            body["spec"]["priorityClassName"] = self._priority
        return body


def switched_on(gates: Iterable[str]) -> str:
    """The flag that turns gates on."""
    return "--feature-gates=" + ",".join(f"{gate}=true" for gate in gates)


def gang_name(number: int) -> str:
    return f"g{number:05d}"


def pod_group(number: int, minimum: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": gang_name(number), "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def member(number: int, index: int, cpu: str, priority: str = "") -> Object:
    """A pod of a gang."""
    body = pod(index, "basic")
    body["metadata"]["name"] = f"{gang_name(number)}-{index:05d}"
    body["metadata"]["labels"]["app"] = "gang"
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    body["spec"]["schedulingGroup"] = {"podGroupName": gang_name(number)}
    if priority:
        body["spec"]["priorityClassName"] = priority
    return body


def priority_class(name: str) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": PRIORITIES[name],
    }


def _filler(index: int, number: int, cpu: int) -> Object:
    """A pod that runs on node ``index``."""
    body = pod(index, "basic")
    body["metadata"] |= {"name": f"fill-{index:05d}-{number}", "namespace": FILLER_NAMESPACE}
    body["metadata"]["labels"]["app"] = "filler"
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
    body["spec"]["nodeName"] = node(index)["metadata"]["name"]
    return body


def _shapes(prefix: str, sizes: tuple[tuple[int, int], ...], **more: object) -> list[Case]:
    return [
        Case(f"{prefix} {gangs}x{size}", gangs, size, **more)  # type: ignore[arg-type]
        for gangs, size in sizes
    ]


SHAPES = ((1000, 3), (100, 30), (10, 300), (1, 3000))
PERF_SHAPES = ((10_000, 1), (500, 20), (20, 500), (1, 10_000))
"""Of kube-scheduling-perf."""
CASES = {
    one.name.replace(" ", "-"): one
    for one in (
        *_shapes("empty", SHAPES),
        Case("empty 1x5000", 1, 5000),
        *_shapes("full", SHAPES, cpu="3", fragments=True),
        Case("rack 1x1000", 1, 1000, cpu="1", racks=100),
        Case("evict 10x10", 10, 10, "12", nodes=100, evictable_per_node=10, evictable_cpu=3),
        Case("evict 1x500", 1, 500, "16", evictable_per_node=4, evictable_cpu=7),
        *_shapes("perf", PERF_SHAPES, nodes=1000, node_cpu=128),
    )
}
HOPELESS_GANGS, HOPELESS_SIZE, HOPELESS_CPU = 1000, 10, "1000"

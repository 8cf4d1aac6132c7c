"""A node and the summed resources of its pods."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

from ksched.api.objects import Node
from ksched.api.pod_resources import is_scalar_resource_name
from ksched.api.quantity import milli_value, value
from ksched.cache.late_copies import PodsByUid
from ksched.cache.pod_info import HostPort, PodInfo, PodTemplate
from ksched.cache.resource_axis import CPU, MEMORY, Demand, ResourceAxis
from ksched.errors import InvalidObject

K = TypeVar("K")
Amounts = tuple[tuple[int, ...], int, tuple[int, ...], int, int, int]

_versions = itertools.count(1)


class NodeInfo:
    """One node, its pods, and their sums, updated incrementally.

    Sums are exact integers without an upper limit, so that every addition can be undone. Nothing is
    negative.

    ``node`` is ``None`` for a ghost: pods are assigned to a node that does not exist (yet or any
    more). Ghosts are never published to a snapshot.
    """

    __slots__ = (
        "_amounts",
        "_pods",
        "allocatable",
        "allowed_pods",
        "axis",
        "claims",
        "images",
        "name",
        "node",
        "non_zero_cpu",
        "non_zero_memory",
        "pods_with_affinity",
        "pods_with_required_anti_affinity",
        "requested",
        "running",
        "terminating",
        "used_ports",
        "version",
    )

    def __init__(self, name: str, axis: ResourceAxis) -> None:
        self.name = name
        self.axis = axis
        self.version = next(_versions)
        """Another number for every copy: a published node with the same version is unchanged."""
        self._amounts: Amounts | None = None
        self.node: Node | None = None
        self.allocatable: list[int] = []
        self.allowed_pods = 0
        self.images: dict[str, int] = {}
        """Size in bytes of every image name present on the node."""
        self._pods = PodsByUid()
        self.requested: list[int] = [0] * len(axis)
        self.non_zero_cpu = 0
        self.non_zero_memory = 0
        self.used_ports: dict[HostPort, int] = {}
        self.claims: dict[str, int] = {}
        self.running: dict[PodTemplate, int] = {}
        """Number of pods by template, without terminating ones."""
        self.terminating: dict[PodTemplate, int] = {}
        self.pods_with_affinity: dict[str, PodInfo] = {}
        self.pods_with_required_anti_affinity: dict[str, PodInfo] = {}

    @property
    def pods(self) -> dict[str, PodInfo]:
        """The pods by UID; where their number suffices, ``num_pods`` costs less."""
        return self._pods.pods

    @property
    def num_pods(self) -> int:
        """``len(pods)``, at no cost in a copy that nothing else is read from."""
        return self._pods.count

    @property
    def labels(self) -> dict[str, str]:
        return self.node.metadata.labels if self.node is not None else {}

    @property
    def amounts(self) -> Amounts:
        """Everything a verdict of scope RESOURCES may read, as one comparable value."""
        if self._amounts is None:
            self._amounts = (
                tuple(self.allocatable),
                self.allowed_pods,
                tuple(self.requested),
                self.non_zero_cpu,
                self.non_zero_memory,
                self._pods.count,
            )
        return self._amounts

    def allocatable_of(self, resource: str) -> int:
        return _at(self.allocatable, self.axis.find(resource))

    def requested_of(self, resource: str) -> int:
        return _at(self.requested, self.axis.find(resource))

    def set_node(self, node: Node) -> None:
        """Set the node object. Raises ``InvalidObject`` for an unparsable quantity."""
        allocatable: list[int] = []
        allowed_pods = 0
        for resource, quantity in node.status.allocatable.items():
            try:
                if resource == "pods":
                    allowed_pods = max(value(quantity), 0)
                    continue
                amount = milli_value(quantity) if resource == "cpu" else value(quantity)
            except ValueError as problem:
                path = f"status.allocatable[{resource}]: {problem}"
                raise InvalidObject("Node", self.name, path) from None
            position = self._position(resource)
            if position >= 0:
                allocatable.extend([0] * (position + 1 - len(allocatable)))
                allocatable[position] = max(amount, 0)
        images = {
            name: max(image.size_bytes, 0)
            for image in node.status.images or ()
            for name in image.names or ()
        }
        self._amounts = None
        self.node, self.allocatable, self.allowed_pods = node, allocatable, allowed_pods
        self.images = images

    def _position(self, resource: str) -> int:
        """Return the axis position of a resource that the node offers; -1 if it is not counted."""
        position = self.axis.find(resource)
        if position >= 0 or not is_scalar_resource_name(resource):
            return position
        if self.axis.is_full:
            return -1
        return self.axis.intern(resource)

    def count_new_resources(self, demand: Demand, first: int) -> None:
        """Count a pod's requests for resources added to the axis from position ``first`` on."""
        self._amounts = None
        self._add(tuple(pair for pair in demand.pairs if pair[0] >= first), 1)

    def clear_node(self) -> None:
        """Become a ghost."""
        self._amounts = None
        self.node, self.allocatable, self.allowed_pods, self.images = None, [], 0, {}

    def add_pod(self, pod: PodInfo) -> None:
        """kube-scheduler: AddPodInfo."""
        self._count(pod, 1)
        self.replace_pod(pod)

    def replace_pod(self, pod: PodInfo) -> None:
        """Replace a pod by a newer version with the same template and demand."""
        self._pods.put(pod)
        if pod.template.has_pod_affinity:
            self.pods_with_affinity[pod.uid] = pod
            if pod.template.has_required_anti_affinity:
                self.pods_with_required_anti_affinity[pod.uid] = pod

    def change_phase(self, pod: PodInfo) -> None:
        """The same where it began to terminate or has another template; it comes after all others.

        Amounts, host ports and claims stay what they are.
        """
        old = self._forget(pod.uid)
        _count_each(self._phase_of(old), (old.template,), -1)
        _count_each(self._phase_of(pod), (pod.template,), 1)
        self.replace_pod(pod)

    def remove_pod(self, uid: str) -> PodInfo:
        """kube-scheduler: removeFromSlice."""
        pod = self._forget(uid)
        self._count(pod, -1)
        return pod

    def _forget(self, uid: str) -> PodInfo:
        self.pods_with_affinity.pop(uid, None)
        self.pods_with_required_anti_affinity.pop(uid, None)
        return self._pods.pop(uid)

    def _count(self, pod: PodInfo, sign: int) -> None:
        """kube-scheduler: updateUsedPorts, updatePVCRefCounts."""
        self._amounts = None
        self._add(pod.demand.pairs, sign)
        self.non_zero_cpu += sign * pod.non_zero[CPU]
        self.non_zero_memory += sign * pod.non_zero[MEMORY]
        template = pod.template
        _count_each(self._phase_of(pod), (template,), sign)
        if template.host_ports:
            _count_each(self.used_ports, template.host_ports, sign)
        if template.claim_names:
            keys = [f"{template.namespace}/{name}" for name in template.claim_names]
            _count_each(self.claims, keys, sign)

    def _phase_of(self, pod: PodInfo) -> dict[PodTemplate, int]:
        return self.terminating if pod.is_terminating else self.running

    def _add(self, pairs: tuple[tuple[int, int], ...], sign: int) -> None:
        requested = self.requested
        if pairs and pairs[-1][0] >= len(requested):
            requested.extend([0] * (pairs[-1][0] + 1 - len(requested)))
        for position, amount in pairs:
            requested[position] += sign * amount

    def clone(self) -> NodeInfo:
        """Return a copy that is independent of later changes.

        kube-scheduler: SnapshotConcrete.
        """
        copy = NodeInfo.__new__(NodeInfo)
        copy.name, copy.axis, copy.node = self.name, self.axis, self.node
        copy.version = next(_versions)
        copy._amounts = self._amounts
        # Replaced as a whole by set_node, never modified in place.
        copy.allocatable, copy.allowed_pods = self.allocatable, self.allowed_pods
        copy.images = self.images
        copy._pods = self._pods.copy()
        copy.requested = self.requested.copy()
        copy.non_zero_cpu, copy.non_zero_memory = self.non_zero_cpu, self.non_zero_memory
        copy.used_ports = self.used_ports.copy()
        copy.claims = self.claims.copy()
        copy.running = self.running.copy()
        copy.terminating = self.terminating.copy()
        copy.pods_with_affinity = self.pods_with_affinity.copy()
        copy.pods_with_required_anti_affinity = self.pods_with_required_anti_affinity.copy()
        return copy

    def __repr__(self) -> str:
        return f"<NodeInfo {self.name} pods={self.num_pods}>"


def _at(amounts: list[int], position: int) -> int:
    return amounts[position] if 0 <= position < len(amounts) else 0


def _count_each(counts: dict[K, int], keys: Iterable[K], sign: int) -> None:
    for key in keys:
        count = counts.get(key, 0) + sign
        if count:
            counts[key] = count
        else:
            del counts[key]

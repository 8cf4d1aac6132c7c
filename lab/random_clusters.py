"""Random nodes and pods that touch every rule, for comparing two implementations of the rules.

Values come from small sets, so that nodes and pods have much in common and boundaries are hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ksched.api.objects import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    ContainerStatus,
    ImageVolumeSource,
    Labels,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    Quantities,
    ResourceRequirements,
    Taint,
    Toleration,
    Volume,
)
from lab.chance import Chance

GPU: Final = "example.com/gpu"
PAGES: Final = "hugepages-2Mi"
THING: Final = "kubernetes.io/thing"
SCORED_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", GPU, PAGES, THING)

_LABELS = {"zone": ("a", "b"), "disk": ("ssd", "hdd", ""), "gen": ("1", "5", "x", "05", "10")}
_TAINT_KEYS = ("team", "node.kubernetes.io/unschedulable")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MIB = 1024 * 1024
# Every node reports the same size: whose report comes first is the cache's affair.
_IMAGE_SIZES = {"a:1": 20, "b:latest": 300, "r:5000/c:1": 950, "d:latest": 2000}
_IMAGE_NAMES = ("a:1", "b", "r:5000/c:1", "d", "r:5000/d", "nowhere:1")
_REQUESTS = {
    "cpu": ("0", "1m", "100m", "250m", "1", "100u"),
    "memory": ("0", "1", "200Mi", "1Gi", "0.5"),
    "ephemeral-storage": ("0", "1Gi"),
    GPU: ("0", "1", "2"),
    PAGES: ("0", "2Mi", "4Mi"),
    THING: ("1",),
    "unknown": ("1",),
}
_CAPACITIES = {
    "cpu": ("0", "250m", "1", "1500m", "4", "4"),
    "memory": ("0", "200Mi", "1500M", "4Gi", "4Gi"),
    "ephemeral-storage": ("0", "1Gi", "10Gi"),
    GPU: ("0", "1", "3"),
    PAGES: ("4Mi", "8Mi"),
    THING: ("2",),
    "pods": ("0", "1", "3", "110", "110"),
    "unknown": ("1",),
}


class RandomCluster(Chance):
    """A source of objects for one test; equal randomness gives equal objects."""

    # -- nodes -----------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        labels = {key: self.one_of(values) for key, values in _LABELS.items() if self.sometimes(70)}
        images = [
            ContainerImage(names=[image], size_bytes=size * _MIB)
            for image, size in _IMAGE_SIZES.items()
            if self.sometimes()
        ]
        return Node(
            metadata=ObjectMeta(name=name, uid=f"uid:{name}", labels=labels),
            spec=NodeSpec(
                unschedulable=self.sometimes(20), taints=self.several(self._taint, at_most=2)
            ),
            status=NodeStatus(allocatable=self._quantities(_CAPACITIES, percent=80), images=images),
        )

    def _taint(self) -> Taint:
        return Taint(
            key=self.one_of(_TAINT_KEYS),
            effect=self.one_of(_EFFECTS),
            value=self.one_of(("", "x")),
        )

    # -- pods ------------------------------------------------------------------------------------

    def running_pod(self, name: str, node_names: Sequence[str]) -> Pod:
        """A pod on one of the nodes, perhaps in the middle of a resize."""
        spec = msgspec.structs.replace(self._spec(), node_name=self.one_of(node_names))
        status = PodStatus()
        if self.sometimes(20):
            resized = ContainerStatus(
                name="c",
                resources=ResourceRequirements(requests=self._quantities(_REQUESTS, percent=40)),
                allocated_resources=self._quantities(_REQUESTS, percent=20),
            )
            status = PodStatus(container_statuses=[resized])
        return Pod(metadata=_metadata(name), spec=spec, status=status)

    def incoming_pod(self, name: str, node_names: Sequence[str]) -> Pod:
        """A pending pod that may care for any of the nodes, or for one that is not there."""
        node_affinity = self.node_affinity(node_names) if self.sometimes() else None
        spec = msgspec.structs.replace(
            self._spec(),
            node_name=self.one_of((*node_names, "gone")) if self.sometimes(10) else "",
            node_selector=self._node_selector(),
            affinity=None if node_affinity is None else Affinity(node_affinity=node_affinity),
            tolerations=self.several(self._toleration, at_most=2),
            volumes=self.several(self._image_volume, at_most=1),
        )
        return Pod(metadata=_metadata(name), spec=spec)

    def node_affinity(
        self, node_names: Sequence[str], *, with_mistakes: bool = True
    ) -> NodeAffinity:
        """Required and preferred terms; mistakes, if any, are in required ones."""

        def required() -> NodeSelectorTerm:
            return self._term(node_names, with_mistakes=with_mistakes)

        def preferred() -> PreferredSchedulingTerm:
            term = self._term(node_names, with_mistakes=False)
            return PreferredSchedulingTerm(weight=self.random.randint(0, 100), preference=term)

        selector = NodeSelector(node_selector_terms=self.several(required, at_most=3))
        return NodeAffinity(
            required=selector if self.sometimes() else None,
            preferred=self.several(preferred, at_most=3) if self.sometimes() else None,
        )

    def _spec(self) -> PodSpec:
        return PodSpec(
            containers=self.several(self._container, at_least=1, at_most=2),
            init_containers=self.several(self._init_container, at_most=1),
            overhead=self._quantities(_REQUESTS, percent=10),
            resources=ResourceRequirements(requests=self._quantities(_REQUESTS, percent=30))
            if self.sometimes(20)
            else None,
        )

    def _container(self) -> Container:
        return Container(
            name="c",
            image=self.one_of(_IMAGE_NAMES),
            resources=ResourceRequirements(requests=self._quantities(_REQUESTS, percent=40)),
            ports=self.several(self._port, at_most=1),
        )

    def _init_container(self) -> Container:
        policy = self.one_of((None, "Always"))
        return msgspec.structs.replace(self._container(), name="i", restart_policy=policy)

    def _port(self) -> ContainerPort:
        return ContainerPort(
            host_port=self.one_of((0, 80, 81)),
            host_ip=self.one_of(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
            protocol=self.one_of(("", "TCP", "UDP")),
        )

    def _image_volume(self) -> Volume:
        return Volume(image=ImageVolumeSource(reference=self.one_of(_IMAGE_NAMES)))

    def _toleration(self) -> Toleration:
        return Toleration(
            key=self.one_of(("", *_TAINT_KEYS)),
            operator=self.one_of(("", "Equal", "Exists", "Lt")),
            value=self.one_of(("", "x", "y")),
            effect=self.one_of(("", *_EFFECTS)),
        )

    def _node_selector(self) -> Labels:
        if self.sometimes(70):
            return {}
        key = self.one_of(tuple(_LABELS))
        return {key: self.one_of(_LABELS[key])}

    def _term(self, node_names: Sequence[str], *, with_mistakes: bool) -> NodeSelectorTerm:
        def expression() -> NodeSelectorRequirement:
            return self._expression(with_mistakes=with_mistakes)

        def name_field() -> NodeSelectorRequirement:
            return NodeSelectorRequirement(
                key=self.one_of(("metadata.name",) * 5 + ("metadata.uid",)),
                operator=self.one_of(("In", "In", "NotIn")),
                values=[self.one_of((*node_names, "gone"))],
            )

        return NodeSelectorTerm(
            match_expressions=self.several(expression, at_most=2),
            match_fields=self.several(name_field, at_most=2) if self.sometimes(30) else [],
        )

    def _expression(self, *, with_mistakes: bool) -> NodeSelectorRequirement:
        mistaken = with_mistakes and self.sometimes(10)
        key = self.one_of((*_LABELS, "absent"))
        operator = self.one_of(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        values: list[str] = []
        if operator in ("In", "NotIn"):
            values = self.several(lambda: self.one_of(_LABELS.get(key, ("a",))), 2, at_least=1)
        elif operator in ("Gt", "Lt"):
            values = [self.one_of(("0", "1", "4"))]
        if mistaken:
            operator, values = self.one_of((("Near", values), (operator, ["x", "y"]), ("In", [])))
        return NodeSelectorRequirement(key=key, operator=operator, values=values)

    def _quantities(self, choices: dict[str, tuple[str, ...]], percent: int) -> Quantities:
        return {
            name: self.one_of(amounts)
            for name, amounts in choices.items()
            if self.sometimes(percent)
        }


def _metadata(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default", uid=f"uid:{name}")

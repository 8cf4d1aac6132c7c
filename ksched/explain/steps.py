"""Single steps that may make a pod fit on a node, as changes of the pod, of the node, or evictions.

Each answers one objection: a taint, a label, an amount, a term, a port, a pod that is in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ksched.api.node_selectors import compile_required, compile_term
from ksched.api.objects import (
    Affinity,
    Container,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    Taint,
    Toleration,
)
from ksched.api.pod_resources import CPU, PODS, pod_requests
from ksched.api.quantity import milli_value, value
from ksched.api.tolerations import Tolerations
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_KEPT_AWAY: Final = ("NoSchedule", "NoExecute")


class Case(Struct, frozen=True):
    """A pod, the node it may go to, and the pods that are gone."""

    pod: Pod
    node: Node
    evicted: tuple[PodInfo, ...] = ()


class Step(Struct, frozen=True):
    """One change; ``amount`` compares steps of one kind: less is better."""

    text: str
    apply: Callable[[Case], Case]
    amount: float = 0.0


def pod_steps(pod: Pod, info: NodeInfo) -> Iterator[Step]:
    """Changes of the pod that may help on a node."""
    assert info.node is not None
    yield from _tolerations(pod, info.node)
    labels, spec = info.node.metadata.labels, pod.spec
    for key, wanted in spec.node_selector.items():
        if labels.get(key) != wanted:
            yield _spec_step(
                f"remove nodeSelector {key}={wanted}",
                lambda spec, key=key: {
                    "node_selector": {k: v for k, v in spec.node_selector.items() if k != key}
                },
            )
    required = replace(spec, node_selector={})
    if not compile_required(required).matches(labels, info.name):
        yield _affinity_step(
            "remove the required node affinity",
            lambda one: {"node_affinity": replace(one.node_affinity, required=None)},
        )
    for resource, shortage, requested in _shortages(pod, info):
        missing = min(shortage, requested)
        if resource != PODS:
            yield Step(
                f"request {_amount(resource, missing)} {resource} less "
                f"({_amount(resource, requested - missing)} instead of "
                f"{_amount(resource, requested)})",
                partial(_on_pod, partial(_with_less, resource, missing)),
                missing / requested,
            )
    yield from _term_steps(pod)
    for number, constraint in enumerate(spec.topology_spread_constraints):
        if constraint.when_unsatisfiable == "DoNotSchedule":
            key = constraint.topology_key
            yield _spec_step(
                f"remove topology spread constraint {number} ({key})",
                lambda spec, one=constraint: {
                    "topology_spread_constraints": [
                        each for each in spec.topology_spread_constraints if each != one
                    ]
                },
            )
    ports = {port.host_port for one in spec.containers for port in one.ports if port.host_port}
    for port in sorted(ports):
        yield _spec_step(
            f"remove hostPort {port}",
            lambda spec, port=port: {
                "containers": [_without(one, port) for one in spec.containers]
            },
        )


def node_steps(pod: Pod, info: NodeInfo) -> Iterator[Step]:
    """Changes of the node that may help."""
    node = info.node
    assert node is not None
    for taint in _untolerated(pod, node):
        yield Step(f"remove taint {_taint(taint)}", partial(_on_node, partial(_untainted, taint)))
    if node.spec.unschedulable:
        yield Step("uncordon it", partial(_on_node, _uncordoned))
    for key, wanted in _labels_wanted(pod, node):
        change = partial(_with_label, key, wanted)
        yield Step(f"label it {key}={wanted}", partial(_on_node, change))
    for resource, missing, requested in _shortages(pod, info):
        yield Step(
            f"{_amount(resource, missing)} more {resource}",
            partial(_on_node, partial(_with_more, resource, missing)),
            missing / max(requested, 1),
        )


def eviction_steps(pods: Iterable[PodInfo]) -> Iterator[Step]:
    """Evictions, of the least important pods first."""
    for one in sorted(pods, key=lambda pod: (pod.priority, pod.key)):
        yield Step(f"evict {one.key}", partial(_evict, one), max(one.priority, 0))


def _on_pod(change: Callable[[Pod], Pod], case: Case) -> Case:
    return replace(case, pod=change(case.pod))


def _on_node(change: Callable[[Node], Node], case: Case) -> Case:
    return replace(case, node=change(case.node))


def _evict(pod: PodInfo, case: Case) -> Case:
    return replace(case, evicted=(*case.evicted, pod))


# -- pod ----------------------------------------------------------------------------------------


def _spec_step(text: str, change: Callable[..., dict[str, object]]) -> Step:
    def apply(case: Case) -> Case:
        spec = replace(case.pod.spec, **change(case.pod.spec))
        return replace(case, pod=replace(case.pod, spec=spec))

    return Step(text, apply)


def _affinity_step(text: str, change: Callable[..., dict[str, object]]) -> Step:
    def changed(spec: object) -> dict[str, object]:
        affinity = getattr(spec, "affinity", None) or Affinity()
        return {"affinity": replace(affinity, **change(affinity))}

    return _spec_step(text, changed)


def _tolerations(pod: Pod, node: Node) -> Iterator[Step]:
    taints = list(_untolerated(pod, node))
    if node.spec.unschedulable and not any(taint.key == UNSCHEDULABLE for taint in taints):
        cordon = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
        taints += [] if Tolerations(pod.spec.tolerations).cover(cordon) else [cordon]
    for taint in taints:
        more = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        yield _spec_step(
            f"tolerate {_taint(taint)}",
            lambda spec, more=more: {"tolerations": [*spec.tolerations, more]},
        )


def _term_steps(pod: Pod) -> Iterator[Step]:
    affinity = pod.spec.affinity or Affinity()
    for field, noun in (("pod_affinity", "affinity"), ("pod_anti_affinity", "anti-affinity")):
        terms: PodAffinity | None = getattr(affinity, field)
        for term in terms.required if terms else ():

            def without(
                one: Affinity, field: str = field, term: object = term
            ) -> dict[str, object]:
                own: PodAffinity = getattr(one, field)
                return {field: replace(own, required=[t for t in own.required if t != term])}

            yield _affinity_step(
                f"remove a required pod {noun} term ({term.topology_key})", without
            )


def _with_less(resource: str, missing: int, pod: Pod) -> Pod:
    """Lower the requests of the containers, the largest first."""
    containers = list(pod.spec.containers)
    amount = _number(resource)
    by_size = sorted(
        range(len(containers)),
        key=lambda i: -amount(containers[i].resources.requests.get(resource, 0)),
    )
    for place in by_size:
        requests = containers[place].resources.requests
        own = amount(requests.get(resource, 0))
        taken = min(own, missing)
        if taken:
            missing -= taken
            fewer = {**requests, resource: _amount(resource, own - taken)}
            resources = replace(containers[place].resources, requests=fewer)
            containers[place] = replace(containers[place], resources=resources)
    return replace(pod, spec=replace(pod.spec, containers=containers))


def _without(container: Container, port: int) -> Container:
    return replace(container, ports=[one for one in container.ports if one.host_port != port])


# -- node ---------------------------------------------------------------------------------------


def _untolerated(pod: Pod, node: Node) -> Iterator[Taint]:
    tolerated = Tolerations(pod.spec.tolerations)
    for taint in node.spec.taints:
        if taint.effect in _KEPT_AWAY and not tolerated.cover(taint):
            yield taint


def _labels_wanted(pod: Pod, node: Node) -> Iterator[tuple[str, str]]:
    """Labels that nodeSelector and, of the required affinity, the nearest term want."""
    labels = node.metadata.labels
    for key, wanted in pod.spec.node_selector.items():
        if labels.get(key) != wanted:
            yield key, wanted
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    selector = affinity.required if affinity else None
    options = []
    for term in selector.node_selector_terms if selector else ():
        lacking = [one for one in term.match_expressions if not _is_met(one, labels)]
        if not term.match_fields and all(one.operator in ("In", "Exists") for one in lacking):
            options.append([(one.key, one.values[0] if one.values else "") for one in lacking])
    yield from min(options, key=len, default=[])


def _is_met(one: NodeSelectorRequirement, labels: dict[str, str]) -> bool:
    return compile_term(NodeSelectorTerm(match_expressions=[one])).matches(labels, "")


def _untainted(taint: Taint, node: Node) -> Node:
    taints = [one for one in node.spec.taints if one != taint]
    return replace(node, spec=replace(node.spec, taints=taints))


def _uncordoned(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=False))


def _with_label(key: str, wanted: str, node: Node) -> Node:
    labels = {**node.metadata.labels, key: wanted}
    return replace(node, metadata=replace(node.metadata, labels=labels))


def _with_more(resource: str, missing: int, node: Node) -> Node:
    allocatable = node.status.allocatable
    now = _number(resource)(allocatable.get(resource, 0))
    more = {**allocatable, resource: _amount(resource, now + missing)}
    return replace(node, status=replace(node.status, allocatable=more))


# -- amounts ------------------------------------------------------------------------------------


def _shortages(pod: Pod, info: NodeInfo) -> Iterator[tuple[str, int, int]]:
    """Resource, what is missing on the node, and what the pod requests of it."""
    for resource, wanted in pod_requests(pod.spec).items():
        missing = wanted - (info.allocatable_of(resource) - info.requested_of(resource))
        if wanted and missing > 0:
            yield resource, missing, wanted
    missing = len(info.pods) + 1 - info.allowed_pods
    if missing > 0:
        yield PODS, missing, 1


def _number(resource: str) -> Callable[[str | int | float], int]:
    return milli_value if resource == CPU else value


def _amount(resource: str, amount: int) -> str:
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount and resource != PODS and amount % size == 0:
            return str(Fraction(amount, size)) + suffix
    return str(amount)


def _taint(taint: Taint) -> str:
    text = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{text}:{taint.effect}"

"""Taints, node selectors and host ports, spelled out."""

from __future__ import annotations

from collections.abc import Sequence

from ksched.api.node_selectors import compile_term, parse_int64
from ksched.api.objects import (
    Container,
    Node,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Taint,
    Toleration,
)


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    for one in tolerations:
        effect = one.effect in ("", taint.effect)
        key = one.key in ("", taint.key)
        value = one.operator == "Exists" or (
            one.operator in ("", "Equal") and one.value == taint.value
        )
        if effect and key and value:
            return True
    return False


def own_affinity(spec: PodSpec) -> NodeAffinity:
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return NodeAffinity()
    return spec.affinity.node_affinity


def any_term_matches(terms: Sequence[NodeSelectorTerm], node: Node) -> bool:
    return any(term_matches(term, node) for term in terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    if compile_term(term).problems:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(
        _holds(wanted, node.metadata.labels.get(wanted.key)) for wanted in term.match_expressions
    ) and all(_holds(wanted, fields.get(wanted.key, "")) for wanted in term.match_fields)


def _holds(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    if wanted.operator == "In":
        return value in wanted.values
    if wanted.operator == "NotIn":
        return value not in wanted.values
    if wanted.operator == "Exists":
        return value is not None
    if wanted.operator == "DoesNotExist":
        return value is None
    number, bound = parse_int64(value or ""), int(wanted.values[0])
    if number is None:
        return False
    return number > bound if wanted.operator == "Gt" else number < bound


def nodes_named_by_affinity(pod: Pod) -> set[str] | None:
    """The only nodes the pod's required terms can mean; ``None`` if they do not say."""
    required = own_affinity(pod.spec).required
    if required is None or not required.node_selector_terms:
        return None
    union: set[str] = set()
    for term in required.node_selector_terms:
        names: set[str] | None = None
        for wanted in term.match_fields:
            if wanted.key == "metadata.name" and wanted.operator == "In":
                values = set(wanted.values)
                names = values if names is None else names & values
        if names is None:
            return None
        union |= names
    return union


def host_ports(spec: PodSpec) -> list[tuple[str, str, int]]:
    sidecars = [one for one in spec.init_containers if one.restart_policy == "Always"]
    running: list[Container] = [*spec.containers, *sidecars]
    return [
        (port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port)
        for container in running
        for port in container.ports
        if port.host_port > 0
    ]

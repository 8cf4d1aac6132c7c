"""PodTopologySpread and SelectorSpread, spelled out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ksched.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    Pod,
    TopologySpreadConstraint,
)
from lab.reference.label_matching import is_empty, selector_matches
from lab.reference.matching import any_term_matches, own_affinity, tolerated
from lab.reference.world import UNRESOLVABLE, UNSCHEDULABLE, Verdict, World

HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(
        max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"
    ),
    TopologySpreadConstraint(
        max_skew=5,
        topology_key="topology.kubernetes.io/zone",
        when_unsatisfiable="ScheduleAnyway",
    ),
)


def filter_spread(world: World, node: Node) -> Verdict:
    hard = constraints_of(world, "DoNotSchedule")
    reason = "node(s) didn't match pod topology spread constraints"
    for constraint in hard:
        if constraint.topology_key not in node.metadata.labels:
            return UNRESOLVABLE, [f"{reason} (missing required label)"]
        counts: dict[str, int] = {}
        for other in world.nodes:
            if _has_keys(other, hard) and _is_included(world, constraint, other):
                value = other.metadata.labels[constraint.topology_key]
                counts[value] = counts.get(value, 0) + _matching_pods(world, constraint, other)
        lowest = min(counts.values(), default=0)
        if len(counts) < (1 if constraint.min_domains is None else constraint.min_domains):
            lowest = 0
        itself = selector_matches(constraint.label_selector, world.pod.metadata.labels)
        here = counts.get(node.metadata.labels[constraint.topology_key], 0)
        if here + int(itself) - lowest > constraint.max_skew:
            return UNSCHEDULABLE, [reason]
    return None


def score_spread(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    soft = constraints_of(world, "ScheduleAnyway")
    if not soft:
        return {}
    needs_all = bool(world.pod.spec.topology_spread_constraints)
    needs_all = needs_all or world.profile.spread_defaults is not None
    rated = [node for node in nodes if not needs_all or _has_keys(node, soft)]
    weights = []
    for constraint in soft:
        values = {node.metadata.labels.get(constraint.topology_key, "") for node in rated}
        size = len(rated) if constraint.topology_key == HOSTNAME else len(values)
        weights.append(math.log(size + 2))
    raw = {}
    for node in rated:
        total = 0.0
        for constraint, weight in zip(soft, weights, strict=True):
            if constraint.topology_key in node.metadata.labels:
                pods = _pods_in_domain(world, constraint, node, soft if needs_all else ())
                total += float(pods) * weight + float(constraint.max_skew - 1)
        raw[node.metadata.name] = _rounded(total)
    scores = dict.fromkeys((node.metadata.name for node in nodes), 0)
    for name, score in raw.items():
        low, high = min(raw.values()), max(raw.values())
        scores[name] = 100 if high == 0 else 100 * (high + low - score) // high
    return scores


def _pods_in_domain(
    world: World,
    constraint: TopologySpreadConstraint,
    node: Node,
    needed: Sequence[TopologySpreadConstraint],
) -> int:
    if constraint.topology_key == HOSTNAME:
        return _matching_pods(world, constraint, node)
    value = node.metadata.labels[constraint.topology_key]
    return sum(
        _matching_pods(world, constraint, other)
        for other in world.nodes
        if _has_keys(other, needed)
        and _is_included(world, constraint, other)
        and other.metadata.labels.get(constraint.topology_key, "") == value
    )


def _rounded(number: float) -> int:
    whole = math.floor(number)
    return whole + (1 if number - whole >= 0.5 else 0)


def _matching_pods(world: World, constraint: TopologySpreadConstraint, node: Node) -> int:
    if is_empty(constraint.label_selector):
        return 0
    return sum(
        pod.metadata.namespace == world.pod.metadata.namespace
        and pod.metadata.deletion_timestamp is None
        and selector_matches(constraint.label_selector, pod.metadata.labels)
        for pod in world.pods_on(node)
    )


def _has_keys(node: Node, constraints: Sequence[TopologySpreadConstraint]) -> bool:
    return all(constraint.topology_key in node.metadata.labels for constraint in constraints)


def _is_included(world: World, constraint: TopologySpreadConstraint, node: Node) -> bool:
    spec = world.pod.spec
    if constraint.node_affinity_policy in (None, "Honor"):
        for key, value in spec.node_selector.items():
            if node.metadata.labels.get(key) != value:
                return False
        required = own_affinity(spec).required
        if required is not None and not any_term_matches(required.node_selector_terms, node):
            return False
    if constraint.node_taints_policy == "Honor":
        for taint in node.spec.taints:
            hard = taint.effect in ("NoSchedule", "NoExecute")
            if hard and not tolerated(taint, spec.tolerations):
                return False
    return True


# -- constraints and their selectors -------------------------------------------------------------


def constraints_of(world: World, action: str) -> list[TopologySpreadConstraint]:
    """The pod's own constraints, or the default ones, with complete selectors."""
    own = world.pod.spec.topology_spread_constraints
    if own:
        return [
            _with_match_label_keys(constraint, world.pod)
            for constraint in own
            if constraint.when_unsatisfiable == action
        ]
    defaults = world.profile.spread_defaults
    selector = deduced_selector(world)
    if is_empty(selector):
        return []
    return [
        msgspec.structs.replace(constraint, label_selector=selector)
        for constraint in (SYSTEM_DEFAULTS if defaults is None else defaults)
        if constraint.when_unsatisfiable == action
    ]


def _with_match_label_keys(
    constraint: TopologySpreadConstraint, pod: Pod
) -> TopologySpreadConstraint:
    if constraint.label_selector is None:
        return constraint
    expressions = [
        LabelSelectorRequirement(key=key, operator="In", values=[pod.metadata.labels[key]])
        for key in constraint.match_label_keys
        if key in pod.metadata.labels
    ]
    selector = LabelSelector(
        match_labels=constraint.label_selector.match_labels,
        match_expressions=[*constraint.label_selector.match_expressions, *expressions],
    )
    return msgspec.structs.replace(constraint, label_selector=selector)


def deduced_selector(world: World) -> LabelSelector:
    """What the pod's services and its controller select."""
    meta, others = world.pod.metadata, world.others
    labels: dict[str, str] = {}
    expressions: list[LabelSelectorRequirement] = []
    for service in others.services:
        wanted = service.spec.selector
        if wanted is None or service.metadata.namespace != meta.namespace:
            continue
        if all(meta.labels.get(key) == value for key, value in wanted.items()):
            labels.update(wanted)
    for owner in meta.owner_references:
        if not owner.controller:
            continue
        for controller in others.replication_controllers:
            if (owner.api_version, owner.kind) == ("v1", "ReplicationController") and (
                (controller.metadata.namespace, controller.metadata.name)
                == (meta.namespace, owner.name)
            ):
                labels.update(controller.spec.selector or {})
        for kind, workloads in (
            ("ReplicaSet", others.replica_sets),
            ("StatefulSet", others.stateful_sets),
        ):
            for workload in workloads:
                if (owner.api_version, owner.kind) == ("apps/v1", kind) and (
                    (workload.metadata.namespace, workload.metadata.name)
                    == (meta.namespace, owner.name)
                ):
                    selector = workload.spec.selector or LabelSelector()
                    expressions += [
                        LabelSelectorRequirement(key=key, operator="In", values=[value])
                        for key, value in selector.match_labels.items()
                    ]
                    expressions += selector.match_expressions
    return LabelSelector(match_labels=labels, match_expressions=expressions)


# -- SelectorSpread ------------------------------------------------------------------------------


def score_selector_spread(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    if world.pod.spec.topology_spread_constraints:
        return {}
    selector = TopologySpreadConstraint(
        max_skew=1,
        topology_key="",
        when_unsatisfiable="",
        label_selector=deduced_selector(world),
    )
    counts = {node.metadata.name: _matching_pods(world, selector, node) for node in nodes}
    zones: dict[str, int] = {}
    for node in nodes:
        zone = _zone(node)
        if zone:
            zones[zone] = zones.get(zone, 0) + counts[node.metadata.name]
    scores = {}
    for node in nodes:
        score = _below(counts[node.metadata.name], max(counts.values()))
        if _zone(node):
            by_zone = _below(zones[_zone(node)], max(zones.values()))
            score = score * (1.0 - 2.0 / 3.0) + 2.0 / 3.0 * by_zone
        scores[node.metadata.name] = int(score)
    return scores


def _below(count: int, highest: int) -> float:
    return 100.0 if highest == 0 else 100.0 * (float(highest - count) / float(highest))


def _zone(node: Node) -> str:
    labels = node.metadata.labels
    zone = labels.get(
        "failure-domain.beta.kubernetes.io/zone", labels.get("topology.kubernetes.io/zone", "")
    )
    region = labels.get(
        "failure-domain.beta.kubernetes.io/region", labels.get("topology.kubernetes.io/region", "")
    )
    return f"{region} {zone}" if region or zone else ""

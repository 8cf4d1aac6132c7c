"""InterPodAffinity, spelled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ksched.api.objects import Labels, Node, Pod, PodAffinity, PodAffinityTerm
from lab.reference.label_matching import is_empty, selector_matches
from lab.reference.world import UNRESOLVABLE, UNSCHEDULABLE, Verdict, World

NO_RULES = PodAffinity()
Pairs = Counter[tuple[str, str]]
"""Numbers by topology key and value."""


def filter_affinity(world: World, node: Node) -> Verdict:
    pod = world.pod
    near, apart = affinity(pod).required, anti_affinity(pod).required
    near_counts, apart_counts, existing_counts = Pairs(), Pairs(), Pairs()
    for other_node, other in _placed(world):
        if near and all(_means(world, term, pod, other) for term in near):
            _count(near_counts, [term.topology_key for term in near], other_node)
        matching = [term.topology_key for term in apart if _means(world, term, pod, other)]
        _count(apart_counts, matching, other_node)
        against = [
            term.topology_key
            for term in anti_affinity(other).required
            if _existing_means(world, term, other)
        ]
        _count(existing_counts, against, other_node)

    labels = node.metadata.labels
    is_first = not near_counts and all(_means(world, term, pod, pod) for term in near)
    for term in near:
        lonely = near_counts[term.topology_key, labels.get(term.topology_key, "")] <= 0
        if term.topology_key not in labels or (lonely and not is_first):
            return UNRESOLVABLE, ["node(s) didn't match pod affinity rules"]
    if any(apart_counts[pair] > 0 for pair in labels.items()):
        return UNSCHEDULABLE, ["node(s) didn't match pod anti-affinity rules"]
    if any(existing_counts[pair] > 0 for pair in labels.items()):
        return UNSCHEDULABLE, ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return None


def score_affinity(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    pod, profile = world.pod, world.profile
    own = [(1, term) for term in affinity(pod).preferred]
    own += [(-1, term) for term in anti_affinity(pod).preferred]
    if profile.ignore_preferred_terms_of_existing_pods and not own:
        return {}
    pairs: Pairs = Counter()
    for node, other in _placed(world):
        found: list[tuple[int, PodAffinityTerm]] = []
        for sign, weighted in own:
            if _means(world, weighted.pod_affinity_term, pod, other):
                found.append((sign * weighted.weight, weighted.pod_affinity_term))
        theirs = [(1, term) for term in affinity(other).preferred]
        theirs += [(-1, term) for term in anti_affinity(other).preferred]
        for sign, weighted in theirs:
            if _existing_means(world, weighted.pod_affinity_term, other):
                found.append((sign * weighted.weight, weighted.pod_affinity_term))
        if profile.hard_pod_affinity_weight > 0:
            for term in affinity(other).required:
                if _existing_means(world, term, other):
                    found.append((profile.hard_pod_affinity_weight, term))
        for score, term in found:
            if term.topology_key in node.metadata.labels:
                pairs[term.topology_key, node.metadata.labels[term.topology_key]] += score
    if not pairs:
        return {}
    raw = {
        node.metadata.name: sum(pairs.get(pair, 0) for pair in node.metadata.labels.items())
        for node in nodes
    }
    low, high = min(raw.values(), default=0), max(raw.values(), default=0)
    if low == high:
        return dict.fromkeys(raw, 0)
    return {
        name: int(100 * (float(score - low) / float(high - low))) for name, score in raw.items()
    }


def affinity(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity.pod_affinity if pod.spec.affinity else None) or NO_RULES


def anti_affinity(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None) or NO_RULES


def _placed(world: World) -> Iterator[tuple[Node, Pod]]:
    for node in world.nodes:
        for pod in world.pods_on(node):
            yield node, pod


def _count(pairs: Pairs, keys: Sequence[str], node: Node) -> None:
    for key in keys:
        if key in node.metadata.labels:
            pairs[key, node.metadata.labels[key]] += 1


def _means(world: World, term: PodAffinityTerm, pod: Pod, other: Pod) -> bool:
    """Whether a term of the incoming pod means another one.

    Upstream first writes the selected namespaces into the list of names, then matches once more
    with the selector and no labels at all.
    """
    namespaces = _named(term, pod)
    if not is_empty(term.namespace_selector):
        for namespace in world.others.namespaces:
            if selector_matches(term.namespace_selector, namespace.metadata.labels):
                namespaces.add(namespace.metadata.name)
    return _matches(term, namespaces, {}, other)


def _existing_means(world: World, term: PodAffinityTerm, carrier: Pod) -> bool:
    """Whether a term of a pod that is already there means the incoming one."""
    labels: Labels = {}
    for namespace in world.others.namespaces:
        if namespace.metadata.name == world.pod.metadata.namespace:
            labels = namespace.metadata.labels
    return _matches(term, _named(term, carrier), labels, world.pod)


def _named(term: PodAffinityTerm, carrier: Pod) -> set[str]:
    if not term.namespaces and term.namespace_selector is None:
        return {carrier.metadata.namespace}
    return set(term.namespaces)


def _matches(term: PodAffinityTerm, namespaces: set[str], labels: Labels, pod: Pod) -> bool:
    here = pod.metadata.namespace in namespaces
    here = here or selector_matches(term.namespace_selector, labels)
    return here and selector_matches(term.label_selector, pod.metadata.labels)

"""How good a feasible node is, one function per plugin; an empty answer skips the plugin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ksched.api.objects import Node, PodSpec, PreferredSchedulingTerm
from ksched.api.pod_resources import (
    amounts,
    is_scalar_resource_name,
    non_missing_requests,
    non_missing_requests_with_status,
    pod_requests,
)
from lab.reference.affinity import score_affinity
from lab.reference.matching import own_affinity, term_matches, tolerated
from lab.reference.spread import score_selector_spread, score_spread
from lab.reference.world import ReferenceProfile, World

MIB = 1024 * 1024


def _score_taints(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    raw = {}
    for node in nodes:
        soft = [taint for taint in node.spec.taints if taint.effect == "PreferNoSchedule"]
        tolerations = world.pod.spec.tolerations
        raw[node.metadata.name] = sum(not tolerated(taint, tolerations) for taint in soft)
    return _normalized(raw, reverse=True)


def _score_affinity(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    own = own_affinity(world.pod.spec).preferred
    added = world.profile.added_affinity.preferred
    if own is None and added is None:
        return {}
    terms: list[PreferredSchedulingTerm] = [*(added or ()), *(own or ())]
    raw = {}
    for node in nodes:
        matching = [term for term in terms if term_matches(term.preference, node)]
        raw[node.metadata.name] = sum(term.weight for term in matching)
    return _normalized(raw, reverse=False)


def _score_fit(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    spec = world.pod.spec
    # Upstream forgets pod-level requests here; hugepages are the only ones left besides the two.
    containers_only = PodSpec(
        containers=spec.containers, init_containers=spec.init_containers, overhead=spec.overhead
    )
    requests = pod_requests(containers_only)
    requests["cpu"], requests["memory"] = non_missing_requests(spec)
    scores = {}
    for node in nodes:
        allocatable = amounts(node.status.allocatable)
        used = world.used(node)
        on_node = [non_missing_requests_with_status(pod) for pod in world.pods_on(node)]
        used["cpu"], used["memory"] = sum(cpu for cpu, _ in on_node), sum(m for _, m in on_node)
        rated = []
        for name, weight in world.profile.scored_resources.items():
            capacity = _capacity(name, allocatable)
            if capacity == 0 or (is_scalar_resource_name(name) and not requests.get(name)):
                continue
            total = used.get(name, 0) + requests.get(name, 0)
            rated.append((_rate(total, capacity, world.profile), weight))
        scores[node.metadata.name] = _average(rated, world.profile)
    return scores


def _rate(total: int, capacity: int, profile: ReferenceProfile) -> int:
    if profile.strategy == "LeastAllocated":
        return 0 if total > capacity else (capacity - total) * 100 // capacity
    if profile.strategy == "MostAllocated":
        return min(total, capacity) * 100 // capacity
    percent = 100 if total > capacity else total * 100 // capacity
    previous: tuple[int, int] | None = None
    for x, y in profile.shape:
        if percent <= x:
            if previous is None:
                return y * 10
            x0, y0 = previous
            # Go truncates towards zero, so does int().
            return y0 * 10 + int((y - y0) * 10 * (percent - x0) / (x - x0))
        previous = (x, y)
    return profile.shape[-1][1] * 10


def _average(rated: list[tuple[int, int]], profile: ReferenceProfile) -> int:
    if profile.strategy == "RequestedToCapacityRatio":
        rated = [(score, weight) for score, weight in rated if score > 0]
    if not rated:
        return 0
    total = sum(score * weight for score, weight in rated)
    weights = sum(weight for _, weight in rated)
    if profile.strategy == "RequestedToCapacityRatio":
        return math.floor(total / weights + 0.5)
    return total // weights


def _score_balance(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    requests = pod_requests(world.pod.spec)
    names = world.profile.balanced_resources
    if all(requests.get(name, 0) == 0 for name in names):
        return {}
    scores = {}
    for node in nodes:
        allocatable = amounts(node.status.allocatable)
        used = world.used(node)
        before, after = [], []
        for name in names:
            capacity = _capacity(name, allocatable)
            if capacity == 0 or (is_scalar_resource_name(name) and not requests.get(name)):
                continue
            # Go divides floats; Python would round the quotient of two integers better.
            total = used.get(name, 0) + requests.get(name, 0)
            before.append(min(1.0, float(used.get(name, 0)) / float(capacity)))
            after.append(min(1.0, float(total) / float(capacity)))
        scores[node.metadata.name] = 50 + (50 + _balance(after) - _balance(before)) // 2
    return scores


def _balance(shares: list[float]) -> int:
    deviation = 0.0
    if len(shares) == 2:
        deviation = abs(shares[0] - shares[1]) / 2
    elif len(shares) > 2:
        total = 0.0
        for share in shares:
            total += share
        mean = total / len(shares)
        squares = 0.0
        for share in shares:
            squares += (share - mean) * (share - mean)
        deviation = math.sqrt(squares / len(shares))
    return int((1 - deviation) * 100)


def _score_images(world: World, nodes: Sequence[Node]) -> dict[str, int]:
    spec = world.pod.spec
    containers = [*spec.init_containers, *spec.containers]
    images = [container.image for container in containers]
    images += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    lowest, highest = 23 * MIB, 1000 * MIB * len(containers)
    scores = {}
    for node in nodes:
        total = 0
        for image in images:
            name = image if image.rfind(":") > image.rfind("/") else image + ":latest"
            if name in _images_on(node):
                having = [other for other in world.nodes if name in _images_on(other)]
                size = _images_on(having[0])[name]
                total += int(size * (len(having) / len(world.nodes)))
        total = min(max(total, lowest), highest)
        scores[node.metadata.name] = 100 * (total - lowest) // (highest - lowest)
    return scores


def _normalized(raw: Mapping[str, int], *, reverse: bool) -> dict[str, int]:
    highest = max(raw.values(), default=0)
    if highest == 0:
        return dict.fromkeys(raw, 100 if reverse else 0)
    scaled = {name: 100 * score // highest for name, score in raw.items()}
    return {name: 100 - score if reverse else score for name, score in scaled.items()}


def _capacity(name: str, allocatable: Mapping[str, int]) -> int:
    """What a node has of a resource that nodes keep account of."""
    if name in ("cpu", "memory", "ephemeral-storage") or is_scalar_resource_name(name):
        return allocatable.get(name, 0)
    return 0


def _images_on(node: Node) -> dict[str, int]:
    images = node.status.images or ()
    return {name: max(image.size_bytes, 0) for image in images for name in image.names or ()}


SCORES: dict[str, Callable[[World, Sequence[Node]], dict[str, int]]] = {
    "TaintToleration": _score_taints,
    "NodeAffinity": _score_affinity,
    "NodeResourcesFit": _score_fit,
    "NodeResourcesBalancedAllocation": _score_balance,
    "ImageLocality": _score_images,
    "PodTopologySpread": score_spread,
    "InterPodAffinity": score_affinity,
    "SelectorSpread": score_selector_spread,
}

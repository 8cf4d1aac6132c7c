"""Who would have to go for a pod that fits nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ksched.api.label_selectors import compile_selector
from ksched.api.objects import Node, Pod, PodDisruptionBudget
from lab.reference.decision import Rejection, decide, first_rejection
from lab.reference.world import UNRESOLVABLE, UNSCHEDULABLE, World

Pods = Mapping[str, Sequence[Pod]]


@dataclass(frozen=True)
class Candidate:
    """The pods to evict from a node, the most important first."""

    victims: Sequence[Pod]
    violations: int = 0

    @property
    def names(self) -> frozenset[str]:
        return frozenset(victim.metadata.key for victim in self.victims)


@dataclass(frozen=True)
class Preemption:
    """Where preemption would help, or the text that says why it would not."""

    candidates: Mapping[str, Candidate]
    message: str = ""

    @property
    def choices(self) -> dict[str, frozenset[str]]:
        """The nodes that all criteria leave, and the victims there."""
        left = dict(self.candidates)
        for cost in (_violations, _highest_priority, _sum_of_priorities, _number, _start):
            if left:
                costs = {name: cost(candidate) for name, candidate in left.items()}
                best = max(costs.values()) if cost is _start else min(costs.values())
                left = {name: left[name] for name in left if costs[name] == best}
        return {name: candidate.names for name, candidate in left.items()}


def preempt(
    world: World,
    budgets: Sequence[PodDisruptionBudget] = (),
    nominated: Pods | None = None,
) -> Preemption:
    """Look for pods to evict; ``nominated`` are pods expected on nodes, whatever their priority.

    Small clusters only: every node is tried.
    """
    if world.pod.spec.preemption_policy == "Never":
        return Preemption({}, "preemption: not eligible due to preemptionPolicy=Never.")
    expected = {
        name: [one for one in pods if _priority(one) >= _priority(world.pod)]
        for name, pods in (nominated or {}).items()
    }
    candidates: dict[str, Candidate] = {}
    reasons: Counter[str] = Counter()
    for node in world.nodes:
        rejection = _with_and_without(world, node, expected)
        answer: Candidate | Rejection
        if rejection is None or rejection.code != UNSCHEDULABLE or _is_left_out(world, node):
            reason = "Preemption is not helpful for scheduling"
            answer = Rejection("", UNRESOLVABLE, (reason,))
        else:
            answer = _try(world, node, budgets, expected)
        if isinstance(answer, Candidate):
            candidates[node.metadata.name] = answer
        else:
            reasons.update(answer.reasons)
    if candidates:
        return Preemption(candidates)
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    nodes = f"0/{len(world.nodes)} nodes are available: {counted}."
    return Preemption({}, f"preemption: {nodes}")


def _try(
    world: World, node: Node, budgets: Sequence[PodDisruptionBudget], expected: Pods
) -> Candidate | Rejection:
    """Evict everybody below the pod, then take back whom one can."""
    here = list(world.pods_on(node))
    lower = [one for one in here if _priority(one) < _priority(world.pod)]
    if not lower:
        reason = "No preemption victims found for incoming pod"
        return Rejection("", UNRESOLVABLE, (reason,))
    staying = [one for one in here if one not in lower]
    rejection = _with_and_without(_with_pods(world, node, staying), node, expected)
    if rejection is not None:
        return rejection
    victims = []
    violations = 0
    violating, others = _split(_by_importance(lower), budgets)
    for one in [*violating, *others]:
        trial = _with_pods(world, node, [*staying, one])
        if _with_and_without(trial, node, expected) is None:
            staying.append(one)
        else:
            victims.append(one)
            violations += one in violating
    return Candidate(_by_importance(victims), violations)


def _with_and_without(world: World, node: Node, expected: Pods) -> Rejection | None:
    """The filters' answer with the pods that are expected on the node, then without them."""
    coming = expected.get(node.metadata.name, ())
    if coming:
        crowded = _with_pods(world, node, [*world.pods_on(node), *coming])
        rejection = first_rejection(crowded, node)
        if rejection is not None:
            return rejection
    return first_rejection(world, node)


def _with_pods(world: World, node: Node, pods: Sequence[Pod]) -> World:
    return replace(world, pods_by_node={**world.pods_by_node, node.metadata.name: pods})


def _is_left_out(world: World, node: Node) -> bool:
    """Whether PreFilter said that the node need not be looked at."""
    profile, others = world.profile, world.others
    decision = decide(world.nodes, world.pods_by_node, world.pod, profile, others)
    rejection = decision.rejections.get(node.metadata.name)
    return rejection is not None and rejection.code == UNRESOLVABLE


def _split(
    pods: Iterable[Pod], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[Pod], list[Pod]]:
    """Pods whose eviction violates a budget, and the others."""
    left = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        is_violating = False
        for index, budget in enumerate(budgets):
            if _protects(budget, pod):
                left[index] -= 1
                if left[index] < 0:
                    is_violating = True
        (violating if is_violating else others).append(pod)
    return violating, others


def _protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    labels = pod.metadata.labels
    selector = compile_selector(budget.spec.selector)
    return (
        budget.metadata.namespace == pod.metadata.namespace
        and bool(labels)
        and not selector.empty
        and selector.matches(labels)
        and pod.metadata.name not in budget.status.disrupted_pods
    )


def _by_importance(pods: Iterable[Pod]) -> list[Pod]:
    oldest_first = sorted(pods, key=_started)
    return sorted(oldest_first, key=_priority, reverse=True)


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _started(pod: Pod) -> str:
    return pod.status.start_time or "9999"


def _violations(candidate: Candidate) -> int:
    return candidate.violations


def _highest_priority(candidate: Candidate) -> int:
    return max(map(_priority, candidate.victims))


def _sum_of_priorities(candidate: Candidate) -> int:
    return sum(_priority(victim) + 2**31 for victim in candidate.victims)


def _number(candidate: Candidate) -> int:
    return len(candidate.victims)


def _start(candidate: Candidate) -> str:
    highest = _highest_priority(candidate)
    return min(_started(one) for one in candidate.victims if _priority(one) == highest)

"""From verdicts and scores of all plugins to a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ksched.api.objects import Node, Pod
from lab.reference.filters import FILTERS, PRE_FILTERS
from lab.reference.matching import nodes_named_by_affinity
from lab.reference.scores import SCORES
from lab.reference.world import UNRESOLVABLE, OtherObjects, ReferenceProfile, World


@dataclass(frozen=True)
class Rejection:
    """Why a node was ruled out; ``plugin`` is empty if PreFilter left it out of the search."""

    plugin: str
    code: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """What every plugin says about every node."""

    rejections: Mapping[str, Rejection]
    """The first rejection of each node that is not feasible."""
    scores: Mapping[str, Mapping[str, int]]
    """Of each feasible node, by plugin, normalised and weighted; plugins that skip are absent."""
    pre_filter_message: str = ""
    """Set if the pod was rejected as a whole."""

    @property
    def totals(self) -> dict[str, int]:
        return {name: sum(scores.values()) for name, scores in self.scores.items()}

    @property
    def best(self) -> set[str]:
        """The nodes with the highest total."""
        totals = self.totals
        return {name for name, total in totals.items() if total == max(totals.values())}

    @property
    def message(self) -> str:
        """The text of a pod that fits nowhere, up to what PostFilter adds."""
        text = f"0/{len(self.rejections) + len(self.scores)} nodes are available:"
        if self.pre_filter_message:
            return f"{text} {self.pre_filter_message}."
        counts = Counter(reason for one in self.rejections.values() for reason in one.reasons)
        counted = sorted(f"{count} {reason}" for reason, count in counts.items())
        return f"{text} {', '.join(counted)}."


def decide(
    nodes: Sequence[Node],
    pods_by_node: Mapping[str, Sequence[Pod]],
    pod: Pod,
    profile: ReferenceProfile | None = None,
    others: OtherObjects = OtherObjects(),  # noqa: B008  # frozen
) -> Decision:
    """Filter all nodes and score those that are left."""
    world = World(nodes, pods_by_node, pod, profile or ReferenceProfile(), others)
    names = [node.metadata.name for node in nodes]

    for plugin in world.profile.filters:
        verdict = PRE_FILTERS[plugin](world) if plugin in PRE_FILTERS else None
        if verdict is not None:
            everywhere = Rejection(plugin, verdict[0], tuple(verdict[1]))
            return Decision(dict.fromkeys(names, everywhere), {}, ", ".join(verdict[1]))
    searched: set[str] | None = None
    if "NodeAffinity" in world.profile.filters:
        searched = nodes_named_by_affinity(pod)

    rejections: dict[str, Rejection] = {}
    feasible: list[Node] = []
    for node in nodes:
        if searched is not None and node.metadata.name not in searched:
            reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
            rejections[node.metadata.name] = Rejection("", UNRESOLVABLE, (reason,))
            continue
        rejection = first_rejection(world, node)
        if rejection is not None:
            rejections[node.metadata.name] = rejection
        else:
            feasible.append(node)

    scores: dict[str, dict[str, int]] = {node.metadata.name: {} for node in feasible}
    for plugin, weight in world.profile.weights.items():
        for name, score in SCORES[plugin](world, feasible).items():
            scores[name][plugin] = score * weight
    return Decision(rejections, scores)


def first_rejection(world: World, node: Node) -> Rejection | None:
    for plugin in world.profile.filters:
        verdict = FILTERS[plugin](world, node)
        if verdict is not None:
            code, reasons = verdict
            return Rejection(plugin, code, tuple(reasons))
    return None


def would_take(node: Node, pods: Sequence[Pod], pod: Pod) -> bool:
    """Whether a node with these pods on it would take another one; for ``Checkers``."""
    return not decide([node], {node.metadata.name: pods}, pod).rejections

"""What is known about one pod on one cluster; the content of ``ksched explain -o json``."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Rejection(Struct, frozen=True, rename="camel"):
    """A plugin's objection to a node."""

    plugin: str
    reasons: list[str]


class NodeVerdict(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The verdict on one node.

    A scheduler stops at the first plugin that rejects: the first of ``rejections`` is the one that
    its message counts. ``scores`` are normalised and weighted, by plugin; there are none when fewer
    than two nodes fit, because nothing is scored then.
    """

    node: str
    rejections: list[Rejection] = []
    scores: dict[str, int] = {}

    @property
    def fits(self) -> bool:
        return not self.rejections

    @property
    def total(self) -> int:
        return sum(self.scores.values())


class Preemption(Struct, frozen=True, rename="camel"):
    """What preemption would do: evict ``victims`` (``namespace/name``) from ``node``."""

    node: str
    victims: list[str]


class Change(Struct, frozen=True, rename="camel"):
    """Steps of one ``kind`` (pod, node, eviction) that make the pod fit on each of ``nodes``.

    ``isSmallest``: every smaller set of the offered steps was tried and does not.
    """

    kind: str
    nodes: list[str]
    steps: list[str]
    is_smallest: bool


class Alike(Struct, frozen=True, rename="camel"):
    """Nodes that are rejected for the same reasons, by name."""

    rejections: list[Rejection]
    nodes: list[str]


def alike(verdicts: Iterable[NodeVerdict]) -> list[Alike]:
    """Put together what fails alike, the most frequent first."""
    nodes: dict[tuple[tuple[str, tuple[str, ...]], ...], list[str]] = {}
    rejections: dict[object, list[Rejection]] = {}
    for one in verdicts:
        key = tuple((reason.plugin, tuple(reason.reasons)) for reason in one.rejections)
        nodes.setdefault(key, []).append(one.node)
        rejections.setdefault(key, one.rejections)
    groups = [Alike(rejections[key], sorted(names)) for key, names in nodes.items()]
    return sorted(groups, key=lambda group: (-len(group.nodes), group.nodes))


class Explanation(Struct, frozen=True, rename="camel"):
    """Why a pod is where it is, or nowhere.

    ``node`` is where the pod is placed; the verdicts are then those of the cluster without it.
    ``message`` is the one of kube-scheduler's PodScheduled condition, for a pod that fits nowhere.
    """

    pod: str
    node: str
    profile: str
    priority: int
    nominated_node: str
    gates: list[str]
    """Why the pod is not tried yet, by PreEnqueue plugin."""
    notes: list[str]
    message: str
    num_all_nodes: int
    nodes: list[NodeVerdict]
    preemption: Preemption | None = None
    changes: list[Change] = []
    """What would make a pod fit that fits nowhere, the cheapest first."""

    @property
    def feasible(self) -> list[NodeVerdict]:
        """The nodes that fit, the best first."""
        return sorted((one for one in self.nodes if one.fits), key=lambda one: -one.total)

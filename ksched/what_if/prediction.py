"""What becomes of the pods and nodes; the content of ``ksched what-if -o json``.

Amounts are integers: cpu in thousandths of a core, everything else in its own unit (bytes, pieces).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """Why a pod has to be placed."""

    PENDING = "pending"
    """It is pending now."""
    DRAINED = "drained"
    """Its controller makes it for a pod that was drained."""
    SCALED = "scaled"
    """Its workload has more replicas."""
    PREEMPTED = "preempted"
    """Its controller makes it for a pod that was evicted for a pod of higher priority."""


class Fate(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that has to be placed, and where it goes: to ``after``, or nowhere, with a message.

    ``replaces`` is the pod that it is made for, which is on ``before`` now. Names of new pods are
    examples: their controller adds random letters.
    """

    pod: str
    workload: str
    cause: Cause
    replaces: str = ""
    before: str = ""
    after: str = ""
    message: str = ""
    is_undecided: bool = False
    """Nothing can be said about it; the message has the reason."""


class Eviction(Struct, frozen=True, rename="camel"):
    """A pod evicted from a node for another of higher priority."""

    pod: str
    node: str
    preemptor: str


class Departure(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that ends and is not made again."""

    pod: str
    node: str
    reason: str
    is_intended: bool = False
    """Its workload was scaled down."""


class Staying(Struct, frozen=True, rename="camel"):
    """A pod that a drain leaves where it is."""

    pod: str
    node: str
    reason: str


class NodeUse(Struct, frozen=True, rename="camel"):
    """What a node's pods request before and after; a node that is added has nothing before."""

    node: str
    is_schedulable: bool
    allocatable: dict[str, int]
    before: dict[str, int] | None
    after: dict[str, int]
    pods_in: int
    pods_out: int

    @property
    def is_changed(self) -> bool:
        return self.before != self.after or bool(self.pods_in or self.pods_out)


class Headroom(Struct, frozen=True, rename="camel"):
    """What is free on nodes that take pods: together, and the most on one of them."""

    resource: str
    allocatable_before: int
    allocatable_after: int
    free_before: int
    free_after: int
    largest_before: int
    largest_after: int


class Shortage(Struct, frozen=True, rename="camel"):
    """Nodes that reject a pod for the same reason."""

    reason: str
    nodes: list[str]


class Capacity(Struct, frozen=True, rename="camel"):
    """How many more of a pod fit, without evictions, after the changes.

    ``runs_out`` are the nodes that took some, or could have, by what they are short of in the end,
    the most frequent first; ``never`` those that take none from the start.
    """

    pod: str
    fits: int
    is_complete: bool
    """Otherwise counting stopped, and more fit."""
    by_node: dict[str, int]
    runs_out: list[Shortage]
    never: list[Shortage]
    message: str
    """What a scheduler says about the next one."""


class Prediction(Struct, frozen=True, rename="camel"):
    """The cluster after the changes, when nothing more can be placed."""

    changes: list[str]
    notes: list[str]
    num_nodes: int
    num_pods: int
    fates: list[Fate]
    evictions: list[Eviction]
    departures: list[Departure]
    staying: list[Staying]
    nodes: list[NodeUse]
    headroom: list[Headroom]
    capacity: Capacity | None = None

    @property
    def placed(self) -> list[Fate]:
        return [one for one in self.fates if one.after]

    @property
    def pending(self) -> list[Fate]:
        return [one for one in self.fates if not one.after and not one.is_undecided]

    @property
    def undecided(self) -> list[Fate]:
        return [one for one in self.fates if one.is_undecided]

    @property
    def is_worse(self) -> bool:
        """Whether pods are pending, or gone, that are not so now."""
        lost = any(not one.is_intended for one in self.departures)
        return lost or any(one.cause != Cause.PENDING for one in self.pending)

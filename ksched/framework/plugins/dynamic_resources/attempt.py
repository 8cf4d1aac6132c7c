"""The claims of a pod during one attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ksched.api.devices import AllocationResult, ResourceClaim
from ksched.api.node_selectors import NodeTerms, compile_node_selector
from ksched.framework.plugins.dynamic_resources.extended_resources import ExtendedRequests
from ksched.framework.plugins.dynamic_resources.verdicts_by_view import VerdictsByView

NOT_SEARCHED = -1


class SpecialClaim:
    """The claim for a pod's extended resources; always the last of its claims."""

    __slots__ = ("backed", "chosen", "is_stored", "others")

    def __init__(self, backed: Sequence[str], others: Sequence[str], is_stored: bool) -> None:
        self.backed = backed
        """Resources that are backed by devices on nodes that do not offer them."""
        self.others = others
        """Other resources that a node must have."""
        self.is_stored = is_stored
        """Whether it exists: from an earlier attempt, or created by this one."""
        self.chosen: ExtendedRequests | None = None
        """Its requests on the selected node."""


class Wanted(NamedTuple):
    """Claims without devices, with what is known about nodes."""

    requests: ExtendedRequests | None
    """For extended resources, on some of the nodes."""
    verdicts: VerdictsByView
    keys: tuple[str, ...]


class Attempt:
    """The data that extension points of one attempt share."""

    __slots__ = (
        "allocations",
        "claims",
        "has_alternatives",
        "searched",
        "selectors",
        "special",
        "unallocated",
        "unavailable",
        "wanted",
    )

    def __init__(self) -> None:
        self.claims: list[ResourceClaim] = []
        self.special: SpecialClaim | None = None
        self.has_alternatives = False
        """Whether some request prefers one device to another; else all nodes score the same."""
        self.unallocated: list[int] = []
        """Positions of the claims that have no devices yet."""
        self.selectors: dict[int, NodeTerms] = {}
        """By position of an allocated claim, the nodes that can use its devices."""
        self.unavailable: set[int] = set()
        """Positions of claims because of which a node was rejected."""
        self.wanted: Wanted | None = None
        """What was looked up last for the claims without devices."""
        self.searched: dict[VerdictsByView, int] = {}
        """The generation of the views for which PreFilter has found all results of searches."""
        self.allocations: dict[int, AllocationResult] = {}
        """By position, the allocation chosen at Reserve."""

    def found_all(self, verdicts: VerdictsByView, generation: int) -> None:
        """Note that PreFilter has searched some nodes; others may have the same verdicts."""
        known = self.searched.get(verdicts, generation)
        self.searched[verdicts] = generation if known == generation else NOT_SEARCHED

    @property
    def user_claims(self) -> list[ResourceClaim]:
        return self.claims[:-1] if self.special is not None else self.claims

    def add(self, claims: Sequence[ResourceClaim], special: SpecialClaim | None) -> None:
        self.claims = list(claims)
        self.special = special
        self.has_alternatives = any(
            request.first_available for claim in claims for request in claim.spec.devices.requests
        )
        for position, claim in enumerate(claims):
            allocation = claim.status.allocation
            if allocation is None:
                self.unallocated.append(position)
            elif allocation.node_selector is not None:
                self.selectors[position] = compile_node_selector(allocation.node_selector)

"""A pod group: its terms, and its members counted by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from ksched.cache.pod_info import PodInfo

DEFAULT_TIMEOUT_SECONDS = 60.0


class GroupKey(NamedTuple):
    """Names a group; groups of different dialects never meet."""

    dialect: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class TopologyLevel(NamedTuple):
    """A node label in whose values a group is to stay together."""

    key: str
    is_required: bool = True


class Terms(Struct, frozen=True, eq=False):
    """The requirements of a group, independent of the dialect."""

    minimum: int = 1
    """How many members must be placed at once."""
    uid: str = ""
    """Of the group's object; a group that was made anew under its old name is another one."""
    min_by_role: Mapping[str, int] = {}
    min_resources: Mapping[str, int] = {}
    """What must be free in all before a member is placed."""
    expected: int = 0
    """How many members must exist before any is tried, if that is more than the minimum."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    priority: int | None = None
    topology: tuple[TopologyLevel, ...] = ()
    is_evicted_whole: bool = False
    was_satisfied: bool = False
    """Whether the group's object records that the minimum was placed before."""
    created: str | None = None
    problem: str = ""
    """Why the group cannot be understood; its members are gated."""


class Mark(Struct, frozen=True):
    """The group reference of a pod."""

    key: GroupKey
    role: str = ""
    terms: Terms | None = None
    """In dialects without a group object."""


class Member:
    """A pod of a group."""

    __slots__ = ("is_assumed", "is_bound", "is_pending", "mark", "pod")

    def __init__(self, pod: PodInfo, mark: Mark) -> None:
        self.pod = pod
        self.mark = mark
        self.is_pending = False
        """Whether it waits for a node, and for this scheduler to choose it."""
        self.is_assumed = False
        self.is_bound = False

    @property
    def state(self) -> MemberState:
        if self.pod.is_terminating:
            return LEAVING
        if self.is_bound:
            return BOUND
        if self.is_assumed:
            return ASSUMED
        if not self.is_pending:
            return ELSEWHERE
        return GATED if self.pod.template.spec.scheduling_gates else AVAILABLE


MemberState = str

AVAILABLE: MemberState = "available"
"""Waits for a node and may be tried."""
GATED: MemberState = "gated"
"""Has scheduling gates."""
ASSUMED: MemberState = "assumed"
"""Has a node that the API server has not confirmed."""
BOUND: MemberState = "bound"
LEAVING: MemberState = "leaving"
"""Is being deleted, wherever it is."""
ELSEWHERE: MemberState = "elsewhere"
"""Waits for another scheduler."""


class Group:
    """The members of a group, counted by state. Written by ``Groups`` only."""

    def __init__(self, key: GroupKey, plugin: str) -> None:
        self.key = key
        self.plugin = plugin
        """The plugin name with which members are gated and rejected."""
        self.object_terms: Terms | None = None
        self.members: dict[str, Member] = {}
        self.counts: Counter[MemberState] = Counter()
        self.is_satisfied = False
        """Whether the minimum was placed once: later members are ordinary pods."""
        self.is_ready = False
        """Whether enough members exist; as of the last change."""
        self.last_reason = ""
        """Why it was rejected last; for the group cycle."""
        self.short_slots = 0
        """How many of its members had no place then."""
        self._pod_terms: Counter[Terms] = Counter()
        self._roles: dict[MemberState, Counter[str]] = {}

    @property
    def terms(self) -> Terms | None:
        """What holds for the group. Of members that disagree, the largest minimum counts."""
        if self.object_terms is not None or not self._pod_terms:
            return self.object_terms
        return max(self._pod_terms, key=lambda terms: (bool(terms.problem), terms.minimum))

    # -- counting -------------------------------------------------------------------------------

    def count(self, member: Member, state: MemberState, sign: int) -> None:
        """Add or take away a member in one of the counts."""
        self.counts[state] += sign
        if member.mark.role:
            self._roles.setdefault(state, Counter())[member.mark.role] += sign
        terms = member.mark.terms
        if terms is not None:
            self._pod_terms[terms] += sign
            if not self._pod_terms[terms]:
                del self._pod_terms[terms]

    @property
    def placed(self) -> int:
        """How many members count on a node."""
        return self.counts[ASSUMED] + self.counts[BOUND]

    def in_role(self, role: str, *states: MemberState) -> int:
        return sum(self._roles[state][role] for state in states if state in self._roles)

    def available(self) -> list[Member]:
        """The members that may be tried now."""
        return [member for member in self.members.values() if member.state == AVAILABLE]

    # -- what is missing ------------------------------------------------------------------------

    @property
    def need(self) -> int:
        """How many members must be placed in one decision; 0 if each may go by itself.

        After the minimum was placed once, members that are missing are decided together only if
        all of them exist: otherwise the others have finished or will not come back.
        """
        terms = self.terms
        if terms is None:
            return 0
        missing = terms.minimum - self.placed
        if self.is_satisfied and missing > self.counts[AVAILABLE]:
            return 0
        return max(missing, *self.role_needs().values(), 0)

    def role_needs(self) -> dict[str, int]:
        """The same by role, as far as members of a role are missing."""
        terms = self.terms
        if terms is None or not terms.min_by_role:
            return {}
        needs = {
            role: minimum - self.in_role(role, ASSUMED, BOUND)
            for role, minimum in terms.min_by_role.items()
        }
        return {role: need for role, need in needs.items() if need > 0}

    @property
    def is_bound(self) -> bool:
        """Whether the API server has confirmed the minimum."""
        terms = self.terms
        return (
            terms is not None
            and self.counts[BOUND] >= terms.minimum
            and all(self.in_role(role, BOUND) >= n for role, n in terms.min_by_role.items())
        )

    @property
    def must_be_decided(self) -> bool:
        """Whether a member may not be tried by itself."""
        terms = self.terms
        return terms is None or bool(terms.problem) or self.need > 0

    def why_gated(self) -> str:
        """Why no member may be tried yet; empty if they may.

        The first two sentences are kube-scheduler's.
        """
        terms = self.terms
        if terms is None:
            return f'waiting for pods\'s pod group "{self.key.name}" to appear in scheduling queue'
        if terms.problem:
            return terms.problem
        if self.is_satisfied:
            return ""
        counts = self.counts
        exist = counts[AVAILABLE] + self.placed
        if exist < terms.minimum:
            return WAITING_FOR_MEMBERS
        if exist + counts[GATED] + counts[ELSEWHERE] < terms.expected:
            return f"{WAITING_FOR_MEMBERS}: {terms.expected} are announced"
        for role, minimum in terms.min_by_role.items():
            if self.in_role(role, AVAILABLE, ASSUMED, BOUND) < minimum:
                return f"{WAITING_FOR_MEMBERS}: {minimum} of role {role}"
        return ""


WAITING_FOR_MEMBERS = "waiting for minCount pods from a gang to appear in scheduling queue"

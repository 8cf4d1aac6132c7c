"""A pod group: its terms, and its members counted by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from ksched.api.objects import Pod
from ksched.cache.pod_info import PodInfo

DEFAULT_TIMEOUT_SECONDS = 60.0
JOBSET = "jobset.sigs.k8s.io/jobset-name"
"""Label of the pods of a JobSet."""
LONGEST_NAME = 253
"""Of an object. An annotation may hold a longer text, which would be in the pod's condition."""


class GroupKey(NamedTuple):
    """Names a group; the same name in two dialects is two groups."""

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
    """Of the group's object: one recreated under the same name is a different group."""
    min_by_role: Mapping[str, int] = {}
    min_resources: Mapping[str, int] = {}
    """What must be free in all before a member is placed."""
    expected: int = 0
    """How many members must exist before the first attempt, if more than the minimum."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    priority: int | None = None
    topology: tuple[TopologyLevel, ...] = ()
    is_evicted_whole: bool = False
    is_admitted_first: bool = False
    """Whether its controller creates no pods before the group is admitted."""
    was_admitted: bool = False
    """Whether the group's object records that it was."""
    was_satisfied: bool = False
    """Whether the group's object records that the minimum was placed before."""
    succeeded: int = 0
    """How many of its pods have succeeded, as the group's object records it."""
    failed: int = 0
    created: str | None = None
    problem: str = ""
    """What is invalid in the group's object or annotations; its members are gated."""

    @property
    def has_required_topology(self) -> bool:
        return any(level.is_required for level in self.topology)


class Mark(Struct, frozen=True):
    """The group reference of a pod."""

    key: GroupKey
    role: str = ""
    terms: Terms | None = None
    """In dialects without a group object."""


def run_of(pod: Pod) -> str:
    """The UID of the controller whose pods are one run of a group; empty if that is not known.

    Of a JobSet every job is a controller, and all of them are one run.
    """
    if JOBSET in pod.metadata.labels:
        return ""
    owners = pod.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller), "")


class Member:
    """A pod of a group."""

    __slots__ = ("is_assumed", "is_bound", "is_pending", "mark", "pod", "run")

    def __init__(self, pod: PodInfo, mark: Mark) -> None:
        self.pod = pod
        self.mark = mark
        self.run = run_of(pod.pod)
        self.is_pending = False
        """Whether it has no node yet and this scheduler is responsible for it."""
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
"""Pending, without scheduling gates."""
GATED: MemberState = "gated"
"""Has scheduling gates."""
ASSUMED: MemberState = "assumed"
"""On a node; the API server has not confirmed the binding."""
BOUND: MemberState = "bound"
LEAVING: MemberState = "leaving"
"""Terminating, pending or bound."""
ELSEWHERE: MemberState = "elsewhere"
"""Pending; another scheduler is responsible for it."""


class Group:
    """The members of a group, counted by state. Written by ``Groups``, except as noted."""

    def __init__(self, key: GroupKey, plugin: str) -> None:
        self.key = key
        self.plugin = plugin
        """The plugin name with which members are gated and rejected."""
        self.object_terms: Terms | None = None
        self.uid = ""
        """Of its object; of the last one, if it was deleted."""
        self.members: dict[str, Member] = {}
        self.counts: Counter[MemberState] = Counter()
        self.is_satisfied = False
        """Whether the minimum was placed once: later members are scheduled one by one."""
        self.was_ever_satisfied = False
        """Whether this process knows of a time when it was."""
        self.noted_minimum = 0
        """The minimum as of the last change."""
        self.is_raised = False
        """Whether the minimum has become larger since it was placed."""
        self.is_ready = False
        """Whether enough members exist; as of the last change."""
        self.gate_reason = ""
        """Why it was gated then."""
        self.last_reason = ""
        """Why it was rejected last. Written by the group cycle."""
        self.is_warned_of_priorities = False
        """Whether an Event said that its members differ in priority. Written by ``Attempts``."""
        self.short_slots = 0
        """How many of its members found no node then. Written by the group cycle."""
        self.is_ours = False
        """Whether a member is, or was, a pod of one of our profiles: we write the status then."""
        self.is_admitted = False
        """Whether there was room for its minimum resources once. Where pods are created after
        that only."""
        self.succeeded = 0
        """How many of its pods have succeeded, as of the last read: the watch excludes them."""
        self.succeeded_by_run: Counter[str] = Counter()
        """The same by controller, for those that have one; empty before the first read."""
        self.failed = 0
        self.unread_ends = 0
        """How many members left their nodes without being deleted, since ended pods were read
        last."""
        self.is_read_idle = False
        """Whether ended pods were read since its last member left its node."""
        self.within: frozenset[str] | None = None
        """The nodes on which its members are being tried. Written by the group cycle."""
        self.oldest = ""
        """When its first member was created."""
        self._runs: Counter[str] = Counter()
        """Members by controller."""
        self.has_several_runs = False
        """Whether members of several controllers existed at a time."""
        self._pod_terms: Counter[Terms] = Counter()
        self._largest: Terms | None = None
        """The largest of them; it has to be found again if it is none of them any more."""
        self._roles: dict[MemberState, Counter[str]] = {}

    @property
    def terms(self) -> Terms | None:
        """The terms in effect. If the annotations of members differ, the largest minimum counts."""
        if self.object_terms is not None or not self._pod_terms:
            return self.object_terms
        if self._largest not in self._pod_terms:
            self._largest = max(self._pod_terms, key=_size)
        return self._largest

    def add(self, member: Member) -> None:
        self.members[member.pod.uid] = member
        created = member.pod.pod.metadata.creation_timestamp
        if created:
            self.oldest = min(created, self.oldest or created)

    # -- counting -------------------------------------------------------------------------------

    def count(self, member: Member, state: MemberState, sign: int) -> None:
        """Add a member to the counts of a state (``sign`` 1), or remove it (-1)."""
        self.counts[state] += sign
        if state in (ASSUMED, BOUND):
            self.is_read_idle = False
        if member.run:
            self._runs[member.run] += sign
            if not self._runs[member.run]:
                del self._runs[member.run]
            self.has_several_runs = self.has_several_runs or len(self._runs) > 1
        if member.mark.role:
            self._roles.setdefault(state, Counter())[member.mark.role] += sign
        terms = member.mark.terms
        if terms is not None:
            self._pod_terms[terms] += sign
            if not self._pod_terms[terms]:
                del self._pod_terms[terms]
            elif self._largest is None or _size(terms) > _size(self._largest):
                self._largest = terms

    @property
    def placed(self) -> int:
        """How many members are assumed or bound."""
        return self.counts[ASSUMED] + self.counts[BOUND]

    @property
    def is_idle(self) -> bool:
        """Whether no member is on a node."""
        return not self.placed

    @property
    def finished(self) -> int:
        """How many succeeded pods count towards the minimum: those of the run of the members.

        Where no controller tells, 0 if they reach it: later pods belong to another run. So they may
        if no member is on a node: then the succeeded pods count if they still exist.
        """
        terms = self.terms
        if terms is None or (self.is_idle and not self.is_read_idle):
            return 0
        if self.succeeded_by_run and self._runs and not self.has_several_runs:
            [run] = self._runs
            return self.succeeded_by_run[run]
        return 0 if self.succeeded >= terms.minimum else self.succeeded

    def in_role(self, role: str, *states: MemberState) -> int:
        return sum(self._roles[state][role] for state in states if state in self._roles)

    def in_phase(self, phase: str) -> int:
        """How many members are in a phase of pods."""
        return sum(member.pod.pod.status.phase == phase for member in self.members.values())

    def nodes(self) -> list[str]:
        """The nodes of the members that are placed."""
        return [
            member.pod.node_name
            for member in self.members.values()
            if member.is_assumed or member.is_bound
        ]

    def available(self) -> list[Member]:
        """The members in state AVAILABLE."""
        return [member for member in self.members.values() if member.state == AVAILABLE]

    # -- what is needed -------------------------------------------------------------------------

    @property
    def need(self) -> int:
        """How many members must be placed in one group cycle; 0 if each is scheduled alone.

        After the minimum was placed once, replacements are placed together only if all that are
        missing exist: otherwise the others have finished or will not be recreated.
        """
        terms = self.terms
        if terms is None:
            return 0
        missing, roles = terms.minimum - self.placed - self.finished, self.role_needs()
        if self.is_satisfied and (
            missing > self.counts[AVAILABLE]
            or any(need > self.in_role(role, AVAILABLE) for role, need in roles.items())
        ):
            return 0
        return max(missing, sum(roles.values()), 0)

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
            and self.counts[BOUND] > 0
            and self.counts[BOUND] + self.finished >= terms.minimum
            and all(self.in_role(role, BOUND) >= n for role, n in terms.min_by_role.items())
        )

    @property
    def is_broken(self) -> bool:
        """Whether it had its minimum once, and what is left of it on nodes lacks members that must
        be placed together."""
        return self.is_satisfied and self.placed > 0 and self.need > 0

    @property
    def must_be_decided(self) -> bool:
        """Whether members are scheduled in a group cycle only."""
        terms = self.terms
        return terms is None or bool(terms.problem) or self.need > 0

    def why_gated(self) -> str:
        """Why the members are gated; empty if they are not.

        The first two sentences are kube-scheduler's.
        """
        terms = self.terms
        if terms is None:
            name = self.key.name[:LONGEST_NAME]
            return f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
        if terms.problem:
            return terms.problem
        if self.is_satisfied:
            return ""
        counts = self.counts
        exist = counts[AVAILABLE] + self.placed
        if exist + self.finished < terms.minimum:
            return WAITING_FOR_MEMBERS
        if exist + self.finished + counts[GATED] + counts[ELSEWHERE] < terms.expected:
            return f"{WAITING_FOR_MEMBERS}: {terms.expected} are announced"
        for role, minimum in terms.min_by_role.items():
            if self.in_role(role, AVAILABLE, ASSUMED, BOUND) < minimum:
                return f"{WAITING_FOR_MEMBERS}: {minimum} of role {role[:LONGEST_NAME]}"
        return ""


def _size(terms: Terms) -> tuple[bool, int]:
    return bool(terms.problem), terms.minimum


WAITING_FOR_MEMBERS = "waiting for minCount pods from a gang to appear in scheduling queue"

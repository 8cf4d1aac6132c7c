"""All pod groups and their members; the only writer of their counts.

Input: pending pods from the watch, assumed and bound pods from the cache, group objects from the
listers. Counts are incremental: a member whose state changes moves from one count to another. A
group exists as long as it has members or an object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import Protocol

from ksched.api.objects import Pod
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.groups.group import ASSUMED, AVAILABLE, BOUND, Group, GroupKey, Mark, Member, Terms
from ksched.groups.report import Report

WOKEN = 16
"""How many members of a complete group are activated; some may be deleted before they are popped.
If all are, the others wait for the flush of waiting pods."""


class Dialect(Protocol):
    """Reads one kind of group marks and group objects."""

    name: str
    plugin: str
    """The plugin's name in configurations and messages."""

    def mark_of(self, pod: Pod) -> Mark | None:
        """The group mark of a pod."""
        ...

    def terms_of(self, key: GroupKey) -> Terms | None:
        """The terms in the group's object; ``None`` if there is none."""
        ...

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        """Call ``changed`` after every change of a group's object."""
        ...

    def report(self, group: Group, wall: float) -> Report | None:
        """Return the desired status of the group's object; ``None`` if there is no object."""
        ...


class Protection:
    """For which groups room is reserved; a plugin's arguments set it."""

    def __init__(self) -> None:
        self.after_seconds = 0.0
        """How long a group waits first; 0 if no room is ever reserved."""
        self.max_percentage = 25
        """Of every resource of the cluster, for all groups together."""


class Groups:
    """Groups by key, members by UID.

    One for all profiles: plugins get it by ``handle.listers.view(Groups)``.
    """

    def __init__(self, listers: Listers) -> None:
        self.listers = listers
        self.is_on = False
        """Whether any dialect is registered; without one a pod costs nothing here."""
        self.wake: Callable[[Iterable[PodInfo]], None] = lambda pods: None
        """Called with the members to activate when a group is no longer gated."""
        self.regated: Callable[[Group], None] = lambda group: None
        """Called with a group that is gated for another reason than before."""
        self.stalled: Callable[[Group], None] = lambda group: None
        """Called with a group that is gated again."""
        self.wall: Callable[[], float] = lambda: 0.0
        """Seconds since the epoch."""
        self.protection = Protection()
        self.generation = 0
        """Changes with every count and every term."""
        self.scheduler_names: Collection[str] = ()
        """Of our profiles."""
        self.changed: Callable[[GroupKey], None] = lambda key: None
        """Called after every change that may concern the status of a group's object."""
        self.ends_unknown: Callable[[str], None] = lambda namespace: None
        """Called with the namespace of a group that may have ended members."""
        self._dialects: dict[str, Dialect] = {}
        self._readers: dict[str, set[str]] = {}
        """The profiles in which each dialect is enabled, by its name."""
        self._order: Sequence[Dialect] = ()
        self._groups: dict[GroupKey, Group] = {}
        self._group_of: dict[str, Group] = {}

    def read(self, dialect: Dialect, profile: str) -> None:
        """Register a dialect for the pods of a profile; its plugin's constructor calls this.

        Of several marks on a pod, the one whose dialect is first in PRECEDENCE counts.
        """
        self._readers.setdefault(dialect.name, set()).add(profile)
        if dialect.name in self._dialects:
            return
        self.is_on = True
        self._dialects[dialect.name] = dialect
        self._order = sorted(self._dialects.values(), key=lambda one: PRECEDENCE[one.name])
        # For all profiles, not only for the plugin that is being built.
        with self.listers.collecting():
            dialect.follow(self._object_changed)

    # -- reading --------------------------------------------------------------------------------

    def of(self, uid: str) -> Group | None:
        """The group of a pod."""
        return self._group_of.get(uid)

    def get(self, key: GroupKey) -> Group | None:
        return self._groups.get(key)

    def key_of(self, pod: Pod) -> GroupKey | None:
        """Return the key of the group that a pod refers to."""
        mark = self._mark_of(pod)
        return None if mark is None else mark.key

    def report(self, key: GroupKey) -> Report | None:
        """Return the desired status of a group's object, if there is one."""
        group = self._groups.get(key)
        if group is None or not (group.is_ours or group.is_admitted):
            return None
        return self._dialects[key.dialect].report(group, self.wall())

    def to_decide(self, uid: str) -> Group | None:
        """The group whose group cycle a popped pod starts; ``None`` if it is scheduled alone."""
        group = self._group_of.get(uid)
        return group if group is not None and group.must_be_decided else None

    def why_gated(self, uid: str) -> str:
        """Why a pod is gated by its group; empty if it is not."""
        group = self._group_of.get(uid)
        return "" if group is None else self._why_gated(group)

    def _why_gated(self, group: Group) -> str:
        if self.may_be_old(group) and self._is_old(group):
            _satisfy(group)
        return group.why_gated()

    def may_be_old(self, group: Group) -> bool:
        """Whether a group that is gated may have been placed before this process started.

        If so its other members have finished or are deleted. That is certain after its timeout.
        """
        has_bound = group.counts[BOUND] > 0 and not group.was_ever_satisfied
        return has_bound and bool(group.why_gated())

    def _is_old(self, group: Group) -> bool:
        """Whether a group has existed for longer than its timeout."""
        terms = group.terms
        if terms is None:
            return False
        times = [text for text in (terms.created, group.oldest) if text]
        if not times:
            return False
        age = self.wall() - datetime.fromisoformat(min(times)).timestamp()
        return age > terms.timeout_seconds

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)

    # -- changes from watch and cache -----------------------------------------------------------

    def pending(self, pod: PodInfo, *, is_ours: bool) -> None:
        """Apply a new or changed pod without a node.

        kube-scheduler: AddPodGroupMember, UpdatePodGroupMember.
        """
        member = self._member(pod)
        if member is None:
            return
        if member.is_assumed:
            # The API server does not know where it is yet.
            pod = pod.on_node(member.pod.node_name)
        self._set(member, pod, is_pending=is_ours, is_assumed=member.is_assumed)

    def placed(self, pod: PodInfo, *, is_assumed: bool) -> None:
        """Apply a pod that was assumed or bound, or has changed since."""
        member = self._member(pod)
        if member is not None:
            is_pending = is_assumed and member.is_pending
            self._set(
                member, pod, is_pending=is_pending, is_assumed=is_assumed, is_bound=not is_assumed
            )

    def displaced(self, uid: str) -> None:
        """Apply that a pod was removed from its node: it is pending again, if it still exists."""
        group = self._group_of.get(uid)
        if group is not None:
            member = group.members[uid]
            self._set(member, member.pod, is_pending=member.is_pending)

    def gone(self, uid: str) -> None:
        """Remove a pod that was deleted or has ended. kube-scheduler: RemovePodGroupMember."""
        group = self._group_of.pop(uid, None)
        if group is None:
            return
        member = group.members.pop(uid)
        state = member.state
        group.count(member, state, -1)
        self.generation += 1
        if state == BOUND:
            group.unread_ends += 1
            self.ends_unknown(group.key.namespace)
        if not group.members:
            self._empty(group)
        else:
            self._changed(group)

    def satisfied(self, group: Group) -> None:
        """Record that the minimum of a group is placed: its members are no longer gated."""
        _satisfy(group)
        self._changed(group)

    @property
    def admits(self) -> bool:
        """Whether there may be groups whose pods are created after their admission only."""
        return VOLCANO in self._dialects

    def admit(self, group: Group) -> None:
        """There is room for the pods of a group: its controller may create them."""
        group.is_admitted = True
        self.changed(group.key)

    def decided(self, group: Group) -> None:
        """Call when a group cycle has ended: the status of its object may change."""
        self.changed(group.key)

    def ends_read(
        self,
        group: Group,
        succeeded: Counter[str],
        failed: int,
        known_ends: int,
        *,
        was_idle: bool,
    ) -> None:
        """Apply the counts of ended pods, of those that succeeded by run.

        The last two are as they were before the read.

        A group whose other members have succeeded is complete with those that are left.
        """
        group.unread_ends -= known_ends
        before = group.succeeded, group.failed, group.finished
        group.is_read_idle = was_idle and group.is_idle
        group.succeeded, group.failed = succeeded.total(), failed
        group.succeeded_by_run = succeeded
        is_other = before != (group.succeeded, failed, group.finished)
        if known_ends or is_other or self._why_gated(group) != group.gate_reason:
            self._changed(group)

    # -- counting -------------------------------------------------------------------------------

    def _member(self, pod: PodInfo) -> Member | None:
        """Return the member of a pod, created if the pod or its group reference is new."""
        group = self._group_of.get(pod.uid)
        if group is not None and _is_same(group.members[pod.uid].pod, pod):
            return group.members[pod.uid]
        mark = self._mark_of(pod.pod)
        if group is not None:
            member = group.members[pod.uid]
            if mark is not None and member.mark.key == mark.key:
                return member
            self.gone(pod.uid)
        if mark is None:
            return None
        member = Member(pod, mark)
        group = self._group(mark.key)
        group.add(member)
        group.is_ours = group.is_ours or pod.template.spec.scheduler_name in self.scheduler_names
        self._group_of[pod.uid] = group
        group.count(member, member.state, 1)
        return member

    def _mark_of(self, pod: Pod) -> Mark | None:
        """The mark that counts; in a profile without a dialect's plugin its marks mean nothing."""
        profile = pod.spec.scheduler_name
        is_foreign = profile not in self.scheduler_names
        for one in self._order:
            if is_foreign or profile in self._readers[one.name]:
                mark = one.mark_of(pod)
                if mark is not None:
                    return mark
        return None

    def _group(self, key: GroupKey) -> Group:
        group = self._groups.get(key)
        if group is None:
            dialect = self._dialects[key.dialect]
            group = self._groups[key] = Group(key, dialect.plugin)
            self._describe(group, dialect.terms_of(key))
        return group

    def _set(
        self,
        member: Member,
        pod: PodInfo,
        *,
        is_pending: bool,
        is_assumed: bool = False,
        is_bound: bool = False,
    ) -> None:
        group = self._group_of[pod.uid]
        before, is_other = member.state, not _is_same(member.pod, pod)
        terms = group.terms if is_other else None
        group.count(member, before, -1)
        member.pod = pod
        member.is_pending, member.is_assumed, member.is_bound = is_pending, is_assumed, is_bound
        mark = self._dialects[group.key.dialect].mark_of(pod.pod) if is_other else None
        if mark is not None:
            member.mark = mark
        after = member.state
        group.count(member, after, 1)
        if (before, after) == (AVAILABLE, ASSUMED) and not is_other:
            # Thousands at once; as many exist as before, so nothing else changes.
            self.generation += 1
            self.changed(group.key)
        else:
            self._changed(group, is_easier=is_other and _is_easier(terms, group.terms))

    def _changed(self, group: Group, *, is_easier: bool = False) -> None:
        """Activate the members when the group is no longer gated, or gated for another reason."""
        self.generation += 1
        self._note_satisfied(group)
        was_ready, before = group.is_ready, group.gate_reason
        group.gate_reason = self._why_gated(group)
        group.is_ready = not group.gate_reason
        if group.is_ready:
            if is_easier or not was_ready:
                self._wake(group)
        else:
            if was_ready:
                self.stalled(group)
            if group.counts[AVAILABLE]:
                if was_ready:
                    # PreEnqueue gates them, and their conditions will say why.
                    self._wake(group)
                elif before not in ("", group.gate_reason):
                    self.regated(group)
                # Missing members may have succeeded before this process started.
                self.ends_unknown(group.key.namespace)
        self.changed(group.key)

    def _empty(self, group: Group) -> None:
        """Reset a group without members: later ones belong to another run."""
        if group.object_terms is None:
            del self._groups[group.key]
        else:
            group.is_satisfied, group.last_reason, group.short_slots = False, "", 0
            group.oldest, group.has_several_runs = "", False
            group.gate_reason = group.why_gated()
            group.is_ready = not group.gate_reason
        self.stalled(group)
        self.changed(group.key)

    def _note_satisfied(self, group: Group) -> None:
        """Set ``is_satisfied``; the object's record counts only while members are bound."""
        terms = group.terms
        if terms is not None and not terms.problem:
            if 0 < group.noted_minimum < terms.minimum:
                # Those that run were enough for another minimum.
                group.is_raised, group.is_satisfied = True, False
            group.noted_minimum = terms.minimum
        terms = group.object_terms
        was_satisfied = terms is not None and terms.was_satisfied and group.counts[BOUND] > 0
        if group.is_bound or (was_satisfied and not group.is_raised):
            group.is_raised = False
            _satisfy(group)
        elif group.is_idle and not group.finished:
            group.is_satisfied = False

    def _wake(self, group: Group) -> None:
        pods = [member.pod for member in group.available()]
        if group.is_ready and group.must_be_decided:
            # The first that is popped brings all others.
            pods = nlargest(WOKEN, pods, key=lambda pod: pod.priority)
        self.wake(pods)

    # -- changes from listers -------------------------------------------------------------------

    def _object_changed(self, key: GroupKey) -> None:
        terms = self._dialects[key.dialect].terms_of(key)
        group = self._groups.get(key)
        if terms is None and (group is None or not group.members):
            self._groups.pop(key, None)
            self.changed(key)
            return
        if group is None:
            group = self._group(key)
        before = group.terms
        self._describe(group, terms)
        self._changed(group, is_easier=_is_easier(before, group.terms))

    def _describe(self, group: Group, terms: Terms | None) -> None:
        group.object_terms = terms
        if terms is None:
            return
        if group.uid != terms.uid:
            # Of an object of that name before this one nothing counts.
            group.uid = terms.uid
            group.is_satisfied = group.is_admitted = group.is_raised = False
            group.noted_minimum = 0
            group.succeeded, group.failed = terms.succeeded, terms.failed
            group.succeeded_by_run = Counter()
        if terms.was_admitted:
            group.is_admitted = True
        self._note_satisfied(group)


def _satisfy(group: Group) -> None:
    group.is_satisfied = group.was_ever_satisfied = True


def _is_same(before: PodInfo, now: PodInfo) -> bool:
    """Whether two versions of a pod differ by their node only."""
    return before.pod.metadata is now.pod.metadata and before.template is now.template


def _is_easier(before: Terms | None, now: Terms | None) -> bool:
    """Whether a group that did not fit may fit with its new terms."""
    if now is None:
        return False
    return (
        before is None
        or bool(before.problem)
        or now.minimum < before.minimum
        or now.expected < before.expected
        or now.min_by_role != before.min_by_role
        or now.min_resources != before.min_resources
        or now.topology != before.topology
        or (now.was_satisfied and not before.was_satisfied)
        or now.uid != before.uid
    )


IN_TREE, SCHEDULER_PLUGINS, ANNOTATIONS = "in-tree", "scheduler-plugins", "annotations"
KOORDINATOR, VOLCANO = "koordinator", "volcano"
PRECEDENCE: Mapping[str, int] = {
    IN_TREE: 0,
    SCHEDULER_PLUGINS: 1,
    ANNOTATIONS: 2,
    KOORDINATOR: 3,
    VOLCANO: 4,
}
"""Of several marks on a pod, the one of the lowest number counts."""

"""All pod groups and their members; the only writer of their counts.

Input: pending pods from the watch, assumed and bound pods from the cache, group objects from the
listers. Counts are incremental: a member whose state changes moves from one count to another. A
group exists as long as it has members or an object.
"""

from __future__ import annotations

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
        self._order: Sequence[Dialect] = ()
        self._groups: dict[GroupKey, Group] = {}
        self._group_of: dict[str, Group] = {}

    def read(self, dialect: Dialect) -> None:
        """Register a dialect; its plugin's constructor calls this.

        Of several marks on a pod, the one whose dialect is first in PRECEDENCE counts.
        """
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
        if group is None:
            return ""
        reason = group.why_gated()
        if reason and group.counts[BOUND] and self._is_old(group):
            # Placed before this process started; the other members have finished or are deleted.
            group.is_satisfied = True
            reason = group.why_gated()
        return reason

    def _is_old(self, group: Group) -> bool:
        """Whether a group has existed for longer than its timeout."""
        terms = group.terms
        if terms is None:
            return False
        times = [
            datetime.fromisoformat(text).timestamp()
            for text in (terms.created, group.first_created)
            if text
        ]
        return bool(times) and self.wall() - min(times) > terms.timeout_seconds

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
        member = group.remove(uid)
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
        group.is_satisfied = True
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

    def ends_read(self, group: Group, succeeded: int, failed: int, known_ends: int) -> None:
        """Apply the counts of ended pods; ``known_ends`` is ``unread_ends`` before the read.

        A group whose other members have succeeded is complete with those that are left.
        """
        group.unread_ends -= known_ends
        if (group.succeeded, group.failed) != (succeeded, failed) or known_ends:
            group.succeeded, group.failed = succeeded, failed
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
        return next((found for one in self._order if (found := one.mark_of(pod))), None)

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
            self._changed(group)

    def _changed(self, group: Group) -> None:
        """Activate the members when the group is no longer gated."""
        self.generation += 1
        self._note_satisfied(group)
        was_ready, before = group.is_ready, group.gate_reason
        group.gate_reason = group.why_gated()
        group.is_ready = not group.gate_reason
        if group.is_ready and not was_ready:
            self._wake(group)
        elif was_ready and not group.is_ready:
            self.stalled(group)
        if not group.is_ready and group.counts[AVAILABLE]:
            if before not in ("", group.gate_reason):
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
            group.is_ready = not group.why_gated()
        self.stalled(group)
        self.changed(group.key)

    def _note_satisfied(self, group: Group) -> None:
        """Set ``is_satisfied``; the object's record counts only while members are bound."""
        terms = group.object_terms
        was_satisfied = terms is not None and terms.was_satisfied and group.counts[BOUND] > 0
        if was_satisfied or group.is_bound:
            group.is_satisfied = True
        elif not (group.placed or group.finished or group.unread_ends):
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
        self.generation += 1
        self._describe(group, terms)
        was_ready, group.is_ready = group.is_ready, not group.why_gated()
        if group.is_ready and _is_easier(before, group.terms):
            self._wake(group)
        elif was_ready and not group.is_ready:
            self.stalled(group)
        self.changed(key)

    def _describe(self, group: Group, terms: Terms | None) -> None:
        before, group.object_terms = group.object_terms, terms
        if terms is None:
            return
        if before is not None and before.uid != terms.uid:
            group.is_satisfied = False
            group.succeeded = group.failed = 0
            group.is_admitted = False
        if terms.was_admitted:
            group.is_admitted = True
        self._note_satisfied(group)


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

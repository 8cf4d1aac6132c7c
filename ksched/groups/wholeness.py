"""Which pods have to be evicted together: a group keeps its minimum, or loses all members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ksched.cache.pod_info import PodInfo
from ksched.groups.group import ASSUMED, BOUND, Group
from ksched.groups.registry import Groups

LOWEST_PRIORITY = -(1 << 31)


class Whole(NamedTuple):
    """Victims, and those that have to go with them."""

    pods: list[PodInfo]
    broken: list[Group]
    """Groups that lose all their members."""


class Wholeness:
    """Completes sets of victims. Pods without a group are not changed by any of this."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    @property
    def generation(self) -> int:
        """Changes whenever another answer is possible."""
        return self._groups.generation

    @property
    def is_on(self) -> bool:
        """Whether pods may have groups at all."""
        return self._groups.is_on

    def group_of(self, pod: PodInfo) -> Group | None:
        """The group that an eviction of the pod may break."""
        group = self._groups.of(pod.uid) if self._groups.is_on else None
        terms = None if group is None else group.terms
        if terms is None or (terms.minimum <= 1 and not terms.is_evicted_whole):
            return None
        return group

    def complete(self, victims: Iterable[PodInfo]) -> Whole:
        """Add the other members of every group that would be left with less than its minimum."""
        whole = Whole(list(victims), [])
        leaving: dict[str, list[PodInfo]] = {}
        groups: dict[str, Group] = {}
        for pod in whole.pods:
            group = self.group_of(pod)
            # One that is terminating already does not count any more.
            if group is not None and not pod.is_terminating:
                name = "/".join(group.key)
                groups[name] = group
                leaving.setdefault(name, []).append(pod)
        for name, pods in leaving.items():
            if not can_spare(groups[name], pods):
                known = {pod.uid for pod in pods}
                rest = [pod for pod in on_nodes(groups[name]) if pod.uid not in known]
                whole.pods.extend(rest)
                whole.broken.append(groups[name])
        return whole

    def breaking(self, pods: Sequence[PodInfo]) -> frozenset[str]:
        """Of pods from the most important to the least, those whose groups cannot spare them.

        As many as a group can spare, the least important ones, are ordinary victims.
        """
        spared: dict[str, list[PodInfo]] = {}
        breaking = []
        for pod in reversed(pods):
            group = self.group_of(pod)
            if group is None or pod.is_terminating:
                continue
            before = spared.setdefault("/".join(group.key), [])
            if can_spare(group, [*before, pod]):
                before.append(pod)
            else:
                breaking.append(pod.uid)
        return frozenset(breaking)

    def has_groups(self, pods: Iterable[PodInfo]) -> bool:
        return self._groups.is_on and any(self.group_of(pod) is not None for pod in pods)


def can_spare(group: Group, leaving: Sequence[PodInfo]) -> bool:
    """Whether a group keeps its minimum, in all and by role, without these members."""
    terms = group.terms
    if terms is None:
        return True
    left = group.placed + group.finished - len(leaving)
    if terms.is_evicted_whole or left < terms.minimum:
        return False
    for role, minimum in terms.min_by_role.items():
        going = sum(group.members[pod.uid].mark.role == role for pod in leaving)
        if going and group.in_role(role, ASSUMED, BOUND) - going < minimum:
            return False
    return True


def on_nodes(group: Group) -> list[PodInfo]:
    """The members that hold room and are not going already."""
    return [one.pod for one in group.members.values() if one.state in (ASSUMED, BOUND)]


def importance(group: Group) -> int:
    """The priority that a group is protected with: declared, or that of any member, if higher."""
    terms = group.terms
    declared = None if terms is None else terms.priority
    lowest = LOWEST_PRIORITY if declared is None else declared
    return max((lowest, *(pod.priority for pod in on_nodes(group))))

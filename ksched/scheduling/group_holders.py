"""Who holds the room that a group waits for, and which groups wait for room that they hold.

A group that was never placed holds nothing while it waits. What holds room without using it: pods
at Permit or being bound, nominated pods, pods that are being deleted, and the rest of a group that
lacks members. The last two kinds of groups may wait for each other's room.

Computed on request, by amounts and node objects: other filters may keep the group from the room
that a holder gives back. Ordinary pods that run are no holders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from ksched.api.node_selectors import RequiredNodeAffinity, compile_required
from ksched.api.tolerations import find_untolerated
from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo, PodTemplate
from ksched.errors import KschedError
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.groups.group import AVAILABLE, BOUND, Group
from ksched.groups.registry import Groups
from ksched.groups.slots import PODS
from ksched.queue.nominator import Nominator

MOST_HOLDS = 2000
"""So many pods that hold room are looked at."""
MOST_KINDS = 8
"""So many kinds of members are looked at."""
MOST_IN_CYCLES = 32
"""Among so many groups cycles are looked for."""
MOST_LOOKS = 1024
"""So often a node is looked at for that, by all these groups together."""


class Holding(StrEnum):
    """How room is held."""

    AT_PERMIT = "at Permit"
    BINDING = "being bound"
    ENDING = "being deleted"
    RESERVED = "reserved"
    INCOMPLETE = "lacks members"


WAITING = (Holding.RESERVED, Holding.INCOMPLETE)
"""What a group may hold while it waits for room itself."""


class Holder(NamedTuple):
    """A group, or a pod without one, that holds room which another group waits for."""

    name: str
    is_group: bool
    holding: Holding
    pods: int
    nodes: int
    plugins: tuple[str, ...] = ()
    """Those that hold the pods at Permit."""


class _Hold(NamedTuple):
    pod: PodInfo
    node_name: str
    holding: Holding
    group: Group | None
    plugins: tuple[str, ...] = ()

    @property
    def owner(self) -> tuple[str, bool, Holding]:
        name = self.pod.key if self.group is None else str(self.group.key)
        return name, self.group is not None, self.holding

    def is_of_waiting(self, groups: Mapping[str, Group]) -> bool:
        """Whether one of some groups holds it while it waits itself."""
        name, is_group, holding = self.owner
        return is_group and holding in WAITING and name in groups


class GroupHolders:
    """What holds room at one instant."""

    def __init__(
        self, cache: SchedulerCache, groups: Groups, nominator: Nominator, waiting: WaitingPods
    ) -> None:
        self._cache = cache
        self._groups = groups
        self._nominator = nominator
        self._waiting = waiting
        self._by_node: dict[str, dict[str, _Hold]] = {}
        for hold in islice(self._holds(), MOST_HOLDS):
            # The first that is said of a pod counts.
            self._by_node.setdefault(hold.node_name, {}).setdefault(hold.pod.uid, hold)

    def of(self, group: Group) -> list[Holder]:
        """The holders of room for which a group waits, those with the most pods first."""
        if not group.need or group.why_gated():
            return []
        wanted = _Wanted(group, self._cache)
        found: dict[tuple[str, bool, Holding], list[_Hold]] = {}
        for name in self._by_node:
            for one in self._held_back_on(name, group, wanted):
                found.setdefault(one.owner, []).append(one)
        holders = [
            Holder(
                *owner,
                pods=len(holds),
                nodes=len({one.node_name for one in holds}),
                plugins=tuple(sorted({plugin for one in holds for plugin in one.plugins})),
            )
            for owner, holds in found.items()
        ]
        return sorted(holders, key=lambda one: (-one.pods, one.name, one.holding))

    def cycles(self) -> list[list[str]]:
        """Groups of which each waits for room that another of them holds."""
        holding = {
            str(one.group.key): one.group
            for holds in self._by_node.values()
            for one in holds.values()
            if one.group is not None and one.holding in WAITING and one.group.need
        }
        if len(holding) < 2:
            return []
        chosen = dict(islice(holding.items(), MOST_IN_CYCLES))
        owners = {
            node: {one.owner[0] for one in holds.values() if one.is_of_waiting(chosen)}
            for node, holds in self._by_node.items()
        }
        looks = MOST_LOOKS // len(chosen)
        edges = {name: self._waits_for(group, owners, looks) for name, group in chosen.items()}
        reached = {name: _reachable(name, edges) for name in edges}
        cycles = {
            tuple(sorted(other for other in others if name in reached.get(other, ())))
            for name, others in reached.items()
            if name in others
        }
        return sorted(map(list, cycles))

    def _waits_for(self, group: Group, owners: Mapping[str, set[str]], looks: int) -> set[str]:
        """Which groups hold room that a group waits for while they wait themselves.

        ``owners`` are these groups by node. Only so many nodes are looked at, none for what is
        known already.
        """
        found: set[str] = set()
        if group.why_gated():
            return found
        wanted, known = _Wanted(group, self._cache), {str(group.key)}
        for name, those in owners.items():
            if those <= known:
                continue
            if not looks:
                break
            looks -= 1
            for one in self._held_back_on(name, group, wanted):
                if one.holding in WAITING and one.owner[0] in those:
                    found.add(one.owner[0])
            known |= found
        return found

    def _held_back_on(self, name: str, group: Group, wanted: _Wanted) -> Iterator[_Hold]:
        """What others hold on a node without which another member of a group might fit there."""
        info = self._cache.get_node(name)
        if info is not None and info.node is not None:
            others = [one for one in self._by_node[name].values() if one.group is not group]
            yield from wanted.held_back_on(info, others)

    def _holds(self) -> Iterator[_Hold]:
        groups, cache = self._groups, self._cache
        for waiting in self._waiting:
            plugins = tuple(sorted({hold.plugin for hold in waiting.holds()}))
            group = groups.of(waiting.pod.uid)
            yield _Hold(waiting.pod, waiting.node_name, Holding.AT_PERMIT, group, plugins)
        for uid in cache.assumed():
            pod = cache.get_pod(uid)
            if pod is not None:
                yield _Hold(pod, pod.node_name, Holding.BINDING, groups.of(uid))
        for name, pods in self._nominator.by_node().items():
            for pod in pods:
                yield _Hold(pod, name, Holding.RESERVED, groups.of(pod.uid))
            info = cache.get_node(name)
            for pod in () if info is None else list(info.pods.values()):
                if pod.is_terminating:
                    yield _Hold(pod, name, Holding.ENDING, groups.of(pod.uid))
        for group in groups:
            counts = group.counts
            # Most groups are placed or wait, as a whole: these need no closer look.
            may_lack = counts[BOUND] and (counts[AVAILABLE] or not group.is_satisfied)
            if may_lack and group.need:
                for member in group.members.values():
                    if member.is_bound:
                        pod = member.pod
                        yield _Hold(pod, pod.node_name, Holding.INCOMPLETE, group)


class _Wanted:
    """What a group that waits wants of a node."""

    def __init__(self, group: Group, cache: SchedulerCache) -> None:
        members = [member.pod for member in group.available()]
        self._priority = min((pod.priority for pod in members), default=0)
        kinds = islice({pod.template for pod in members}, MOST_KINDS)
        self._kinds = [(template, _required(template)) for template in kinds]
        self._domains = _domains(group, cache)

    def held_back_on(self, info: NodeInfo, holds: Iterable[_Hold]) -> Iterator[_Hold]:
        """The holds without which another member might fit there."""
        by_owner: dict[tuple[str, bool, Holding], list[_Hold]] = {}
        for one in holds:
            if one.holding is not Holding.RESERVED or one.pod.priority >= self._priority:
                by_owner.setdefault(one.owner, []).append(one)
        labels = info.labels
        if not by_owner or any(labels.get(key) not in one for key, one in self._domains.items()):
            return
        amounts = {owner: _amounts(some) for owner, some in by_owner.items()}
        reserved = Counter[str]()
        for owner, held in amounts.items():
            if owner[2] is Holding.RESERVED:
                reserved.update(held)
        everything = sum(amounts.values(), Counter[str]())
        blocking = set()
        for template, required in self._kinds:
            if not _may_go(template, required, info):
                continue
            now = _slots(info, template, reserved, {})
            best = _slots(info, template, reserved, everything)
            for owner, held in amounts.items() if best > now else ():
                others = {one: amount - held[one] for one, amount in everything.items()}
                if (
                    _slots(info, template, reserved, held) > now
                    or _slots(info, template, reserved, others) < best
                ):
                    blocking.add(owner)
        for owner in blocking:
            yield from by_owner[owner]


def _amounts(holds: Sequence[_Hold]) -> Counter[str]:
    total = Counter[str]()
    for one in holds:
        total.update(one.pod.demand.requests)
        total[PODS] += 1
    return total


def _slots(
    info: NodeInfo,
    template: PodTemplate,
    reserved: Mapping[str, int],
    given_back: Mapping[str, int],
) -> int:
    """How many pods of a template fit on a node, with some room taken and some given back."""

    def free(resource: str, amount: int) -> int:
        return amount - reserved.get(resource, 0) + given_back.get(resource, 0)

    slots = free(PODS, info.allowed_pods - info.num_pods)
    for resource, amount in template.requests.items():
        if amount > 0:
            left = info.allocatable_of(resource) - info.requested_of(resource)
            slots = min(slots, free(resource, left) // amount)
    return max(slots, 0)


def _required(template: PodTemplate) -> RequiredNodeAffinity | None:
    """What a pod requires of the labels of its node; ``None`` if that is not looked at."""
    if template.is_large:
        return None
    try:
        return compile_required(template.spec)
    except KschedError:
        return None


def _may_go(template: PodTemplate, required: RequiredNodeAffinity | None, info: NodeInfo) -> bool:
    node = info.node
    if node is None or node.spec.unschedulable:
        return False
    if find_untolerated(node.spec.taints, template.tolerations) is not None:
        return False
    return required is None or required.matches(info.labels, info.name)


def _domains(group: Group, cache: SchedulerCache) -> dict[str, set[str]]:
    """The values of labels that a group must keep to, by key: those of its nodes."""
    terms = group.terms
    infos = [info for name in group.nodes() if (info := cache.get_node(name)) is not None]
    if terms is None or not infos:
        return {}
    return {
        level.key: {info.labels.get(level.key, "") for info in infos}
        for level in terms.topology
        if level.is_required
    }


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    rest = list(edges.get(start, ()))
    while rest:
        name = rest.pop()
        if name not in found:
            found.add(name)
            rest += edges.get(name, ())
    return found

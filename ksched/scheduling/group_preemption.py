"""Preemption for a group: nobody is evicted unless all that the group needs fits afterwards.

One plan for all members: victims are chosen by amounts, then the members are tried in the snapshot
with the victims gone. If all have a place, the victims are evicted in one wave, and every member is
nominated to its node in the same step, so that nobody else takes the freed room. While victims of a
group terminate, no others are evicted for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from ksched.cache.cache import SchedulerCache
from ksched.cache.pod_info import PodInfo
from ksched.framework.plugins import names
from ksched.framework.plugins.default_preemption.plugin import DefaultPreemption
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.groups.group import Group, GroupKey
from ksched.groups.slots import CountedSlots, Slots
from ksched.metrics import Metrics
from ksched.queue.nominator import Nominator
from ksched.scheduling.group_slots import kind_of
from ksched.scheduling.group_survey import is_stuck
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.scheduling.preemption_executor import Evictions, Preemptor
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.scheduling.victim_search import Nodes, VictimSearch, preemptor_priority

NEVER = "preemption: not eligible due to preemptionPolicy=Never."
WAITING = "pod group is waiting for preemption to complete"
"""As in kube-scheduler."""


class Outcome(Struct, frozen=True):
    """What preemption did for a group."""

    text: str = ""
    """What is told after why the group does not fit."""
    nodes: Nodes = {}
    """Where members are nominated to."""
    is_waiting: bool = False
    """Whether earlier nominations hold."""


class GroupPreemption:
    """Finds room for groups at the expense of less important pods."""

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        cycle: SchedulingCycle,
        nominator: Nominator,
        executor: Evictions,
        status: PodStatusUpdater,
        now: Callable[[], float],
        wall: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._cache = cache
        self._cycle = cycle
        self._nominator = nominator
        self._executor = executor
        self._status = status
        self._now = now
        self._wall = wall
        self._attempted = metrics.preemption_attempts.increment
        self._undone = metrics.group_undone_placements.increment
        self._victims: dict[GroupKey, frozenset[str]] = {}
        """Of the last plan of each group that waits."""
        self._at_best = CountedSlots(cache.snapshot.table)

    def filters_changed(self) -> None:
        self._at_best.clear()

    def forget(self, group: Group) -> None:
        """A group was placed."""
        self._victims.pop(group.key, None)

    def give_up(self, group: Group) -> None:
        """A group lacks members again: the room that is kept for it is open to everybody."""
        self._victims.pop(group.key, None)
        for member in group.members.values():
            if self._nominator.node_of(member.pod.uid) is not None:
                self._nominator.delete(member.pod.uid)
                self._status.set(member.pod, DesiredStatus(nominated_node_name=""))

    async def run(
        self,
        group: Group,
        members: Sequence[QueuedPodInfo],
        fitting: int,
        is_alive: Callable[[QueuedPodInfo], bool],
    ) -> Outcome | None:
        """Make room for these members, of whom so many fit without; ``None``: decide again."""
        plugin = self._plugin(members)
        if plugin is None:
            return Outcome()
        if _never_evicts(members):
            return Outcome(NEVER)
        if any(map(self._executor.is_preempting, group.members)):
            return Outcome(f"{WAITING}: its victims are being evicted", is_waiting=True)
        victims = self._victims_of(group, members)
        wall = self._wall()
        left = sum(pod.is_terminating and not is_stuck(pod, wall) for pod in victims)
        if left:
            for one in group.available():
                if self._nominator.node_of(one.pod.uid) is None:
                    # As its status says, if it was gated when it came.
                    self._nominator.add(one.pod)
            total = len(self._victims.get(group.key, victims))
            return Outcome(f"{WAITING}: {left} of {total} pods have not ended", is_waiting=True)
        self._attempted()
        search = VictimSearch(self._cache, self._cycle, self._nominator, plugin, self._undone)
        with self._unnominated(members):
            found = await search.run(group, members, self._at_best, self._now, self._wall)
        if isinstance(found, int):
            return Outcome(_not_helpful(found, len(members)) if found > fitting else "")
        if isinstance(found, str):
            return Outcome(found)
        victims, nodes = found
        if not all(map(is_alive, members)):
            return None
        return self._commit(group, members, victims, nodes, plugin)

    def at_best(
        self, group: Group, members: Sequence[QueuedPodInfo], free: Slots
    ) -> tuple[int | None, Slots] | None:
        """The slots without the pods below a priority, if they are too few; call it after ``run``.

        Those that are ``free`` and no priority if nobody is evicted for these members.
        """
        if self._plugin(members) is None or _never_evicts(members):
            return None, free
        priority = preemptor_priority(group, members)
        slots = self._at_best.get((priority, kind_of(members[0])))
        return None if slots is None or slots.total >= len(members) else (priority, slots)

    def _plugin(self, members: Sequence[QueuedPodInfo]) -> DefaultPreemption | None:
        plugins = self._cycle.profile_of(members[0]).framework.plugins
        plugin = plugins.get(names.DEFAULT_PREEMPTION)
        return plugin if isinstance(plugin, DefaultPreemption) else None

    def _victims_of(self, group: Group, members: Sequence[QueuedPodInfo]) -> list[PodInfo]:
        """The victims of the last plan that are still there.

        A plan of the process that led before is known by the nominations that it wrote: the pods
        that terminate on those nodes.
        """
        known = self._victims.get(group.key)
        if known is not None:
            return [pod for uid in known if (pod := self._cache.get_pod(uid)) is not None]
        priority, found = preemptor_priority(group, members), dict[str, PodInfo]()
        for one in group.available():
            name = one.pod.pod.status.nominated_node_name
            info = self._cache.get_node(name) if name else None
            if info is None:
                continue
            lower = [pod for pod in info.pods.values() if pod.priority < priority]
            found |= {pod.uid: pod for pod in lower if pod.is_terminating}
        return list(found.values())

    @contextmanager
    def _unnominated(self, members: Sequence[QueuedPodInfo]) -> Iterator[None]:
        """Plan without the nominations that a plan before this one has left."""
        before = {one.uid: self._nominator.node_of(one.uid) for one in members}
        for uid in before:
            self._nominator.delete(uid)
        try:
            yield
        finally:
            for one in members:
                node_name = before[one.uid]
                if node_name is not None and self._nominator.node_of(one.uid) is None:
                    self._nominator.add(one.pod, node_name)

    def _commit(
        self,
        group: Group,
        members: Sequence[QueuedPodInfo],
        victims: Sequence[PodInfo],
        nodes: Nodes,
        plugin: DefaultPreemption,
    ) -> Outcome | None:
        """Nominate every member and start the evictions; nothing else runs meanwhile."""
        where = frozenset(nodes.values())
        # Of those that are terminating already, the group waits for the ones in its way.
        present = [
            pod
            for pod in victims
            if self._cache.get_pod(pod.uid) is not None
            and (pod.node_name in where or not pod.is_terminating)
        ]
        also = plugin.wholeness.complete(present).pods[len(present) :]
        if any(pod.node_name in self._cache.snapshot.table.rows for pod in also):
            # A group lost members since; with less than its minimum left it would have to go whole.
            return None
        if any(self._cache.get_node(name) is None for name in nodes.values()):
            return None
        for one in members:
            self._nominator.add(one.pod, nodes[one.uid])
        if not present:
            # They fit after all, on these nodes.
            return None
        preemptor = Preemptor(
            tuple(one.pod for one in members),
            tuple(nodes[one.uid] for one in members),
            str(group.key),
        )
        profile = self._cycle.profile_of(members[0])
        # Members on nodes that are gone leave with their group; there is no room to wait for.
        self._executor.start(preemptor, [*present, *also], profile.name, profile.handle.recorder)
        self._victims[group.key] = frozenset(pod.uid for pod in present)
        going = [pod for pod in present if not pod.is_terminating]
        if not going:
            return Outcome(f"{WAITING}: {len(present)} pods are ending already", nodes)
        number = len({pod.node_name for pod in going})
        return Outcome(f"{WAITING}: {len(going)} pods on {number} nodes are evicted", nodes)


def _never_evicts(members: Sequence[QueuedPodInfo]) -> bool:
    return any(one.pod.spec.preemption_policy == "Never" for one in members)


def _not_helpful(fitting: int, wanted: int) -> str:
    would = f"{fitting} of {wanted} would fit"
    return f"preemption: not helpful, without pods of lower priority {would}"

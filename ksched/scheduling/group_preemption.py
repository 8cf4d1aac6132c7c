"""Preemption for a group: nobody is evicted unless all that the group needs fits afterwards.

One plan for all members: victims are chosen by amounts, then the members are tried in the snapshot
with the victims gone. If all have a place, the victims are evicted in one wave, and every member is
nominated to its node in the same step, so that nobody else takes the freed room. While victims of a
group terminate, no others are evicted for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.framework.plugins import names
from ksched.framework.plugins.default_preemption.candidates import by_importance
from ksched.framework.plugins.default_preemption.group_plan import (
    Evictee,
    EvictionPlan,
    GroupPlanner,
)
from ksched.framework.plugins.default_preemption.group_room import fitting
from ksched.framework.plugins.default_preemption.plugin import DefaultPreemption
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice, in_slices
from ksched.groups.group import Group, GroupKey
from ksched.groups.slots import CountedSlots, Slots
from ksched.groups.wholeness import can_spare
from ksched.metrics import Metrics
from ksched.queue.nominator import Nominator
from ksched.scheduling.group_survey import Survey, Surveyor, is_stuck
from ksched.scheduling.group_trial import Trial, place
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.scheduling.preemption_executor import Evictions, Preemptor
from ksched.scheduling.scheduling_cycle import SchedulingCycle

NEVER = "preemption: not eligible due to preemptionPolicy=Never."
WAITING = "pod group is waiting for preemption to complete"
"""As in kube-scheduler."""
NO_PLAN = "preemption: no victims found that make room for all"

Nodes = Mapping[str, str]
"""Names of nodes by UID of a member."""


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
        profile = self._cycle.profile_of(members[0])
        plugin = profile.framework.plugins.get(names.DEFAULT_PREEMPTION)
        if not isinstance(plugin, DefaultPreemption):
            return Outcome()
        if any(one.pod.spec.preemption_policy == "Never" for one in members):
            return Outcome(NEVER)
        if any(map(self._executor.is_preempting, group.members)):
            return Outcome(f"{WAITING}: its victims are being evicted", is_waiting=True)
        left = self._terminating(group)
        if left:
            total = len(self._victims[group.key])
            return Outcome(f"{WAITING}: {left} of {total} pods have not ended", is_waiting=True)
        self._attempted()
        search = _Search(self._cache, self._cycle, self._nominator, plugin, self._undone)
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

    def _terminating(self, group: Group) -> int:
        """How many of the victims are still expected to go."""
        known = [self._cache.get_pod(uid) for uid in self._victims.get(group.key, ())]
        wall = self._wall()
        going = [pod for pod in known if pod is not None and pod.is_terminating]
        return sum(not is_stuck(pod, wall) for pod in going)

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
        if len(plugin.wholeness.complete(present).pods) > len(present):
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
        self._executor.start(preemptor, present, profile.name, profile.handle.recorder)
        self._victims[group.key] = frozenset(pod.uid for pod in present)
        going = [pod for pod in present if not pod.is_terminating]
        if not going:
            return Outcome(f"{WAITING}: {len(present)} pods are ending already", nodes)
        number = len({pod.node_name for pod in going})
        return Outcome(f"{WAITING}: {len(going)} pods on {number} nodes are evicted", nodes)


class _Search:
    """One search for victims; leaves snapshot and nominations as they were."""

    def __init__(
        self,
        cache: SchedulerCache,
        cycle: SchedulingCycle,
        nominator: Nominator,
        plugin: DefaultPreemption,
        undone: Callable[[], None],
    ) -> None:
        self._snapshot = cache.snapshot
        self._cycle = cycle
        self._nominator = nominator
        self._plugin = plugin
        self._undone = undone

    async def run(
        self,
        group: Group,
        members: Sequence[QueuedPodInfo],
        known: CountedSlots,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> tuple[list[PodInfo], Nodes] | str | int:
        """Victims, with those that are terminating already, and nodes; or why there are none.

        A number says that without any less important pod only so many members would fit. For
        members of one kind it is remembered in ``known``: groups of that kind cost one pass.
        """
        self._turn = TimeSlice(now)
        priority = preemptor_priority(group, members)
        kind = (priority, _kind_of(members[0]))
        is_uniform = all(_kind_of(one) == kind[1] for one in members)
        slots = known.get(kind) if is_uniform else None
        if slots is not None and slots.total < len(members):
            return slots.total
        surveyor = Surveyor(
            snapshot=self._snapshot,
            cycle=self._cycle,
            nominator=self._nominator,
            wholeness=self._plugin.wholeness,
            wall=wall,
            turn=self._turn,
        )
        described = await surveyor.kinds(members)
        if described is None:
            return ""
        lines, kinds, by_kind = described
        evictable = self._plugin.evictable.below(priority, self._snapshot.table)
        await evictable.catch_up(self._turn)
        free = lines.free_at_best(evictable)
        if is_uniform and slots is None:
            by_row = kinds[0].slots(free)
            known.put(kind, Slots(by_row, int(by_row.sum()), ""))
        at_best = fitting(free, kinds)
        if at_best < len(members):
            return at_best
        survey = await surveyor.look(group, priority, lines, kinds, by_kind)
        planner = GroupPlanner(survey.free, kinds, survey.evictees, self._plugin.budgets)
        steps = in_slices(planner.plan(), now)
        plan = steps if isinstance(steps, EvictionPlan) or steps is None else await steps
        if plan is None:
            return fitting(planner.without(priority), kinds)
        return await self._try_plan(members, survey, planner, plan)

    async def _try_plan(
        self,
        members: Sequence[QueuedPodInfo],
        survey: Survey,
        planner: GroupPlanner,
        plan: EvictionPlan,
    ) -> tuple[list[PodInfo], Nodes] | str:
        planned, victims = self._planned(survey, plan), {pod.uid for pod in plan.victims}
        going = [*plan.victims, *survey.leaving]
        nodes = await self._try(members, going, planned)
        if nodes == planned:
            return going, nodes
        if nodes is None:
            return await self._try_everybody(members, survey, planner, plan)
        # A member found another node: not all of the victims may be needed.
        within = [one for one in survey.evictees if one.pod.uid in victims]
        return await self._reprieve_and_check(members, within, survey.leaving, planner, nodes)

    def _planned(self, survey: Survey, plan: EvictionPlan) -> Nodes:
        """The members of each kind dealt to the nodes of the plan."""
        infos, nodes = self._snapshot.table.infos, {}
        for some, rows in zip(survey.members, plan.rows, strict=True):
            places = np.repeat(np.arange(len(rows)), rows).tolist()
            for queued, row in zip(some, places, strict=True):
                nodes[queued.uid] = infos[row].name
        return nodes

    async def _try(
        self, members: Sequence[QueuedPodInfo], going: Sequence[PodInfo], wanted: Nodes
    ) -> Nodes | None:
        """Where all members are placed with some pods gone; ``None`` if one does not fit."""
        removed: dict[int, NodeInfo] = {}
        trial = Trial(self._snapshot, self._nominator, self._undone)
        try:
            await self._remove(going, removed)
            if await self._place_all(trial, members, wanted):
                return {one.pod.uid: one.node_name for one in trial.placed}
            return None
        finally:
            self._undo(trial, members)
            await self._restore(removed)

    async def _remove(self, pods: Iterable[PodInfo], removed: dict[int, NodeInfo]) -> None:
        """Take pods off their nodes in the snapshot; ``removed`` gets what is to be restored."""
        by_node: dict[str, list[PodInfo]] = {}
        for pod in pods:
            by_node.setdefault(pod.node_name, []).append(pod)
        for some in by_node.values():
            removed |= self._snapshot.remove_pods(some)
            if self._turn.is_over:
                await self._turn.give_way()

    async def _restore(self, removed: dict[int, NodeInfo]) -> None:
        try:
            while removed:
                row, info = removed.popitem()
                self._snapshot.restore({row: info})
                if self._turn.is_over:
                    await self._turn.give_way()
        finally:
            # Cancelled on the way: the rest at once.
            self._snapshot.restore(removed)

    async def _place_all(
        self, trial: Trial, members: Sequence[QueuedPodInfo], wanted: Nodes
    ) -> bool:
        """Place each on the node that it is meant for, or on another where it does not fit there.

        What amounts do not show, filters do.
        """
        for queued in members:
            if queued.uid in wanted:
                self._nominator.add(queued.pod, wanted[queued.uid])
            await place(self._cycle, trial, queued)
            self._nominator.delete(queued.uid)
            if trial.rejected:
                return False
            if self._turn.is_over:
                await self._turn.give_way()
        return True

    def _undo(self, trial: Trial, members: Sequence[QueuedPodInfo]) -> None:
        trial.undo()
        for queued in members:
            self._nominator.delete(queued.uid)

    # -- where amounts are not enough -----------------------------------------------------------

    async def _try_everybody(
        self,
        members: Sequence[QueuedPodInfo],
        survey: Survey,
        planner: GroupPlanner,
        plan: EvictionPlan,
    ) -> tuple[list[PodInfo], Nodes] | str:
        """Take everybody away, up to the ceiling or, if need be, beyond it; then reprieve."""
        if not survey.evictees:
            return NO_PLAN
        highest = max(one.priority for one in survey.evictees)
        first = highest if plan.ceiling is None else plan.ceiling
        for ceiling in sorted({first, highest}):
            within = [one for one in survey.evictees if one.priority <= ceiling]
            everybody = [one.pod for one in within] + survey.leaving
            nodes = await self._try(members, everybody, {})
            if nodes is None:
                continue
            leaving = survey.leaving
            return await self._reprieve_and_check(members, within, leaving, planner, nodes)
        return NO_PLAN

    async def _reprieve_and_check(
        self,
        members: Sequence[QueuedPodInfo],
        within: Sequence[Evictee],
        leaving: Sequence[PodInfo],
        planner: GroupPlanner,
        nodes: Nodes,
    ) -> tuple[list[PodInfo], Nodes] | str:
        """Who must go for the members on these nodes; each was spared by itself, so all are tried
        together once more."""
        spared = await self._reprieve(members, within, leaving, planner, nodes)
        going = [*(one.pod for one in within if one.pod.uid not in spared), *leaving]
        final = await self._try(members, going, nodes)
        return NO_PLAN if final is None else (going, final)

    async def _reprieve(
        self,
        members: Sequence[QueuedPodInfo],
        within: Sequence[Evictee],
        leaving: Sequence[PodInfo],
        planner: GroupPlanner,
        nodes: Nodes,
    ) -> set[str]:
        """Who may stay with the members on their nodes; a group stays whole or not at all."""
        removed: dict[int, NodeInfo] = {}
        trial = Trial(self._snapshot, self._nominator, self._undone)
        spared: set[str] = set()
        try:
            await self._remove([*(one.pod for one in within), *leaving], removed)
            if not await self._place_all(trial, members, nodes):
                return spared
            violating, _ = self._plugin.budgets.split(by_importance(one.pod for one in within))
            flagged = {pod.uid for pod in violating}
            units = planner.units(within)
            units.sort(
                key=lambda unit: (
                    not any(one.pod.uid in flagged for one in unit),
                    -max(one.priority for one in unit),
                )
            )
            for unit in units:
                back = await self._give_back(trial, unit)
                spared |= {one.pod.uid for one in back}
                if self._turn.is_over:
                    await self._turn.give_way()
            return spared
        finally:
            self._undo(trial, members)
            await self._restore(removed)

    async def _give_back(self, trial: Trial, unit: Sequence[Evictee]) -> Sequence[Evictee]:
        """Put a unit back on its nodes if the members fit nevertheless; who is back.

        Of a group that cannot stay whole, its minimum or more may stay.
        """
        if await self._put_back(trial, unit):
            return unit
        if len(unit) == 1 or unit[0].group is None:
            return ()
        back = [one for one in unit if await self._put_back(trial, [one])]
        if can_spare(unit[0].group, [one.pod for one in unit if one not in back]):
            return back
        for one in back:
            self._snapshot.forget(one.pod, one.row)
        return ()

    async def _put_back(self, trial: Trial, some: Sequence[Evictee]) -> bool:
        for one in some:
            self._snapshot.assume(one.pod, one.row)
        if await self._still_fit(trial, {one.row for one in some}):
            return True
        for one in some:
            self._snapshot.forget(one.pod, one.row)
        return False

    async def _still_fit(self, trial: Trial, rows: set[int]) -> bool:
        """Whether the members on some nodes still pass the filters there."""
        row_of = self._snapshot.table.rows
        for placed in trial.placed:
            row = row_of[placed.node_name]
            if row not in rows:
                continue
            self._snapshot.forget(placed.pod, row)
            try:
                fits = await self._cycle.fits_on(placed.profile, placed.queued.pod, row)
            finally:
                self._snapshot.assume(placed.pod, row)
            if not fits:
                return False
        return True


def preemptor_priority(group: Group, members: Sequence[QueuedPodInfo]) -> int:
    """Below which priority a group may evict: that of its least important member.

    Nominations count with the priority of the pod: with more than that the group would free room
    that others may take.
    """
    lowest = min(one.pod.priority for one in members)
    declared = None if group.terms is None else group.terms.priority
    return lowest if declared is None else min(lowest, declared)


def _kind_of(queued: QueuedPodInfo) -> tuple[str, object]:
    template = queued.pod.template
    return (template.spec.scheduler_name, template.signature)


def _not_helpful(fitting: int, wanted: int) -> str:
    would = f"{fitting} of {wanted} would fit"
    return f"preemption: not helpful, without pods of lower priority {would}"

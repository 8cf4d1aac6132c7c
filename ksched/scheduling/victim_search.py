"""The search for victims of a group: by amounts first, then tried in the snapshot.

The snapshot and the nominations are as before when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.framework.plugins.default_preemption.candidates import by_importance
from ksched.framework.plugins.default_preemption.group_plan import (
    Evictee,
    EvictionPlan,
    GroupPlanner,
)
from ksched.framework.plugins.default_preemption.group_room import UNLIMITED, fitting
from ksched.framework.plugins.default_preemption.plugin import DefaultPreemption
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice, in_slices
from ksched.groups.group import Group
from ksched.groups.slots import CountedSlots, Slots
from ksched.groups.wholeness import can_spare
from ksched.queue.nominator import Nominator
from ksched.scheduling.group_slots import kind_of
from ksched.scheduling.group_survey import Survey, Surveyor
from ksched.scheduling.group_trial import Trial, place
from ksched.scheduling.scheduling_cycle import SchedulingCycle

NO_PLAN = "preemption: no victims found that make room for all"

Nodes = Mapping[str, str]
"""Names of nodes by UID of a member."""


class VictimSearch:
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
        kind = (priority, kind_of(members[0]))
        is_uniform = all(kind_of(one) == kind[1] for one in members)
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
        if is_uniform and slots is None and kinds[0].limit == UNLIMITED:
            by_row, open_rows = kinds[0].slots(free), kinds[0].open_rows
            known.put(kind, Slots(by_row, int(by_row.sum()), "", open_rows=open_rows))
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

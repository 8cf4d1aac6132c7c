"""Protection of large groups: room is reserved for a group that has waited for long.

A stream of small pods can keep a large group out for ever: whatever becomes free is taken before
there is enough of it. After a configured time the members of the group are nominated to nodes where
they will fit once the pods there have ended; others of the same or a lower priority then leave that
room alone. One group per priority is protected, and no more than a share of the cluster.

Nodes are chosen by amounts. If the group does not fit although all its room there is free, other
filters keep it out: those nodes are left to others, and are not chosen for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_table import Ints
from ksched.framework.plugins.default_preemption.evictable import EvictableByPriority
from ksched.framework.plugins.default_preemption.group_room import Kind, assign, fits
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import Group, GroupKey
from ksched.groups.registry import Groups
from ksched.groups.wholeness import Wholeness
from ksched.queue.nominator import Nominator
from ksched.scheduling.group_survey import Lines, Surveyor
from ksched.scheduling.scheduling_cycle import SchedulingCycle

Nodes = Mapping[str, str]


class Reservation(Struct, frozen=True):
    """What is kept for a group."""

    key: GroupKey
    amounts: Mapping[str, int]


class GroupProtection:
    """Chooses the nodes on which room is reserved."""

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        cycle: SchedulingCycle,
        nominator: Nominator,
        groups: Groups,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._cycle = cycle
        self._nominator = nominator
        self._settings = groups.protection
        self._wholeness = Wholeness(groups)
        self._evictable = EvictableByPriority(self._wholeness)
        self._now = now
        self._wall = wall
        self._reserved: dict[int, Reservation] = {}
        """By priority."""
        self._useless: dict[GroupKey, set[str]] = {}
        """Nodes where a group does not fit though there is room for it."""

    def filters_changed(self) -> None:
        self._useless.clear()

    def forget(self, group: Group) -> None:
        """Room for a group is not kept any longer: it was placed, or lacks members."""
        self._useless.pop(group.key, None)
        self._end(group)

    def _end(self, group: Group) -> None:
        for priority, one in list(self._reserved.items()):
            if one.key == group.key:
                del self._reserved[priority]

    async def run(self, group: Group, members: Sequence[QueuedPodInfo]) -> Nodes:
        """Where room is kept for the members of a group that does not fit; empty if nowhere."""
        if not self._is_due(members):
            return {}
        priority = min(one.pod.priority for one in members)
        holder = self._reserved.get(priority)
        if holder is not None and holder.key != group.key:
            return {}
        surveyor = Surveyor(
            snapshot=self._cache.snapshot,
            cycle=self._cycle,
            nominator=self._nominator,
            wholeness=self._wholeness,
            wall=self._wall,
            turn=TimeSlice(self._now),
        )
        described = await surveyor.kinds(members)
        standing = self._standing(members) if holder is not None else {}
        for one in members:
            self._nominator.delete(one.uid)
        if described is None:
            self._end(group)
            return {}
        lines, kinds, by_kind = described
        if standing and not self._is_free(standing, lines, kinds, by_kind):
            return standing
        self._end(group)
        useless = self._useless.setdefault(group.key, set())
        useless.update(standing.values())
        amounts = _amounts(lines, kinds)
        if not self._is_within_share(amounts):
            return {}
        nodes = await self._choose(priority, lines, _without(kinds, self._rows(useless)), by_kind)
        if nodes:
            self._reserved[priority] = Reservation(group.key, amounts)
        return nodes

    def _is_due(self, members: Sequence[QueuedPodInfo]) -> bool:
        after = self._settings.after_seconds
        firsts = [one.initial_attempt_timestamp for one in members]
        waiting = [first for first in firsts if first is not None]
        return bool(after and waiting) and self._now() - min(waiting) >= after

    def _standing(self, members: Sequence[QueuedPodInfo]) -> Nodes:
        """The nodes chosen before, if all of them are still there and open."""
        nodes, table = {}, self._cache.snapshot.table
        for one in members:
            name = self._nominator.node_of(one.uid)
            row = None if name is None else table.rows.get(name)
            if name is None or row is None or table.unschedulable[row]:
                return {}
            nodes[one.uid] = name
        return nodes

    def _is_free(
        self,
        nodes: Nodes,
        lines: Lines,
        kinds: Sequence[Kind],
        by_kind: Sequence[Sequence[QueuedPodInfo]],
    ) -> bool:
        """Whether all the room that members need on their nodes is free; they are not nominated."""
        rows = self._cache.snapshot.table.rows
        free = lines.free(self._nominator, by_kind[0][0].pod)
        chosen = set()
        for kind, some in zip(kinds, by_kind, strict=True):
            for queued in some:
                row = rows[nodes[queued.uid]]
                free[:, row] -= kind.amounts
                chosen.add(row)
        return bool((free[:, sorted(chosen)] >= 0).all())

    def _rows(self, names: Iterable[str]) -> list[int]:
        rows = self._cache.snapshot.table.rows
        return [rows[name] for name in names if name in rows]

    def _is_within_share(self, amounts: Mapping[str, int]) -> bool:
        """Whether this and what is kept for others is no more than the share of the cluster."""
        table = self._cache.snapshot.table
        for resource, amount in amounts.items():
            position = table.axis.find(resource)
            if position < 0:
                return False
            # Python's integers: sums of memory over many nodes.
            whole = sum(table.allocatable[position][: len(table)].tolist())
            kept = sum(one.amounts.get(resource, 0) for one in self._reserved.values())
            if (kept + amount) * 100 > whole * self._settings.max_percentage:
                return False
        return True

    async def _choose(
        self,
        priority: int,
        lines: Lines,
        kinds: Sequence[Kind],
        by_kind: Sequence[Sequence[QueuedPodInfo]],
    ) -> Nodes:
        """Nodes that take all members when less and equally important pods have ended.

        Those come first that lack least of it now, so that the wait is short.
        """
        table = self._cache.snapshot.table
        evictable = self._evictable.below(priority + 1, table)
        await evictable.catch_up(TimeSlice(self._now))
        member = min((one.pod for some in by_kind for one in some), key=lambda pod: pod.priority)
        at_best = lines.free_at_best(evictable)
        lines.keep_for_nominated(at_best, self._nominator, member)
        if not fits(at_best, kinds):
            return {}
        order = _lacking(kinds[0], lines.free(self._nominator, member), at_best)
        nodes = {}
        for some, rows in zip(by_kind, assign(at_best, kinds, order), strict=True):
            places = np.repeat(np.arange(len(rows)), rows).tolist()
            for queued, row in zip(some, places, strict=True):
                nodes[queued.uid] = table.infos[row].name
        return nodes


def _lacking(kind: Kind, free: Ints, at_best: Ints) -> NDArray[np.float64]:
    """What share of the room that a node can have for members is still taken, by node."""
    wanted, lacking = kind.slots(at_best), np.zeros(free.shape[1])
    for line, amount in enumerate(kind.amounts):
        if amount > 0:
            asked = np.maximum(wanted * amount, 1)
            np.maximum(lacking, (asked - np.maximum(free[line], 0)) / asked, out=lacking)
    return lacking


def _without(kinds: Sequence[Kind], rows: Sequence[int]) -> list[Kind]:
    """The same kinds, which may not go to some nodes."""
    found = []
    for kind in kinds:
        is_open = kind.open_rows.copy()
        is_open[rows] = False
        found.append(kind._replace(open_rows=is_open))
    return found


def _amounts(lines: Lines, kinds: Sequence[Kind]) -> dict[str, int]:
    """What all members take together, by resource."""
    return {
        resource: sum(kind.number * kind.amounts[line] for kind in kinds)
        for line, resource in enumerate(lines.resources, 1)
    }

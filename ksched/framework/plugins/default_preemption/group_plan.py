"""Whom to evict for a whole group: the cheapest victims found by amounts.

The choice is that of ``EvictionPlan``, in this order: the lowest ceiling of priorities, the fewest
violated disruption budgets over all victims together, then few broken groups, low priorities and
few victims. The first is exact for members that are alike. The second is exact as long as
``SEARCH_STEPS`` suffice, which they do for some dozens of pods with budgets. For the rest nodes are
taken greedily by cost per place, and afterwards everything is given back that was not needed.

Amounts are not all that filters look at: the caller tries the plan before anybody is evicted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ksched.framework import PodInfo
from ksched.framework.node_columns import Ints
from ksched.framework.plugins.default_preemption.budgets import DisruptionBudgets
from ksched.framework.plugins.default_preemption.candidates import (
    PRIORITY_OFFSET,
    by_importance,
)
from ksched.framework.plugins.default_preemption.group_room import Kind, assign, fits
from ksched.framework.time_slices import Steps
from ksched.groups.group import Group
from ksched.groups.wholeness import can_spare

SEARCH_STEPS = 2000
"""How many sets of pods with budgets are looked at for one with fewer violations."""

Cost = tuple[float, ...]


class Evictee(NamedTuple):
    """A pod that may be evicted."""

    pod: PodInfo
    row: int
    amounts: tuple[int, ...]
    """Lines as in the matrix of free amounts."""
    priority: int
    """Its own, or that of its group."""
    group: Group | None = None


class EvictionPlan(NamedTuple):
    """Victims that make room for a group."""

    victims: list[PodInfo]
    """The most important first."""
    rows: list[Ints]
    """How many members of each kind go to each node then."""
    num_pdb_violations: int
    ceiling: int | None
    """The highest priority of a victim; ``None`` without victims."""


class _Option(NamedTuple):
    """Victims that make room for at least one more member on a node."""

    row: int
    gain: int
    victims: list[Evictee]
    cost: Cost

    def score(self, wanted: int) -> Cost:
        """The cost for each place that is wanted."""
        gain = min(self.gain, wanted)
        violations, priority, broken, priorities, number = self.cost
        return (violations / gain, priority, broken / gain, priorities / gain, number / gain)


class GroupPlanner:
    """Plans for one group on one state of the cluster; every long loop pauses."""

    def __init__(
        self,
        free: Ints,
        kinds: Sequence[Kind],
        evictees: Sequence[Evictee],
        budgets: DisruptionBudgets,
    ) -> None:
        self._free = free
        self._kinds = kinds
        self._evictees = evictees
        self._budgets = budgets
        self._rows = np.array([one.row for one in evictees], np.intp)
        self._priorities = np.array([one.priority for one in evictees], np.int64)
        shape = (len(evictees), free.shape[0])
        self._amounts = np.array([one.amounts for one in evictees], np.int64).reshape(shape)
        self._of_group: dict[str, list[Evictee]] = {}
        for one in evictees:
            if one.group is not None:
                self._of_group.setdefault("/".join(one.group.key), []).append(one)

    # -- the ceiling ------------------------------------------------------------------------------

    def without(self, ceiling: int) -> Ints:
        """What is free when all pods up to a priority are gone."""
        free, gone = self._free.copy(), self._priorities <= ceiling
        np.add.at(free.T, self._rows[gone], self._amounts[gone])
        return free

    def lowest_ceiling(self) -> int | None:
        """The lowest priority up to which evictions suffice; ``None`` if none does."""
        ceilings = sorted(set(self._priorities.tolist()))
        low, high = 0, len(ceilings)
        while low < high:
            middle = (low + high) // 2
            if fits(self.without(ceilings[middle]), self._kinds):
                high = middle
            else:
                low = middle + 1
        return ceilings[low] if low < len(ceilings) else None

    # -- the plan ---------------------------------------------------------------------------------

    def plan(self) -> Steps[EvictionPlan | None]:
        """The cheapest plan; ``None`` if amounts prove that there is none."""
        if fits(self._free, self._kinds):
            return EvictionPlan([], assign(self._free, self._kinds), 0, None)
        ceiling = self.lowest_ceiling()
        if ceiling is None:
            return None
        within = [one for one in self._evictees if one.priority <= ceiling]
        chosen = yield from _Choice(self, within).choose()
        violations = self.violations(chosen)
        if violations and len(self._kinds) == 1:
            covered = yield from self._fewest_violations(within, violations)
            if covered is not None:
                chosen = yield from _Choice(self, covered).choose()
        victims = by_importance(one.pod for one in chosen)
        rows = assign(self.removed(chosen), self._kinds)
        return EvictionPlan(
            victims, rows, self.violations(chosen), max(one.priority for one in chosen)
        )

    def violations(self, evictees: Iterable[Evictee]) -> int:
        """How many of the victims violate a budget, all counted together."""
        return len(self._budgets.split(by_importance(one.pod for one in evictees))[0])

    def removed(self, evictees: Iterable[Evictee]) -> Ints:
        free = self._free.copy()
        for one in evictees:
            free[:, one.row] += one.amounts
        return free

    def siblings(self, group: Group) -> list[Evictee]:
        return self._of_group["/".join(group.key)]

    def units(self, evictees: Iterable[Evictee]) -> list[list[Evictee]]:
        """Pods that are evicted together: each by itself, or a group's that cannot spare them."""
        units: list[list[Evictee]] = []
        by_group: dict[str, list[Evictee]] = {}
        for one in evictees:
            if one.group is None:
                units.append([one])
            else:
                by_group.setdefault("/".join(one.group.key), []).append(one)
        for together in by_group.values():
            group = together[0].group
            assert group is not None
            if can_spare(group, [one.pod for one in together]):
                units += [[one] for one in together]
            else:
                units.append(together)
        return units

    def _fewest_violations(
        self, within: Sequence[Evictee], known: int
    ) -> Steps[list[Evictee] | None]:
        """Who may be evicted if fewer budgets than ``known`` are to be violated.

        Tries to spare the pods with budgets one after the other, all others being gone. ``None`` if
        nothing better was found.
        """
        units = self.units(within)
        covered = [unit for unit in units if any(self._budgets.cover(one.pod) for one in unit)]
        others = [one for unit in units if unit not in covered for one in unit]
        kind, best, found = self._kinds[0], known, None
        free = self.removed(within)
        # Depth first: what was decided about the units before, and the room with the rest gone.
        todo: list[tuple[int, list[Evictee], Ints]] = [(0, [], free)]
        for _ in range(SEARCH_STEPS):
            if not todo:
                break
            number, evicted, free = todo.pop()
            yield
            violations = self.violations(evicted)
            if violations >= best:
                continue
            if number == len(covered):
                best, found = violations, [*others, *evicted]
                continue
            unit = covered[number]
            todo.append((number + 1, [*evicted, *unit], free))
            spared = free.copy()
            for one in unit:
                spared[:, one.row] -= one.amounts
            if fits(spared, (kind,)):
                todo.append((number + 1, evicted, spared))
        return found


class _Choice:
    """A greedy choice among evictees whose eviction suffices."""

    def __init__(self, planner: GroupPlanner, within: Sequence[Evictee]) -> None:
        self._planner = planner
        self._budgets = planner._budgets
        self._free = planner._free.copy()
        self._chosen: dict[str, Evictee] = {}
        self._allowed: dict[str, int] = {}
        self._left: dict[int, dict[str, Evictee]] = {}
        self._linked: set[int] = set()
        """Nodes with pods that others elsewhere have a bearing on: by a budget, or a group."""
        for one in within:
            self._left.setdefault(one.row, {})[one.pod.uid] = one
            if one.group is not None or self._budgets.cover(one.pod):
                self._linked.add(one.row)

    def choose(self) -> Steps[list[Evictee]]:
        kinds = self._planner._kinds
        for number, kind in enumerate(kinds):
            yield from self._make_room(kind)
            if number + 1 < len(kinds):
                # The members of this kind are where they would go; the next sees what is left.
                taken = assign(self._free, [kind])[0]
                for line, amount in enumerate(kind.amounts):
                    self._free[line] -= taken * amount
        yield from self._give_back()
        return list(self._chosen.values())

    def _make_room(self, kind: Kind) -> Steps[None]:
        """Evict until all members of a kind have a place, the cheapest per place first."""
        missing = kind.number - int(kind.slots(self._free).sum())
        heap: list[tuple[Cost, int, int]] = []
        options: dict[int, _Option] = {}
        versions: dict[int, int] = {}

        def look(row: int) -> None:
            option = self._option(kind, row)
            versions[row] = versions.get(row, 0) + 1
            options.pop(row, None)
            if option is not None:
                options[row] = option
                heapq.heappush(heap, (option.score(missing), row, versions[row]))

        if missing > 0:
            for row in self._left:
                look(row)
                yield
        while missing > 0 and heap:
            score, row, version = heapq.heappop(heap)
            if versions[row] != version:
                continue
            option = options[row]
            now = option.score(missing)
            if now > score:
                heapq.heappush(heap, (now, row, version))
                continue
            self._evict(option.victims)
            missing = kind.number - int(kind.slots(self._free).sum())
            if missing <= 0:
                return
            stale = {one.row for one in option.victims}
            if stale & self._linked:
                stale |= self._linked
            for row in stale:
                look(row)
                yield

    def _option(self, kind: Kind, row: int) -> _Option | None:
        """The pods of a node that have to go for one more member, and whom they take with them."""
        if not kind.open_rows[row] or not self._left.get(row):
            return None
        here = self._left[row]
        pods = by_importance(one.pod for one in here.values())
        breaking = self._breaking(pods, here)
        if breaking:
            pods = by_importance(pods, breaking)
        violating, others = self._budgets.split(pods, dict(self._allowed))
        free = self._free[:, row].tolist()
        wanted = kind.slots_of_row(free, row) + 1
        for pod in pods:
            free = [have + one for have, one in zip(free, here[pod.uid].amounts, strict=True)]
        if kind.slots_of_row(free, row) < wanted:
            return None
        going: list[Evictee] = []
        for pod in (*violating, *others):
            one = here[pod.uid]
            reprieved = [have - amount for have, amount in zip(free, one.amounts, strict=True)]
            if kind.slots_of_row(reprieved, row) >= wanted:
                free = reprieved
            else:
                going.append(one)
        victims, broken = self._complete(going)
        return _Option(row, self._gain(kind, victims), victims, self._cost(victims, broken))

    def _breaking(self, pods: Sequence[PodInfo], here: dict[str, Evictee]) -> frozenset[str]:
        """Pods, from the most important to the least, that their groups cannot spare."""
        breaking, spared = [], dict[str, list[PodInfo]]()
        for pod in reversed(pods):
            group = here[pod.uid].group
            if group is None:
                continue
            key = "/".join(group.key)
            going = spared.setdefault(key, self._going_of(group))
            if can_spare(group, [*going, pod]):
                going.append(pod)
            else:
                breaking.append(pod.uid)
        return frozenset(breaking)

    def _going_of(self, group: Group) -> list[PodInfo]:
        """Members that are victims already."""
        return [one.pod for one in self._planner.siblings(group) if one.pod.uid in self._chosen]

    def _complete(self, going: list[Evictee]) -> tuple[list[Evictee], int]:
        """Add whole groups where a part is not enough; and how many groups that breaks."""
        victims = {one.pod.uid: one for one in going}
        groups = {"/".join(one.group.key): one.group for one in going if one.group is not None}
        broken = 0
        for group in groups.values():
            own = [one.pod for one in going if one.group is group]
            before = self._going_of(group)
            if can_spare(group, [*before, *own]):
                continue
            members = self._planner.siblings(group)
            broken += len(before) < len(members)
            for one in members:
                if one.pod.uid not in self._chosen:
                    victims[one.pod.uid] = one
        return list(victims.values()), broken

    def _gain(self, kind: Kind, victims: Sequence[Evictee]) -> int:
        """How many more members fit, on all nodes."""
        gain, rows = 0, dict[int, list[int]]()
        for one in victims:
            free = rows.setdefault(one.row, self._free[:, one.row].tolist())
            rows[one.row] = [have + more for have, more in zip(free, one.amounts, strict=True)]
        for row, free in rows.items():
            before = kind.slots_of_row(self._free[:, row].tolist(), row)
            gain += kind.slots_of_row(free, row) - before
        return gain

    def _cost(self, victims: Sequence[Evictee], broken: int) -> Cost:
        pods = by_importance(one.pod for one in victims)
        violating, _ = self._budgets.split(pods, dict(self._allowed))
        return (
            len(violating),
            max(one.priority for one in victims),
            broken,
            sum(one.pod.priority + PRIORITY_OFFSET for one in victims),
            len(victims),
        )

    def _evict(self, victims: Sequence[Evictee]) -> None:
        self._budgets.split(by_importance(one.pod for one in victims), self._allowed)
        for one in victims:
            self._free[:, one.row] += one.amounts
            self._chosen[one.pod.uid] = one
            self._left.get(one.row, {}).pop(one.pod.uid, None)

    def _give_back(self) -> Steps[None]:
        """Spare whoever is not needed in the end: who violates a budget, who matters most."""
        planner = self._planner
        free = planner.removed(self._chosen.values())
        violating, _ = self._budgets.split(by_importance(one.pod for one in self._chosen.values()))
        flagged = {pod.uid for pod in violating}

        def order(unit: list[Evictee]) -> tuple[bool, int, int]:
            is_violating = any(one.pod.uid in flagged for one in unit)
            return (not is_violating, -max(one.priority for one in unit), -len(unit))

        for unit in sorted(planner.units(self._chosen.values()), key=order):
            without = free.copy()
            for one in unit:
                without[:, one.row] -= one.amounts
            yield
            if fits(without, planner._kinds):
                free = without
                for one in unit:
                    del self._chosen[one.pod.uid]

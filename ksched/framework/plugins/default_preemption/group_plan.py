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
from collections import Counter
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
from ksched.groups.group import Group
from ksched.groups.wholeness import can_spare
from ksched.steps import Steps

SEARCH_STEPS = 2000
"""How many sets of pods with budgets are looked at for one with fewer violations."""

BLOCK = 1024
"""Pods looked at between two pauses, where each takes little time."""

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
        self._rows = np.zeros(len(evictees), np.intp)
        self._priorities = np.zeros(len(evictees), np.int64)
        self._amounts = np.zeros((len(evictees), free.shape[0]), np.int64)
        self._of_group: dict[str, list[Evictee]] = {}

    def _prepare(self) -> Steps[None]:
        for start in range(0, len(self._evictees), BLOCK):
            block = self._evictees[start : start + BLOCK]
            end = start + len(block)
            self._rows[start:end] = [one.row for one in block]
            self._priorities[start:end] = [one.priority for one in block]
            self._amounts[start:end] = [one.amounts for one in block]
            for one in block:
                if one.group is not None:
                    self._of_group.setdefault("/".join(one.group.key), []).append(one)
            yield

    # -- the ceiling ------------------------------------------------------------------------------

    def without(self, ceiling: int) -> Ints:
        """What is free when all pods up to a priority are gone."""
        free, gone = self._free.copy(), self._priorities <= ceiling
        np.add.at(free.T, self._rows[gone], self._amounts[gone])
        return free

    def _lowest_ceiling(self) -> Steps[int | None]:
        """The lowest priority up to which evictions suffice; ``None`` if none does."""
        ceilings = sorted(set(self._priorities.tolist()))
        low, high = 0, len(ceilings)
        while low < high:
            yield
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
        yield from self._prepare()
        ceiling = yield from self._lowest_ceiling()
        if ceiling is None:
            return None
        within = [one for one in self._evictees if one.priority <= ceiling]
        chosen = yield from _Choice(self, within).choose()
        yield
        violations = self.violations(chosen)
        if violations and len(self._kinds) == 1:
            better = yield from self._fewest_violations(within, violations)
            if better is not None:
                chosen = yield from _Choice(self, better).choose()
        yield
        victims = by_importance(one.pod for one in chosen)
        rows = assign(self.removed(chosen), self._kinds)
        return EvictionPlan(
            victims, rows, self.violations(chosen), max(one.priority for one in chosen)
        )

    def violations(self, evictees: Iterable[Evictee]) -> int:
        """How many of the victims violate a budget, all counted together."""
        return len(self._budgets.split(by_importance(one.pod for one in evictees))[0])

    def removed(self, evictees: Iterable[Evictee]) -> Ints:
        gone = list(evictees)
        free, rows = self._free.copy(), [one.row for one in gone]
        if gone:
            np.add.at(free.T, rows, np.array([one.amounts for one in gone], np.int64))
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

        Tries to spare the pods with budgets one after the other, all others being gone, and goes
        back where that leads nowhere. ``None`` if nothing better was found.
        """
        covered: list[list[Evictee]] = []
        others: list[Evictee] = []
        for number, unit in enumerate(self.units(within)):
            if any(self._budgets.cover(one.pod) for one in unit):
                covered.append(unit)
            else:
                others += unit
            if number % BLOCK == 0:
                yield
        free, best, found = self.removed(within), known, None
        path = _Path(self._budgets)
        for _ in range(SEARCH_STEPS):
            yield
            is_dead_end = path.violations >= best
            if not is_dead_end and len(path) == len(covered):
                best, found = path.violations, [*others, *path.evicted]
                is_dead_end = True
            if is_dead_end:
                spared = path.go_back()
                if spared is None:
                    break
                _add(free, spared, 1)
                path.evict(spared)
                continue
            unit = covered[len(path)]
            _add(free, unit, -1)
            if fits(free, self._kinds):
                path.spare(unit)
            else:
                _add(free, unit, 1)
                path.evict(unit)
        return found


def _add(free: Ints, unit: Iterable[Evictee], sign: int) -> None:
    for one in unit:
        free[:, one.row] += np.multiply(one.amounts, sign)


class _Path:
    """What was decided about the first units of a search."""

    def __init__(self, budgets: DisruptionBudgets) -> None:
        self._budgets = budgets
        self._decided: list[tuple[list[Evictee], bool, int, dict[str, int]]] = []
        """Units, whether they are spared, and violations and allowances before them."""
        self.violations = 0
        self._allowed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._decided)

    @property
    def evicted(self) -> list[Evictee]:
        return [one for unit, is_spared, *_ in self._decided if not is_spared for one in unit]

    def spare(self, unit: list[Evictee]) -> None:
        self._decided.append((unit, True, self.violations, self._allowed))

    def evict(self, unit: list[Evictee]) -> None:
        self._decided.append((unit, False, self.violations, self._allowed))
        self._allowed = dict(self._allowed)
        violating, _ = self._budgets.split([one.pod for one in unit], self._allowed)
        self.violations += len(violating)

    def go_back(self) -> list[Evictee] | None:
        """Forget decisions up to the last unit that was spared; ``None`` if there is none."""
        while self._decided:
            unit, is_spared, self.violations, self._allowed = self._decided.pop()
            if is_spared:
                return unit
        return None


class _Choice:
    """A greedy choice among evictees whose eviction suffices."""

    def __init__(self, planner: GroupPlanner, within: Sequence[Evictee]) -> None:
        self._planner = planner
        self._budgets = planner._budgets
        self._free = planner._free.copy()
        self._chosen: dict[str, Evictee] = {}
        self._going: dict[str, list[PodInfo]] = {}
        """Victims by group."""
        self._allowed: dict[str, int] = {}
        self._left: dict[int, dict[str, Evictee]] = {}
        self._linked: set[int] = set()
        """Nodes with pods that others elsewhere have a bearing on: by a budget, or a group."""
        self._within = within

    def choose(self) -> Steps[list[Evictee]]:
        for number, one in enumerate(self._within):
            self._left.setdefault(one.row, {})[one.pod.uid] = one
            if one.group is not None or self._budgets.cover(one.pod):
                self._linked.add(one.row)
            if number % BLOCK == 0:
                yield
        kinds = self._planner._kinds
        for number, kind in enumerate(kinds):
            yield from self._make_room(kind)
            if number + 1 < len(kinds):
                # The members of this kind are where they would go; the next sees what is left.
                taken = assign(self._free, [kind])[0]
                for line, amount in enumerate(kind.amounts):
                    self._free[line] -= taken * amount
        if not fits(self._planner.removed(self._chosen.values()), kinds):
            # The kinds were in each other's way; giving back keeps what is needed.
            self._evict([one for one in self._within if one.pod.uid not in self._chosen])
        yield from self._give_back()
        return list(self._chosen.values())

    def _make_room(self, kind: Kind) -> Steps[None]:
        """Evict until all members of a kind have a place, the cheapest per place first."""
        missing = kind.number - int(kind.slots(self._free).sum())
        if missing <= 0:
            return
        heap: list[tuple[Cost, int, int, int]] = []
        options: dict[int, _Option] = {}
        versions: Counter[int] = Counter()
        evictions = 0

        def look(row: int) -> None:
            option = self._option(kind, row)
            versions[row] += 1
            if option is not None:
                options[row] = option
                heapq.heappush(heap, (option.score(missing), row, versions[row], evictions))

        for row in self._left:
            look(row)
            yield
        while missing > 0 and heap:
            score, row, version, seen = heapq.heappop(heap)
            if version != versions[row]:
                continue
            option = options[row]
            is_stale = row in self._linked and seen != evictions
            if is_stale or option.score(missing) != score:
                # Costs only grow by what is evicted elsewhere: it is enough to look again now.
                look(row)
                yield
                continue
            self._evict(option.victims)
            evictions += 1
            missing = kind.number - int(kind.slots(self._free).sum())
            for other in {one.row for one in option.victims} if missing > 0 else ():
                look(other)
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
        return list(self._going.get("/".join(group.key), ()))

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
            if one.group is not None:
                self._going.setdefault("/".join(one.group.key), []).append(one.pod)
            self._left.get(one.row, {}).pop(one.pod.uid, None)

    def _give_back(self) -> Steps[None]:
        """Spare whoever is not needed in the end: who violates a budget, who matters most."""
        planner = self._planner
        free = planner.removed(self._chosen.values())
        yield
        victims = by_importance(one.pod for one in self._chosen.values())
        flagged = {pod.uid for pod in self._budgets.split(victims)[0]}
        yield
        units = planner.units(self._chosen.values())
        yield

        def order(unit: list[Evictee]) -> tuple[bool, int, int]:
            is_violating = any(one.pod.uid in flagged for one in unit)
            return (not is_violating, -max(one.priority for one in unit), -len(unit))

        kinds = planner._kinds
        spare = int(kinds[0].slots(free).sum()) - kinds[0].number
        for unit in sorted(units, key=order):
            yield
            if len(kinds) == 1:
                lost = _lost_slots(kinds[0], free, unit)
                if lost > spare:
                    continue
                spare -= lost
                _add(free, unit, -1)
            else:
                _add(free, unit, -1)
                if not fits(free, kinds):
                    _add(free, unit, 1)
                    continue
            for one in unit:
                del self._chosen[one.pod.uid]


def _lost_slots(kind: Kind, free: Ints, unit: Iterable[Evictee]) -> int:
    """How many slots are lost if a unit is given back."""
    lost = 0
    rows: dict[int, list[Evictee]] = {}
    for one in unit:
        rows.setdefault(one.row, []).append(one)
    for row, some in rows.items():
        before = free[:, row]
        after = before - np.sum([one.amounts for one in some], axis=0)
        lost += kind.slots_of_row(before.tolist(), row) - kind.slots_of_row(after.tolist(), row)
    return lost

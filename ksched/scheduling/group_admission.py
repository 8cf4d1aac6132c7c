"""Admits groups whose controllers create their pods only afterwards (Volcano's PodGroups).

A group is admitted when its minimum resources are free, beside those that were admitted before and
have no members on nodes yet. Sums over all nodes, as in Volcano: whether the pods fit is decided
when they exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ksched.cache.cache import SchedulerCache
from ksched.clock import Clock
from ksched.groups.group import Group
from ksched.groups.registry import Groups
from ksched.groups.slots import PODS
from ksched.unexpected_errors import UnexpectedErrors

PERIOD_SECONDS: Final = 1.0
"""Volcano's own period."""


class GroupAdmission:
    """Looks once a second, as long as the dialect is read."""

    def __init__(
        self,
        cache: SchedulerCache,
        groups: Groups,
        clock: Clock,
        unexpected_errors: UnexpectedErrors,
    ) -> None:
        self._cache = cache
        self._groups = groups
        self._clock = clock
        self._unexpected_errors = unexpected_errors

    async def run(self) -> None:
        """Admit groups until cancelled."""
        while True:
            try:
                self.admit()
            except Exception as problem:  # noqa: BLE001 - reported
                self._unexpected_errors.report("group admission", "", problem)
            await self._clock.sleep(PERIOD_SECONDS)

    def admit(self) -> None:
        """Admit every group that there is room for, those that came first before the others."""
        waiting: list[tuple[str, Group, Mapping[str, int]]] = []
        taken: Counter[str] = Counter()
        for group in self._groups:
            terms = group.object_terms
            if terms is None or terms.problem or not terms.is_admitted_first:
                continue
            if not group.is_admitted:
                waiting.append((terms.created or "", group, terms.min_resources))
            elif not (group.placed or group.succeeded or terms.was_satisfied):
                taken.update(terms.min_resources)
        if not waiting:
            return
        waiting.sort(key=lambda one: (one[0], one[1].key))
        free = self._free({name for _, _, wanted in waiting for name in wanted})
        for _, group, wanted in waiting:
            if all(free[name] - taken[name] >= amount for name, amount in wanted.items()):
                taken.update(wanted)
                self._groups.admit(group)

    def _free(self, resources: set[str]) -> Counter[str]:
        """What is free on all open nodes."""
        free: Counter[str] = Counter()
        # What no node offers is free nowhere.
        axis = self._cache.snapshot.table.axis
        known = {name for name in resources if name == PODS or axis.find(name) >= 0}
        for name in self._cache.node_names() if known else ():
            info = self._cache.get_node(name)
            if info is None or info.node is None or info.node.spec.unschedulable:
                continue
            for resource in known:
                if resource == PODS:
                    left = info.allowed_pods - len(info.pods)
                else:
                    left = info.allocatable_of(resource) - info.requested_of(resource)
                free[resource] += max(left, 0)
        return free

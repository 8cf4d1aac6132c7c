"""How many pods like the members of a group fit on each node, as of the snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ksched.cache.cache import SchedulerCache
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.plugins import names
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.groups.sentences import short_of
from ksched.groups.slots import CountedSlots, Slots, count_slots
from ksched.scheduling.group_shortage import Shortage
from ksched.scheduling.group_trial import Need
from ksched.scheduling.scheduling_cycle import SchedulingCycle

NODE_FILTERS = frozenset(
    {
        names.NODE_UNSCHEDULABLE,
        names.NODE_NAME,
        names.TAINT_TOLERATION,
        names.NODE_AFFINITY,
        names.NODE_PORTS,
    }
)
"""Filters whose rejection of a node holds while pods are only added. What depends on amounts is
counted as slots."""
SLOT_FILTERS = NODE_FILTERS | {names.NODE_RESOURCES_FIT}
"""What counting slots looks at."""


class SlotCounter:
    """Counts slots by kind of pod; counts are cached until the table changes."""

    def __init__(self, cache: SchedulerCache, cycle: SchedulingCycle) -> None:
        self._cache = cache
        self._cycle = cycle
        self._slots = CountedSlots(cache.snapshot.table)

    def forget(self) -> None:
        """The filters are others now."""
        self._slots.clear()

    def has_counted(self, queued: QueuedPodInfo) -> bool:
        """Whether the slots of pods like this one are known for the table as it is."""
        return self._slots.get(kind_of(queued)) is not None

    async def of_kinds(
        self, members: Sequence[QueuedPodInfo]
    ) -> list[tuple[Slots, list[QueuedPodInfo]]] | None:
        """The slots of each kind of members, and those; ``None`` if they cannot be counted."""
        kinds: dict[object, list[QueuedPodInfo]] = {}
        for queued in members:
            kinds.setdefault(kind_of(queued), []).append(queued)
        counted = []
        for kind, alike in kinds.items():
            slots = self._slots.get(kind)
            if slots is None:
                slots = await self._count(alike[0])
                if slots is None:
                    return None
                self._slots.put(kind, slots)
            counted.append((slots, alike))
        return counted

    async def shortage(self, members: Sequence[QueuedPodInfo], need: Need) -> Shortage | None:
        """Why no order of placing meets the need; ``None`` if there are slots enough."""
        if need.total < 2 or not len(self._cache.snapshot):
            return None
        counted = await self.of_kinds(members) or []
        fitting, rejectors, worst = 0, frozenset[str](), None
        for slots, alike in counted:
            fitting += min(slots.total, len(alike))
            rejectors |= slots.rejectors
            if slots.total < len(alike) and (worst is None or slots.total < worst[0].total):
                worst = (slots, alike[0])
        if fitting >= need.total or worst is None:
            return None
        slots, queued = worst
        amount = queued.pod.template.requests.get(slots.scarcest, 1)
        return Shortage(
            short_of(fitting, need.total, slots.scarcest, amount),
            rejectors | {names.NODE_RESOURCES_FIT},
            need.total - fitting,
            slots if len(counted) == 1 else None,
        )

    def requests(self, queued: QueuedPodInfo) -> Mapping[str, int] | None:
        """What is compared with free amounts; ``None`` if nothing is."""
        plugins = self._cycle.profile_of(queued).framework.plugins
        checked = getattr(plugins.get(names.NODE_RESOURCES_FIT), "checked_requests", None)
        return None if checked is None else checked(queued.pod.template)

    async def _count(self, queued: QueuedPodInfo) -> Slots | None:
        """Return the slots for pods of this kind; ``None`` if they cannot be counted."""
        requests = self.requests(queued)
        if requests is None:
            return None
        profile = self._cycle.profile_of(queued)
        fit = await self._cycle.find_nodes(profile, CycleState(), queued.pod)
        if isinstance(fit, Diagnosis):
            if fit.node_statuses is None or fit.pre_filter_message:
                return None
            codes, statuses = fit.node_statuses.codes, fit.node_statuses.statuses
        else:
            codes, statuses = fit.codes, fit.book.statuses
        closed = [number for number, one in enumerate(statuses, 1) if one.plugin in NODE_FILTERS]
        open_rows = ~np.isin(codes, closed)
        rejectors = frozenset(one.plugin for one in statuses if one.plugin)
        return count_slots(self._cache.snapshot.table, requests, open_rows, rejectors)


def kind_of(queued: QueuedPodInfo) -> tuple[str, object]:
    """What pods have in common that take equal slots."""
    template = queued.pod.template
    return template.spec.scheduler_name, template.signature

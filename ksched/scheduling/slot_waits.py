"""Groups of one kind that were proved impossible wait together, until there may be room for one.

A group whose members are alike is impossible while the slots of all nodes, with less important pods
gone, are fewer than it needs: so are all groups of that kind and need. What they wait for is one
``SlotWait``. It has the slots of every node at the last proof, and recounts the nodes that changed
since: an event that makes too little room costs the few nodes that it concerns, however many groups
wait. The count is never too low. So it cannot hide a group that fits; one that is tried in vain
counts anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from weakref import WeakValueDictionary

import numpy as np

from ksched.cache.cache import SchedulerCache
from ksched.cache.change_log import NEVER
from ksched.cache.node_info import NodeInfo
from ksched.groups.slots import Slots

FEW_NODES = 64
"""After more changes one group is tried, which counts all nodes."""
MOST_WAITS = 64
"""Each has a number for every node; groups of further kinds wait on their own."""
NO_SLOTS = Slots(np.zeros(0, np.int64), 0, "")


class SlotWaits:
    """The waits of all kinds of groups that are known to be impossible."""

    def __init__(self, cache: SchedulerCache) -> None:
        self.cache = cache
        self.is_deciding = False
        """Whether a group is being decided: the table may have members of it that will be undone.
        Written by the group cycle."""
        self._waits: WeakValueDictionary[Hashable, SlotWait] = WeakValueDictionary()

    def forget(self) -> None:
        """The filters are others now: later proofs make waits of their own."""
        self._waits.clear()

    def proved(
        self,
        kind: Hashable,
        need: int,
        priority: int | None,
        requests: Mapping[str, int],
        slots: Slots,
    ) -> SlotWait | None:
        """The wait of groups that need so many pods of a kind, now that there are too few slots.

        ``slots`` are those without pods below ``priority``; ``None`` if nobody is evicted for them.
        The result is ``None`` if there are too many kinds.
        """
        key = (kind, need, priority)
        wait = self._waits.get(key)
        if wait is None:
            if len(self._waits) >= MOST_WAITS:
                return None
            wait = self._waits[key] = SlotWait(self, need, priority)
        wait.count(requests, slots)
        return wait


class SlotWait:
    """What groups of one kind wait for: a number of slots on all nodes together."""

    def __init__(self, waits: SlotWaits, need: int, priority: int | None) -> None:
        self._waits = waits
        self._table = waits.cache.snapshot.table
        self._need = need
        self._priority = priority
        self._requests: Mapping[str, int] = {}
        self._generation = self._object_generation = NEVER
        self._total = 0
        self._slots = NO_SLOTS
        """Those of the last proof."""
        self._recounted: dict[int, int] = {}
        """Slots of rows that have changed since."""
        self._opened: set[int] = set()
        """Rows whose node object has changed since: taints and labels may be others."""

    def count(self, requests: Mapping[str, int], slots: Slots) -> None:
        """Set the slots of all nodes, as the table is now."""
        self._requests = requests
        self._slots, self._total, self._recounted, self._opened = slots, slots.total, {}, set()
        self._generation = self._table.row_log.generation
        self._object_generation = self._table.node_log.generation

    def can_end(self) -> bool:
        """Whether there may be as many slots as a group needs."""
        cache, table = self._waits.cache, self._table
        rows, unpublished = table.row_log.since(self._generation), cache.changed_nodes
        objects = table.node_log.since(self._object_generation)
        if self._waits.is_deciding or rows is None or objects is None:
            return True
        if len(rows) + len(unpublished) > FEW_NODES:
            return True
        self._generation = table.row_log.generation
        self._object_generation = table.node_log.generation
        self._opened.update(objects)
        for row in rows:
            # A row past the end is one that was removed.
            is_there = row < len(table) and self._is_open(row)
            slots = self._slots_on(table.infos[row]) if is_there else 0
            self._total += slots - self._known(row)
            self._recounted[row] = slots
        total = self._total
        for name in unpublished:
            info = cache.get_node(name)
            if info is not None:
                total += self._gain(info)
        return total >= self._need

    def _gain(self, info: NodeInfo) -> int:
        """How many more fit on a node than the table says."""
        row = self._table.rows.get(info.name)
        if row is None:
            return self._slots_on(info)
        if self._is_open(row) or info.node is not self._table.infos[row].node:
            return max(self._slots_on(info) - self._known(row), 0)
        return 0

    def _known(self, row: int) -> int:
        known = self._recounted.get(row)
        if known is None:
            by_row = self._slots.by_row
            known = int(by_row[row]) if row < len(by_row) else 0
        return known

    def _is_open(self, row: int) -> bool:
        """Whether the node of a row takes such pods, as far as its object tells."""
        open_rows = self._slots.open_rows
        return (
            row in self._opened
            or open_rows is None
            or row >= len(open_rows)
            or bool(open_rows[row])
        )

    def _slots_on(self, info: NodeInfo) -> int:
        """How many fit on a node at most, if its object lets them."""
        if info.node is None:
            return 0
        lower = []
        if self._priority is not None:
            lower = [pod for pod in info.pods.values() if pod.priority < self._priority]
        slots = info.allowed_pods - info.num_pods + len(lower)
        for resource, amount in self._requests.items():
            if amount > 0:
                free = info.allocatable_of(resource) - info.requested_of(resource)
                free += sum(pod.demand.requests.get(resource, 0) for pod in lower)
                slots = min(slots, free // amount)
        return max(slots, 0)

"""A bounded cache of plugins' values per template."""

from __future__ import annotations

from typing import Generic, TypeVar

from ksched.cache.counters.pod_ledger import PodLedger
from ksched.cache.pod_info import PodTemplate
from ksched.cache.recently_used import RecentlyUsed, room_for
from ksched.tuning import COUNTERS_BYTES, COUNTERS_BYTES_PER_NODE

V = TypeVar("V")


class PerTemplate(Generic[V]):
    """Values that a plugin stores per template between cycles, mostly counters.

    The least recently used template is evicted. Counters are shared between templates and live as
    long as one of them is cached.
    """

    def __init__(self) -> None:
        self._ledger: PodLedger | None = None
        self._cached: RecentlyUsed[PodTemplate, V] = RecentlyUsed()

    def get(self, ledger: PodLedger, template: PodTemplate) -> V | None:
        if ledger is not self._ledger:
            self._ledger = ledger
            self._cached.clear()
        return self._cached.get(template)

    def put(self, template: PodTemplate, value: V) -> None:
        """Store a value for a template; call after ``get``."""
        nodes = 1 if self._ledger is None else max(len(self._ledger.table), 1)
        room = room_for(COUNTERS_BYTES, COUNTERS_BYTES_PER_NODE * nodes)
        self._cached.put(template, value, room)

    def sweep(self) -> None:
        """Drop templates that are no longer used; called periodically."""
        self._cached.sweep()

    def __len__(self) -> int:
        return len(self._cached)

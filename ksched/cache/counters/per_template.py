"""What plugins keep for templates between cycles."""

from __future__ import annotations

from typing import Generic, TypeVar

from ksched.cache.counters.pod_counts import PodLedger
from ksched.cache.pod_info import PodTemplate
from ksched.cache.recently_used import RecentlyUsed, room_for
from ksched.tuning import COUNTERS_BYTES, COUNTERS_BYTES_PER_NODE

V = TypeVar("V")


class PerTemplate(Generic[V]):
    """What a plugin keeps for templates, counters above all.

    The template unused for longest makes room. Counters are shared between templates and live as
    long as one of them is kept.
    """

    def __init__(self) -> None:
        self._ledger: PodLedger | None = None
        self._cached: RecentlyUsed[PodTemplate, V] = RecentlyUsed()

    def get(self, ledger: PodLedger, template: PodTemplate) -> V | None:
        if ledger is not self._ledger:
            self._ledger = ledger
            self._cached.clear()
        return self._cached.get(template)

    def put(self, template: PodTemplate, kept: V) -> None:
        """Keep something for a template; call after ``get``."""
        nodes = 1 if self._ledger is None else max(len(self._ledger.table), 1)
        room = room_for(COUNTERS_BYTES, COUNTERS_BYTES_PER_NODE * nodes)
        self._cached.put(template, kept, room)

    def sweep(self) -> None:
        """Let go of templates that are not asked for any more; called every now and then."""
        self._cached.sweep()

    def __len__(self) -> int:
        return len(self._cached)

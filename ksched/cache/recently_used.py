"""The one eviction rule of caches: least recently used, bounded, swept when idle.

State shared only while something refers to it is not a cache: that is a weak-value dictionary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, ItemsView
from typing import Generic, TypeVar

from ksched.tuning import FEWEST_CACHED, MOST_CACHED

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def room_for(budget_bytes: int, bytes_each: int) -> int:
    """How many entries of a size fit a budget; bounded below and above."""
    return min(max(budget_bytes // bytes_each, FEWEST_CACHED), MOST_CACHED)


class RecentlyUsed(Generic[K, V]):
    """An LRU cache that also drops entries that are no longer used.

    ``sweep`` is called periodically and drops entries not used since its last call. While less than
    half of the room is taken, the order of use is not kept: it costs more than the look-up. So
    those not used since then are evicted in the order of ``put``, and before all others.
    """

    __slots__ = ("_cached", "_idle", "_is_half_full")

    def __init__(self) -> None:
        self._cached: OrderedDict[K, V] = OrderedDict()
        self._is_half_full = False
        self._idle: set[K] = set()
        """Keys not used since the last sweep."""

    def get(self, key: K) -> V | None:
        value = self._cached.get(key)
        if value is not None:
            if self._is_half_full:
                self._cached.move_to_end(key)
            if self._idle:
                self._idle.discard(key)
        return value

    def put(self, key: K, value: V, room: int) -> None:
        """Store a value, evicting the least recently used down to ``room`` entries."""
        self._cached[key] = value
        self._idle.discard(key)
        self._is_half_full = 2 * len(self._cached) >= room
        while len(self._cached) > room:
            oldest, _ = self._cached.popitem(last=False)
            self._idle.discard(oldest)

    def pop(self, key: K) -> None:
        self._cached.pop(key, None)
        self._idle.discard(key)

    def clear(self) -> None:
        self._cached.clear()
        self._idle.clear()

    def sweep(self) -> None:
        for key in self._idle:
            del self._cached[key]
        self._idle = set(self._cached)

    def copy(self) -> RecentlyUsed[K, V]:
        copied: RecentlyUsed[K, V] = RecentlyUsed()
        copied._cached = self._cached.copy()
        copied._is_half_full = self._is_half_full
        return copied

    def items(self) -> ItemsView[K, V]:
        """Return all entries; does not count as use."""
        return self._cached.items()

    def __contains__(self, key: K) -> bool:
        return key in self._cached

    def __len__(self) -> int:
        return len(self._cached)

"""One rule for what is cached because it may be used again: as long as it is, and bounded.

What is shared while something uses it is no cache: those are dictionaries with weak values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, ItemsView
from typing import Generic, TypeVar

from ksched.tuning import FEWEST_CACHED, MOST_CACHED

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def room_for(budget_bytes: int, bytes_each: int) -> int:
    """How many values of a size may be cached; in tiny and huge clusters memory is no measure."""
    return min(max(budget_bytes // bytes_each, FEWEST_CACHED), MOST_CACHED)


class RecentlyUsed(Generic[K, V]):
    """Values by key; the one unused for longest makes room, and one that is not used any more goes.

    ``sweep`` is called every now and then and drops what was not used since the last call.
    """

    __slots__ = ("_cached", "_idle")

    def __init__(self) -> None:
        self._cached: OrderedDict[K, V] = OrderedDict()
        self._idle: set[K] = set()
        """Not used since the last sweep."""

    def get(self, key: K) -> V | None:
        value = self._cached.get(key)
        if value is not None:
            self._cached.move_to_end(key)
            if self._idle:
                self._idle.discard(key)
        return value

    def put(self, key: K, value: V, room: int) -> None:
        """Keep a value, and no more than ``room`` of them."""
        self._cached[key] = value
        self._idle.discard(key)
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
        return copied

    def items(self) -> ItemsView[K, V]:
        """What is cached; looking at it is no use of it."""
        return self._cached.items()

    def __contains__(self, key: K) -> bool:
        return key in self._cached

    def __len__(self) -> int:
        return len(self._cached)

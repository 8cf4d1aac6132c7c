"""A heap with lookup, update and removal by UID."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

_FEW = 64


class Identified(Protocol):
    """An object with a UID."""

    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=Identified)

_Entry = tuple[Any, int, str]
"""Sort key, arrival and UID: a removed entry keeps nothing of its member."""


class KeyedHeap(Generic[T]):
    """Members ordered by ``sort_key``, FIFO among equals.

    The key is computed when a member is added or updated, never in between. Removal only marks the
    entry; marked entries are dropped when they reach the top, or all at once when they are the
    majority, so every operation is O(log n) amortised and stays in C.
    """

    def __init__(self, sort_key: Callable[[T], Any]) -> None:
        self._sort_key = sort_key
        self._heap: list[_Entry] = []
        self._live: dict[str, tuple[_Entry, T]] = {}
        self._arrivals = 0

    def add(self, member: T) -> None:
        """Add a member; one that is present is re-sorted."""
        self._arrivals += 1
        entry = (self._sort_key(member), self._arrivals, member.uid)
        self._live[member.uid] = (entry, member)
        heappush(self._heap, entry)

    def update(self, member: T) -> None:
        """Restore the order after a member changed; with an equal key it keeps its position."""
        entry, known = self._live[member.uid]
        if known is not member or self._sort_key(member) != entry[0]:
            self.add(member)
            self._compact()

    def remove(self, uid: str) -> bool:
        """Remove a member; False if it was absent."""
        if self._live.pop(uid, None) is None:
            return False
        self._compact()
        return True

    def peek(self) -> T | None:
        """Return the first member, or ``None`` if empty."""
        heap, live = self._heap, self._live
        while heap:
            entry = heap[0]
            found = live.get(entry[2])
            if found is not None and found[0] is entry:
                return found[1]
            heappop(heap)
        return None

    def key_of(self, member: T) -> Any:
        """Return the sort key computed when the member was last added or updated."""
        return self._live[member.uid][0][0]

    def __iter__(self) -> Iterator[T]:
        """Iterate in order, lazily: the cost is per member read.

        The heap may change meanwhile; members removed or moved since are skipped.
        """
        heap, live = self._heap.copy(), self._live
        while heap:
            entry = heappop(heap)
            found = live.get(entry[2])
            if found is not None and found[0] is entry:
                yield found[1]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + _FEW:
            self._heap = [entry for entry, _ in self._live.values()]
            heapify(self._heap)

    def __contains__(self, uid: str) -> bool:
        return uid in self._live

    def __len__(self) -> int:
        return len(self._live)

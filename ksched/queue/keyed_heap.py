"""A heap whose members can be found, moved and removed by their UID."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

_FEW = 64


class Identified(Protocol):
    """Anything with a UID."""

    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=Identified)

_Entry = tuple[Any, int, T]


class KeyedHeap(Generic[T]):
    """Members ordered by ``sort_key``, first come first among equals.

    The key is computed when a member is added or updated, never in between. Removal only forgets
    the entry; the heap drops forgotten entries when they come to the top, or all at once when
    they are the majority, so every operation is O(log n) amortised and stays in C.
    """

    def __init__(self, sort_key: Callable[[T], Any]) -> None:
        self._sort_key = sort_key
        self._heap: list[_Entry[T]] = []
        self._live: dict[str, _Entry[T]] = {}
        self._arrivals = 0

    def add(self, member: T) -> None:
        """Add a member, or give it a new place if it is there already."""
        self._arrivals += 1
        # The arrival number is unique, so a comparison never reaches the member itself.
        entry = (self._sort_key(member), self._arrivals, member)
        self._live[member.uid] = entry
        heappush(self._heap, entry)

    def update(self, member: T) -> None:
        """Restore the order after a member changed; an unchanged key keeps its place."""
        entry = self._live[member.uid]
        if entry[2] is not member or self._sort_key(member) != entry[0]:
            self.add(member)
            self._compact()

    def remove(self, uid: str) -> bool:
        """Remove a member and say whether it was there."""
        if self._live.pop(uid, None) is None:
            return False
        self._compact()
        return True

    def peek(self) -> T | None:
        """Return the first member, or ``None``."""
        heap, live = self._heap, self._live
        while heap:
            entry = heap[0]
            if live.get(entry[2].uid) is entry:
                return entry[2]
            heappop(heap)
        return None

    def key_of(self, member: T) -> Any:
        """Return the key that a member of this heap was sorted by last."""
        return self._live[member.uid][0]

    def __iter__(self) -> Iterator[T]:
        """Iterate from first to last, at a cost for each and hardly any for the rest.

        The heap may change meanwhile: what was removed or moved since is left out.
        """
        heap, live = self._heap.copy(), self._live
        while heap:
            entry = heappop(heap)
            if live.get(entry[2].uid) is entry:
                yield entry[2]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + _FEW:
            self._heap = list(self._live.values())
            heapify(self._heap)

    def __contains__(self, uid: str) -> bool:
        return uid in self._live

    def __len__(self) -> int:
        return len(self._live)

"""The states in which a decision may have been made, around the one just before it was written.

A scheduler decides on what it has seen so far, and counts the pods that it has placed itself before
their binds are written; binds of pods that were decided one after the other are written at the
same time, in any order. So changes just before may be missing in its state, and binds just after
may be in it. Other later changes cannot: they did not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from ksched.explain.text_tables import counted
from ksched.shadow.changes import Change

LAG_SECONDS: Final = 2.0
"""How far a scheduler may be behind, or its binds be delayed."""
MAX_RECENT: Final = 32
MAX_STATES: Final = 160
_PAIRED: Final = 8

QueueOrder = tuple[int, int]
"""Priority, negated, and number of arrival: pods of lower order are decided first."""
Order = Callable[[Change], QueueOrder | None]
"""Where the pod of a bind is in the scheduler's queue; ``None`` if that is not known."""


class Neighbour(Struct, frozen=True):
    """Changes to take back, newest first, and binds to make, oldest first."""

    without: tuple[Change, ...] = ()
    ahead: tuple[Change, ...] = ()

    @property
    def distance(self) -> int:
        return len(self.without) + len(self.ahead)

    def __str__(self) -> str:
        parts = []
        if self.without:
            parts.append(f"before {_named(self.without)}")
        if self.ahead:
            parts.append(f"after {_named(self.ahead)}")
        return " and ".join(parts)


def _named(changes: Sequence[Change]) -> str:
    if len(changes) == 1:
        return f"the {changes[0]}"
    if all(one.is_binding for one in changes):
        return counted(len(changes), "bind")
    return counted(len(changes), "change")


def neighbours(
    before: Sequence[Change],
    after: Sequence[Change],
    order_of: Order,
    own_order: QueueOrder | None,
    fixed: Collection[Change] = (),
) -> Iterator[Neighbour]:
    """Yield states, the likeliest first; ``before`` and ``after`` are oldest first.

    ``fixed`` are changes that are taken back already.
    """
    held = set(map(id, fixed))
    recent = [one for one in before[-MAX_RECENT:] if id(one) not in held]
    binds = [one for one in after if one.is_binding][:MAX_RECENT]
    seen: set[tuple[frozenset[int], frozenset[int]]] = set()

    def every() -> Iterator[Neighbour]:
        for without, ahead in _candidates(recent, binds, order_of, own_order):
            closed = _closed(without, recent)
            identity = frozenset(map(id, closed)), frozenset(map(id, ahead))
            if any(identity) and identity not in seen:
                seen.add(identity)
                yield Neighbour(tuple(reversed(closed)), tuple(ahead))

    return islice(every(), MAX_STATES)


def _candidates(
    recent: Sequence[Change], binds: Sequence[Change], order_of: Order, own_order: QueueOrder | None
) -> Iterator[tuple[Sequence[Change], Sequence[Change]]]:
    if own_order is not None:
        later = [one for one in recent if one.is_binding and _is_after(order_of(one), own_order)]
        sooner = [one for one in binds if _is_before(order_of(one), own_order)]
        others = [one for one in recent if not one.is_binding]
        yield later, sooner
        for count in range(1, min(len(others), _PAIRED) + 1):
            yield [*later, *others[-count:]], sooner
    for count in range(1, len(recent) + 1):
        yield recent[-count:], ()
    for count in range(1, len(binds) + 1):
        yield (), binds[:count]
    for one in reversed(recent):
        yield [one], ()
    for one in binds:
        yield (), [one]
    for ahead in range(1, min(len(binds), _PAIRED) + 1):
        for count in range(1, min(len(recent), _PAIRED) + 1):
            yield recent[-count:], binds[:ahead]


def _is_after(order: QueueOrder | None, own: QueueOrder) -> bool:
    return order is not None and order > own


def _is_before(order: QueueOrder | None, own: QueueOrder) -> bool:
    return order is not None and order < own


def _closed(chosen: Sequence[Change], recent: Sequence[Change]) -> list[Change]:
    """The chosen changes, and the later ones of the same objects: they build on them."""
    wanted, keys, closed = set(map(id, chosen)), set[tuple[str, str]](), []
    for one in recent:
        if id(one) in wanted or one.key in keys:
            keys.add(one.key)
            closed.append(one)
    return closed

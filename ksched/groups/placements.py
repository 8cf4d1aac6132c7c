"""The sets of nodes that a group with a topology may be placed on, the best first.

A domain is the set of nodes that share the values of some labels. A group stays in one domain of
its required levels; of those with room the tightest is tried first, so that large holes are left
for large groups. Preferred levels narrow it further, the finest first; if no single domain has
room, the group takes as few of them as possible. kube-scheduler tries the domains of one required
level in random order, and scores those that fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.cache.node_table import NodeTable
from ksched.groups.group import TopologyLevel

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]


class Kind(NamedTuple):
    """Members that are alike: how many pods like them fit on each node, and how many there are."""

    slots: Ints
    number: int


class Part(NamedTuple):
    """Nodes for some of the members."""

    rows: Rows
    number: int


class Placement(NamedTuple):
    """Nodes for all that a group needs."""

    parts: tuple[Part, ...]


class Nowhere(NamedTuple):
    """Why there is no placement."""

    reason: str
    fitting: int
    """How many members fit at best."""


class Domain(NamedTuple):
    name: str
    rows: Rows
    fitting: int
    """How many of the needed members fit."""
    slots: int


def placements(
    table: NodeTable,
    levels: Sequence[TopologyLevel],
    kinds: Sequence[Kind],
    need: int,
    taken: Sequence[int] = (),
) -> Iterator[Placement] | Nowhere:
    """Return what to try, in this order; ``taken`` are the rows of members that are placed.

    Looked for one by one: every host may be a domain, and the first usually does.
    """
    required = [level.key for level in levels if level.is_required]
    preferred = [level.key for level in levels if not level.is_required]
    everywhere = np.arange(len(table), dtype=np.intp)
    domains = _domains(table, required, everywhere, kinds)
    if required and taken:
        own = [one for one in domains if np.isin(taken, one.rows).any()]
        if len(own) != 1 or not np.isin(taken, own[0].rows).all():
            where = ", ".join(one.name for one in own) or "none"
            reason = f"members are not in one domain of {', '.join(required)}: {where}"
            return Nowhere(reason, 0)
        domains = own
    sufficient = _best_fit_first(domains, need)
    if not sufficient:
        best = max((one.fitting for one in domains), default=0)
        keys = ", ".join(required)
        if not domains:
            return Nowhere(f"no node has the label {keys}", 0)
        return Nowhere(
            f"{best} of {need} fit in one domain of {keys}, {_number(len(domains))}", best
        )
    return (
        placement
        for domain in sufficient
        for placement in _inside(table, preferred, domain.rows, kinds, need)
    )


def rows_of_members(
    table: NodeTable, levels: Sequence[TopologyLevel], taken: Sequence[int]
) -> Rows:
    """Return the rows on which further members of a placed group may be; empty if there are none.

    Those with the values that the required labels have on all rows in ``taken``.
    """
    required = [level.key for level in levels if level.is_required]
    rows = np.arange(len(table), dtype=np.intp)
    for key in required:
        column = table.label_column(key)
        values = {column.at(row) for row in taken}
        if len(values) != 1 or None in values:
            return rows[:0]
        rows = rows[column.ids[rows] == column.ids[taken[0]]]
    return rows


def _inside(
    table: NodeTable, preferred: Sequence[str], rows: Rows, kinds: Sequence[Kind], need: int
) -> Iterator[Placement]:
    """The placements within rows that have room, by preferred levels from coarse to fine."""
    for depth in range(len(preferred), 0, -1):
        domains = _domains(table, preferred[:depth], rows, kinds)
        for domain in _best_fit_first(domains, need):
            yield Placement((Part(domain.rows, need),))
    if preferred:
        spread = _fewest(_domains(table, preferred, rows, kinds), need)
        if spread:
            yield Placement(tuple(spread))
    yield Placement((Part(rows, need),))


def _domains(
    table: NodeTable, keys: Sequence[str], rows: Rows, kinds: Sequence[Kind]
) -> list[Domain]:
    """The domains of rows that have all keys, in the order of their values."""
    if not keys:
        return [_domain("", rows, kinds)]
    by_values: dict[tuple[str, ...], list[int]] = {}
    columns = [table.label_column(key) for key in keys]
    ids = zip(*(column.ids[rows].tolist() for column in columns), strict=True)
    for row, numbers in zip(rows.tolist(), ids, strict=True):
        found = [
            column.vocabulary.values[number]
            for column, number in zip(columns, numbers, strict=True)
        ]
        values = tuple(value for value in found if value is not None)
        if len(values) == len(keys):
            by_values.setdefault(values, []).append(row)
    return [
        _domain("/".join(values), np.array(of_domain, np.intp), kinds)
        for values, of_domain in sorted(by_values.items())
    ]


def _domain(name: str, rows: Rows, kinds: Sequence[Kind]) -> Domain:
    slots = [int(kind.slots[rows].sum()) for kind in kinds]
    fitting = sum(min(some, kind.number) for some, kind in zip(slots, kinds, strict=True))
    return Domain(name, rows, fitting, sum(slots))


def _best_fit_first(domains: Sequence[Domain], need: int) -> list[Domain]:
    """Those with room for most of the members that exist come first, of these the tightest."""
    enough = (one for one in domains if one.fitting >= need)
    return sorted(enough, key=lambda one: (-one.fitting, one.slots))


def _fewest(domains: Sequence[Domain], need: int) -> list[Part]:
    """As few domains as possible: the largest ones, and the tightest for what then remains."""
    left = sorted(domains, key=lambda one: -one.fitting)
    parts: list[Part] = []
    for position, largest in enumerate(left):
        if largest.fitting >= need:
            enough = [one for one in left[position:] if one.fitting >= need]
            tightest = min(enough, key=lambda one: one.slots)
            return [*parts, Part(tightest.rows, need)]
        if largest.fitting <= 0:
            break
        parts.append(Part(largest.rows, largest.fitting))
        need -= largest.fitting
    return []


def _number(domains: int) -> str:
    return "1 domain" if domains == 1 else f"{domains} domains"

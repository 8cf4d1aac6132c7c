"""Placements against every choice of domains there is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_table import NodeTable
from ksched.groups.group import TopologyLevel
from ksched.groups.placements import Kind, Nowhere, Placement, placements, rows_of_members
from ksched.testing import make_node

RACK, ZONE = TopologyLevel("rack"), TopologyLevel("zone")
NEAR = TopologyLevel("rack", is_required=False)


def table_of(labels: list[dict[str, str]]) -> NodeTable:
    cache = SchedulerCache(lambda: 0.0)
    for number, one in enumerate(labels):
        cache.add_node(make_node(f"n{number}").label(one).obj())
    cache.update_snapshot()
    return cache.snapshot.table


def of_kinds(*kinds: tuple[list[int], int]) -> list[Kind]:
    return [Kind(np.array(slots, np.int64), count) for slots, count in kinds]


def all_of(found: Iterator[Placement] | Nowhere) -> list[Placement]:
    assert not isinstance(found, Nowhere)
    return list(found)


@pytest.mark.parametrize("seed", range(200))
def test_every_sufficient_rack_is_tried_the_tightest_first(seed: int) -> None:
    random = Random(seed)
    racks = [random.choice(["a", "b", "c", ""]) for _ in range(8)]
    table = table_of([{"rack": rack} if rack else {} for rack in racks])
    slots = [random.randint(0, 4) for _ in racks]
    need = random.randint(1, 8)
    room = {
        rack: sum(some for some, of in zip(slots, racks, strict=True) if of == rack)
        for rack in set(racks) - {""}
    }
    found = placements(table, [RACK], of_kinds((slots, need)), need)
    if isinstance(found, Nowhere):
        assert all(some < need for some in room.values())
        assert found.fitting == max(room.values(), default=0)
        return
    tried = [{racks[row] for row in one.parts[0].rows.tolist()} for one in found]
    assert all(len(one) == 1 for one in tried)
    order = [room[next(iter(one))] for one in tried]
    assert order == sorted(some for some in room.values() if some >= need)


@pytest.mark.parametrize("seed", range(200))
def test_the_fewest_racks_are_preferred(seed: int) -> None:
    random = Random(seed)
    racks = [random.choice("abcd") for _ in range(8)]
    table = table_of([{"rack": rack} for rack in racks])
    slots = [random.randint(0, 3) for _ in racks]
    need = random.randint(1, 10)
    room = {
        rack: sum(some for some, of in zip(slots, racks, strict=True) if of == rack)
        for rack in sorted(set(racks))
    }
    if sum(room.values()) < need:
        return
    found = all_of(placements(table, [NEAR], of_kinds((slots, need)), need))
    fewest = next(
        size
        for size in range(1, len(room) + 1)
        if any(sum(room[one] for one in some) >= need for some in combinations(room, size))
    )
    parts = found[0].parts
    assert len(parts) == fewest
    assert sum(part.number for part in parts) == need
    for part in parts:
        (rack,) = {racks[row] for row in part.rows.tolist()}
        assert part.number <= room[rack]
    assert [part.number for part in found[-1].parts] == [need], "everywhere, in the end"


def test_two_required_levels_are_both_kept() -> None:
    table = table_of(
        [
            {"zone": "x", "rack": "1"},
            {"zone": "y", "rack": "1"},
            {"zone": "y", "rack": "1"},
            {"zone": "y"},
        ]
    )
    found = all_of(placements(table, [ZONE, RACK], of_kinds(([2, 2, 2, 9], 4)), 4))
    assert [one.parts[0].rows.tolist() for one in found] == [[1, 2]]


def test_members_of_several_kinds_count_each_with_its_own_slots() -> None:
    table = table_of([{"rack": "a"}, {"rack": "b"}])
    kinds = of_kinds(([1, 4], 1), ([1, 3], 3))
    found = all_of(placements(table, [RACK], kinds, 4))
    assert [one.parts[0].rows.tolist() for one in found] == [[1]]


def test_a_placed_member_determines_the_domain() -> None:
    table = table_of([{"rack": "a"}, {"rack": "b"}, {"rack": "b"}, {}])
    kinds = of_kinds(([5, 2, 2, 5], 3))
    found = all_of(placements(table, [RACK], kinds, 3, taken=[1]))
    assert [one.parts[0].rows.tolist() for one in found] == [[1, 2]]
    apart = placements(table, [RACK], kinds, 3, taken=[0, 1])
    assert apart == Nowhere("members are not in one domain of rack: a, b", 0)
    assert placements(table, [RACK], kinds, 3, taken=[3]) == Nowhere(
        "members are not in one domain of rack: none", 0
    )
    assert rows_of_members(table, [RACK], [1]).tolist() == [1, 2]
    assert rows_of_members(table, [RACK], [0, 1]).tolist() == []
    assert rows_of_members(table, [RACK], [3]).tolist() == []


def test_nodes_without_the_label_do_not_exist() -> None:
    table = table_of([{}, {}])
    found = placements(table, [RACK], of_kinds(([5, 5], 3)), 3)
    assert found == Nowhere("no node has the label rack", 0)


def test_the_fewest_of_many_domains_are_found_in_one_pass() -> None:
    """Every host may be a domain, with room for one member."""

    def work(number: int) -> int:
        table = table_of([{"rack": str(row)} for row in range(number)])
        kinds = of_kinds(([1] * number, number))
        found, lines = placements(table, [NEAR], kinds, number), 0
        assert not isinstance(found, Nowhere)

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return trace

        sys.settrace(trace)
        try:
            first = next(found)
        finally:
            sys.settrace(None)
        assert [part.number for part in first.parts] == [1] * number
        return lines

    assert work(400) < 6 * work(100)

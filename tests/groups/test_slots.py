"""Slots are an upper bound of what can be placed, and exact where only amounts decide.

Covers ``ksched.groups.slots``, ``ksched.groups.sentences`` and ``ksched.scheduling.group_slots``.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_table import NodeTable
from ksched.groups.sentences import quantity, short_of
from ksched.groups.slots import CountedSlots, Slots, count_slots, lacking
from ksched.testing import make_node, make_pod


def table(*free: tuple[int, int, int]) -> NodeTable:
    """Nodes with so many cores, GiB and pods."""
    cache = SchedulerCache(lambda: 0.0)
    for number, (cpu, memory, pods) in enumerate(free):
        node = make_node(f"n{number}").capacity(cpu=str(cpu), memory=f"{memory}Gi", pods=str(pods))
        cache.add_node(node.obj())
    return cache.update_snapshot().table


def slots(nodes: NodeTable, closed: frozenset[int] = frozenset(), **requests: int) -> Slots:
    open_rows = np.array([row not in closed for row in range(len(nodes))])
    return count_slots(nodes, requests, open_rows)


def test_the_scarcest_resource_decides_on_each_node() -> None:
    found = slots(table((4, 8, 10), (8, 2, 10), (8, 8, 3)), cpu=2000, memory=2**30)
    assert found.by_row.tolist() == [2, 2, 3]
    assert found.total == 7


def test_closed_rows_have_no_slots() -> None:
    assert slots(table((4, 8, 10), (4, 8, 10)), frozenset({0}), cpu=1000).by_row.tolist() == [0, 4]


def test_what_no_node_offers_leaves_no_slot() -> None:
    found = slots(table((4, 8, 10)), gpu=1)
    assert (found.total, found.scarcest) == (0, "gpu")


def test_the_scarcest_resource_is_named() -> None:
    assert slots(table((4, 64, 110)), cpu=1000, memory=2**30).scarcest == "cpu"
    assert slots(table((64, 4, 110)), cpu=1000, memory=2**30).scarcest == "memory"
    assert slots(table((64, 64, 2)), cpu=1000, memory=2**30).scarcest == "pods"
    assert slots(table((64, 64, 2))).scarcest == "pods"


def test_nodes_that_allow_as_many_pods_as_can_be_written_have_slots() -> None:
    cache = SchedulerCache(lambda: 0.0)
    for number in range(3):
        cache.add_node(make_node(f"n{number}").capacity(pods=str(2**63 - 1), cpu="4").obj())
    nodes = cache.update_snapshot().table
    assert slots(nodes).total > 2**40
    assert slots(nodes, cpu=1000)[1:3] == (12, "cpu")
    assert lacking(nodes, {"pods": 2**63}) is None


def test_an_overcommitted_node_has_no_slots() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n").capacity(cpu="2", pods="1").obj())
    for number in range(2):
        pod = make_pod(f"p{number}").uid(f"p{number}").req(cpu="3").node("n")
        cache.add_pod(cache.pod_info(pod.obj()))
    assert slots(cache.update_snapshot().table, cpu=1000).total == 0


@given(
    nodes=st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 6)), min_size=1, max_size=5
    ),
    cpu=st.integers(0, 4),
    memory=st.integers(0, 4),
)
def test_as_many_can_be_placed_as_there_are_slots(
    nodes: list[tuple[int, int, int]], cpu: int, memory: int
) -> None:
    """A twin that puts one pod after the other wherever there is room."""
    placed = 0
    for cores, gigabytes, pods in nodes:
        while pods and cores >= cpu and gigabytes >= memory:
            cores, gigabytes, pods, placed = cores - cpu, gigabytes - memory, pods - 1, placed + 1
    assert slots(table(*nodes), cpu=cpu * 1000, memory=memory * 2**30).total == placed


def test_counted_slots_hold_until_the_table_changes() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n").obj())
    nodes = cache.update_snapshot().table
    counted = CountedSlots(nodes)
    assert counted.get("kind") is None
    counted.put("kind", slots(nodes, cpu=1000))
    found = counted.get("kind")
    assert found is not None
    assert found.total == 4
    cache.add_pod(cache.pod_info(make_pod("p").uid("p").req(cpu="1").node("n").obj()))
    cache.update_snapshot()
    assert counted.get("kind") is None


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 4000, "4"),
        ("cpu", 1500, "1500m"),
        ("memory", 16 * 2**30, "16Gi"),
        ("memory", 1000, "1000"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_read_as_users_write_them(resource: str, amount: int, text: str) -> None:
    assert quantity(resource, amount) == text


def test_a_shortage_is_one_sentence() -> None:
    assert short_of(5, 8, "cpu", 4000) == "5 of 8 fit; short of 3 × 4 cpu"
    assert short_of(0, 2, "pods", 1) == "0 of 2 fit; short of 2 × 1 pod"


def test_what_is_lacking_of_a_total_is_named() -> None:
    nodes = table((4, 8, 10), (4, 8, 10))
    assert lacking(nodes, {"cpu": 8000, "pods": 20}) is None
    assert lacking(nodes, {"memory": 2**30, "cpu": 9000}) == ("cpu", 8000)
    assert lacking(nodes, {"pods": 21}) == ("pods", 20)
    assert lacking(nodes, {"example.com/gpu": 1}) == ("example.com/gpu", 0)

"""Copies of a few rows whose amounts may be changed."""

from __future__ import annotations

import numpy as np

from ksched.cache.cache import SchedulerCache
from ksched.cache.dry_run_table import POD_COUNT, REQUESTED, DryRunTable, amounts_of
from ksched.testing import make_node, make_pod


def filled() -> SchedulerCache:
    cache = SchedulerCache(lambda: 0.0)
    for name in ("n1", "n2", "n3"):
        cache.add_node(make_node(name).capacity({"example.com/gpu": "2"}).taint(name).obj())
        pod = make_pod(f"on-{name}").req({"example.com/gpu": "1"}, cpu="1", memory="1Gi")
        cache.add_pod(cache.pod_info(pod.node(name).obj()))
    cache.update_snapshot()
    return cache


def rows(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.array(numbers, np.intp)


def test_looks_like_the_rows_it_was_copied_from() -> None:
    table = filled().snapshot.table
    excerpt = DryRunTable(table, rows(2, 0))
    nodes, original = excerpt.all(), table.some(rows(2, 0))

    assert nodes.names == original.names == ["n3", "n1"]
    for resource in ("cpu", "memory", "example.com/gpu", "nobody.asks/this"):
        assert nodes.requested(resource).tolist() == original.requested(resource).tolist()
        assert nodes.allocatable(resource).tolist() == original.allocatable(resource).tolist()
    assert nodes.non_zero_requested("cpu").tolist() == [1000, 1000]
    assert nodes.pod_count.tolist() == [1, 1]
    assert nodes.allowed_pods.tolist() == [110, 110]
    assert [nodes.taints.values[i][0].key for i in nodes.taints.ids] == ["n3", "n1"]
    hostnames = nodes.label("kubernetes.io/hostname")
    assert [hostnames.values[i] for i in hostnames.ids] == ["n3", "n1"]


def test_changed_amounts_are_seen_and_the_table_is_not_touched() -> None:
    cache = filled()
    table = cache.snapshot.table
    excerpt = DryRunTable(table, rows(1))
    [pod] = table.infos[1].pods.values()
    for line, amount in amounts_of(pod):
        excerpt.amounts[line] -= amount

    emptied = excerpt.all()
    assert emptied.requested("cpu").tolist() == [0]
    assert emptied.requested("example.com/gpu").tolist() == [0]
    assert emptied.non_zero_requested("memory").tolist() == [0]
    assert emptied.pod_count.tolist() == [0]
    assert table.all().requested("cpu").tolist() == [1000, 1000, 1000]
    assert table.pod_count[1] == 1
    assert excerpt.original.requested("cpu").tolist() == [1000]


def test_adding_stops_at_an_int64_and_can_be_undone() -> None:
    excerpt = DryRunTable(filled().snapshot.table, rows(0, 1))
    before = excerpt.amounts.copy()
    more = np.full_like(before, 2**63 - 1)

    assert (excerpt.add(more) == before).all()
    assert (excerpt.amounts == 2**63 - 1).all()


def test_has_room_for_a_resource_that_the_table_has_never_seen() -> None:
    cache = filled()
    cache.add_node(make_node("later").capacity({"example.com/new": "3"}).obj())
    new = cache.pod_info(make_pod("new").req({"example.com/new": "3"}).obj())
    excerpt = DryRunTable(cache.snapshot.table, rows(0, 1))
    for line, amount in amounts_of(new):
        excerpt.amounts[line, 1] += amount

    assert excerpt.all().requested("example.com/new").tolist() == [0, 3]


def test_a_pod_counts_itself_and_its_defaults() -> None:
    cache = filled()
    bare = cache.pod_info(make_pod("bare").obj())

    lines = dict(amounts_of(bare))
    assert lines == {POD_COUNT: 1, 1: 100, 2: 200 << 20}
    assert REQUESTED not in lines

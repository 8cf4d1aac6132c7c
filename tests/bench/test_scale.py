"""``bench.scale`` on a cluster that is small enough to be counted."""

from __future__ import annotations

from bench.scale import WORKLOADS, Cluster, measure, rows


async def test_everything_is_measured_and_shown() -> None:
    result = await measure(nodes=40, bound_per_node=2, pods=5)

    assert (result.nodes, result.bound) == (40, 80)
    assert set(result.micros) == set(WORKLOADS)
    assert min(result.micros.values()) > 0
    table = list(rows([result]))
    assert table[0].split() == ["|", "nodes", "|", "40", "|"]
    assert len(table) == 9 + len(WORKLOADS)


async def test_bound_pods_take_room_and_a_second_list_changes_nothing() -> None:
    cluster = Cluster(nodes=10, bound_per_node=3)
    cluster.list_nodes()
    cluster.list_pods()
    cache = cluster.bench.scheduler.cache
    before = [cache.get_node(name) for name in cache.node_names()]
    assert [len(info.pods) for info in before if info] == [3] * 10

    cluster.list_nodes()
    cluster.list_pods()

    assert [cache.get_node(name) for name in cache.node_names()] == before
    assert len(cache.pods()) == 30

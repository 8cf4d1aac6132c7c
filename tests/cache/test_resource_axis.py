"""Which resources have columns: those that nodes offer, not those that pods ask for."""

from __future__ import annotations

from ksched.cache.cache import SchedulerCache
from ksched.cache.resource_axis import MAX_RESOURCES
from ksched.testing.builders import PodBuilder, make_node, make_pod

GPU = "example.com/gpu"


def wanting(name: str, gpus: int, node_name: str = "n1") -> PodBuilder:
    return make_pod(name).req({GPU: str(gpus)}).node(node_name)


def requested(cache: SchedulerCache) -> list[int]:
    cache.update_snapshot()
    return cache.snapshot.table.all().requested(GPU).tolist()


def test_names_that_pods_ask_for_take_no_room() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n1").obj())
    names = {f"example.com/r{number}": "1" for number in range(2000)}
    cache.add_pod(cache.pod_info(make_pod("bulky").req(names).node("n1").obj()))

    table = cache.update_snapshot().table

    assert len(table.allocatable) < 8
    assert len(table.infos[0].requested) < 8


def test_a_resource_that_comes_to_be_offered_counts_the_pods_that_had_asked_for_it() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n1").obj())
    cache.add_node(make_node("n2").obj())
    early = cache.pod_info(wanting("early", 2).obj())
    cache.add_pod(early)
    cache.add_pod(cache.pod_info(wanting("ghost", 1, "not-there-yet").obj()))
    assert requested(cache) == [0, 0]

    cache.add_node(make_node("n2").capacity({GPU: "8"}).obj())
    assert requested(cache) == [2, 0]

    cache.add_pod(cache.pod_info(wanting("late", 3, "n2").obj()))
    cache.add_node(make_node("not-there-yet").capacity({GPU: "8"}).obj())
    assert requested(cache) == [2, 3, 1]

    cache.remove_pod(early.uid)
    assert requested(cache) == [0, 3, 1]


def test_a_pod_that_asks_for_two_such_resources_is_counted_once_for_each() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n1").obj())
    both = make_pod("both").req({GPU: "2", "example.com/fpga": "1"}).node("n1").obj()
    cache.add_pod(cache.pod_info(both))

    cache.add_node(make_node("n1").capacity({GPU: "8"}).obj())
    cache.add_node(make_node("n1").capacity({GPU: "8", "example.com/fpga": "1"}).obj())

    assert requested(cache) == [2]
    assert cache.snapshot.table.all().requested("example.com/fpga").tolist() == [1]


def test_a_node_with_very_many_resources_does_not_make_very_many_columns() -> None:
    cache = SchedulerCache(lambda: 0.0)
    offered = {f"example.com/r{number}": "1" for number in range(3 * MAX_RESOURCES)}
    cache.add_node(make_node("bulky").capacity(offered).obj())
    cache.add_node(make_node("n1").obj())

    table = cache.update_snapshot().table

    assert len(table.allocatable) == MAX_RESOURCES
    assert table.all().allocatable("cpu").tolist() == [4000, 4000]

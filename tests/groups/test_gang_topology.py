"""Groups that stay in one rack, or in few: scenarios of the field, by number.

Covers ``ksched.framework.plugins.group_membership`` and ``ksched.scheduling.group_order``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from ksched.testing import Checkers, Cluster, cluster, make_node, make_pod
from lab.gangs import Gang, configured, install

with_topology = pytest.mark.parametrize("dialect", ["annotations", "in-tree"])


@asynccontextmanager
async def racks(
    sizes: Mapping[str, int], dialect: str = "annotations", *, seed: int = 0
) -> AsyncIterator[Cluster]:
    """Racks with so many nodes of 4 cores each."""
    nodes = [
        make_node(f"{rack}-{number}").label(rack=rack).capacity(cpu="4", pods="20")
        for rack, size in sizes.items()
        for number in range(size)
    ]
    config = configured(dialect)
    async with cluster(nodes, config=config, start=False, seed=seed) as c:
        await install(c, dialect)
        async with c.scheduler:
            checkers = Checkers(c)
            yield c
            checkers.check_books()


def racks_of(c: Cluster, gang: Gang) -> Counter[str]:
    """How many members are in each rack."""
    bound = [c.bound(name) for name in gang.names if c.exists(name)]
    return Counter(str(node).rpartition("-")[0] for node in bound if node is not None)


@with_topology
async def test_26_the_only_rack_with_room_is_taken_and_replacements_stay_in_it(
    dialect: str,
) -> None:
    async with racks({"a": 1, "b": 3, "c": 1}, dialect) as c:
        gang = Gang(dialect, "g", 6, minimum=6, cpu="2", topology="rack")
        await gang.create(c)
        await c.settle()
        assert racks_of(c, gang) == {"b": 6}

        lost = next(name for name in gang.names if c.bound(name) == "b-0")
        await c.delete(lost, grace_seconds=0)
        await c.create(make_pod("other").req(cpu="4").node_selector(rack="b"))
        await c.settle()
        gang.size = 7
        await c.create(gang.pod(6))
        await c.settle()
        assert racks_of(c, gang) == {"b": 6}
        assert c.bound("g-6") is not None


async def test_26_a_replacement_waits_for_its_rack() -> None:
    async with racks({"a": 2, "b": 3}) as c:
        gang = Gang("annotations", "g", 6, minimum=5, cpu="2", topology="rack")
        await gang.create(c)
        await c.settle()
        assert racks_of(c, gang) == {"b": 6}
        gang.size = 7
        await c.create(gang.pod(6))
        await c.settle()
        assert c.bound("g-6") is None
        assert c.message("g-6").startswith(
            "0/5 nodes are available: 2 node(s) didn't satisfy plugin(s) [GangScheduling], "
            "3 Insufficient cpu."
        )
        await c.create(make_node("b-3").label(rack="b").capacity(cpu="4", pods="20"))
        await c.advance(15)
        assert racks_of(c, gang) == {"b": 7}


@pytest.mark.parametrize("seed", range(20))
async def test_27_of_two_racks_the_tighter_one(seed: int) -> None:
    async with racks({"a": 4, "b": 3, "c": 2, "d": 5}, seed=seed) as c:
        gang = Gang("annotations", "g", 6, cpu="2", topology="rack")
        await gang.create(c)
        await c.settle()
        assert racks_of(c, gang) == {"b": 6}


async def test_an_elastic_group_takes_a_rack_where_most_of_its_pods_fit() -> None:
    """It cannot leave the rack later, so the tightest one for its minimum would be a trap."""
    nodes = [
        make_node(f"{rack}-{number}").label(rack=rack).capacity(cpu="4", pods="20")
        for rack, size in {"a": 1, "b": 4, "c": 5}.items()
        for number in range(size)
    ]
    async with cluster(nodes, config=configured("annotations"), start=False) as c:
        gang = Gang("annotations", "g", 16, minimum=4, topology="rack")
        await gang.create(c)
        async with c.scheduler:
            await c.settle()
            assert racks_of(c, gang) == {"b": 16}


async def test_28_without_a_rack_for_all_as_few_as_possible_and_neighbours_together() -> None:
    async with racks({"a": 1, "b": 4, "c": 2, "d": 3}) as c:
        gang = Gang("annotations", "g", 10, cpu="2", topology="rack:preferred")
        await c.create(
            *(
                pod.label({"batch.kubernetes.io/job-completion-index": str(number)})
                for number, pod in enumerate(gang.pods())
            )
        )
        await c.settle()
        assert racks_of(c, gang) == {"b": 8, "a": 2}
        assert [str(c.bound(name)).rpartition("-")[0] for name in gang.names] == ["b"] * 8 + [
            "a"
        ] * 2


async def test_a_preferred_rack_is_left_rather_than_the_group_kept_out() -> None:
    async with racks({"a": 1, "b": 1}) as c:
        await c.create(make_node("no-rack").capacity(cpu="4", pods="20"))
        gang = Gang("annotations", "g", 6, cpu="2", topology="rack:preferred")
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 6


@with_topology
async def test_a_group_that_fits_in_no_rack_says_so_and_evicts_nobody(dialect: str) -> None:
    async with racks({"a": 2, "b": 2}, dialect) as c:
        await c.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "p10"},
                "value": 10,
            }
        )
        await c.create(make_pod("small").req(cpu="2").node_selector(rack="a"))
        await c.settle()
        gang = Gang(dialect, "g", 5, cpu="2", priority=10, topology="rack")
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        assert c.message("g-0") == (
            "pod group is unschedulable, 4 of 5 fit in one domain of rack, 2 domains; "
            "preemption: not tried for a group that must stay in one domain"
        )
        assert c.bound("small") is not None

        await c.create(make_node("b-2").label(rack="b").capacity(cpu="4", pods="20"))
        await c.advance(15)
        assert racks_of(c, gang) == {"b": 5}


async def test_a_node_that_gets_the_label_wakes_the_group() -> None:
    async with racks({"a": 1}) as c:
        await c.create(make_node("spare").capacity(cpu="4", pods="20"))
        gang = Gang("annotations", "g", 4, cpu="2", topology="rack")
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        await c.patch_node("spare", {"metadata": {"labels": {"rack": "a"}}})
        await c.advance(15)
        assert gang.bound(c) == 4


async def test_when_filters_close_the_tightest_rack_the_next_one_is_tried() -> None:
    async with racks({"a": 2, "b": 3}) as c:
        anti = make_pod("loner").req(cpu="100m").label(app="x").node_selector(rack="a")
        await c.create(anti)
        await c.settle()
        gang = Gang("annotations", "g", 4, cpu="1", topology="rack")
        apart = [pod.pod_anti_affinity("rack", {"app": "x"}) for pod in gang.pods()]
        await c.create(*apart)
        await c.settle()
        assert racks_of(c, gang) == {"b": 4}

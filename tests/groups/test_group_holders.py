"""Who holds the room that a group waits for, and groups that wait for each other's.

Covers ``ksched.scheduling.group_holders``.
"""

from __future__ import annotations

from itertools import cycle

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.scheduling.group_holders import MOST_LOOKS, GroupHolders, Holder, Holding
from ksched.testing import Cluster, NodeBuilder, PermitGate, cluster, make_node, make_pod
from lab.gangs import DIALECTS, Gang, configured, install
from tests.groups.test_gang_preemption import create_gang, fill, gang_cluster, single

DIALECT = "annotations"

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def sized(name: str, cpu: int, **labels: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=str(cpu)).label(**labels)


def looked_at(c: Cluster) -> GroupHolders:
    scheduler = c.scheduler
    return GroupHolders(scheduler.cache, scheduler.groups, scheduler.nominator, scheduler.waiting)


def holders(c: Cluster, name: str) -> list[Holder]:
    [group] = [one for one in c.scheduler.groups if one.key.name == name]
    return looked_at(c).of(group)


async def lose(c: Cluster, node: str, *gangs: Gang) -> None:
    """Lose a node, and make its pods anew under other names."""
    await c.delete_node(node)
    for gang in gangs:
        for name in gang.names:
            if c.bound(name) == node:
                await c.delete(name, grace_seconds=0)
                await c.create(gang.pod(f"{name.rpartition('-')[2]}-again"))
    await c.advance(5)


@every_dialect
async def test_pods_at_permit_hold_what_a_group_waits_for(dialect: str) -> None:
    gate = PermitGate("Gate")
    tainted = make_node("n3").taint("only", "others", "NoSchedule").capacity(cpu="4")
    nodes = [sized("n1", 4), sized("n2", 4), tainted]
    config = configured(dialect)
    async with cluster(nodes, config=config, plugins=[gate], start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            held = Gang(dialect, "held", 4)
            await held.create(c)
            elsewhere = make_pod("elsewhere").req(cpu="3").toleration("only", "others")
            await c.create(make_pod("alone").req(cpu="2"), elsewhere)
            await c.settle()
            await Gang(dialect, "later", 3).create(c)
            await c.settle()
            assert gate.held()
            assert holders(c, "later") == [
                Holder("default/held", True, Holding.AT_PERMIT, 4, 2, ("Gate",)),
                Holder("default/alone", False, Holding.AT_PERMIT, 1, 1, ("Gate",)),
            ]
            assert looked_at(c).cycles() == []
            gate.allow(*gate.held())
            await c.settle()
            assert held.bound(c) == 4
            assert holders(c, "later") == [], "pods that run use what they hold"


@every_dialect
async def test_two_groups_that_lost_members_wait_for_each_other(dialect: str) -> None:
    async with cluster(3, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            x, y = Gang(dialect, "x", 6), Gang(dialect, "y", 6)
            for gang in (x, y):
                await gang.create(c)
                await c.settle()
            await Gang(dialect, "z", 2).create(c)
            await c.settle()
            assert looked_at(c).cycles() == []
            await lose(c, "n3", x, y)
            lacking = Holding.INCOMPLETE
            assert holders(c, "x") == [Holder("default/y", True, lacking, 4, 2)]
            assert holders(c, "y") == [Holder("default/x", True, lacking, 4, 2)]
            assert [one.name for one in holders(c, "z")] == ["default/x", "default/y"]
            assert looked_at(c).cycles() == [["default/x", "default/y"]]
            for name in y.names:
                if c.exists(name):
                    await c.delete(name, grace_seconds=0)
            await c.advance(15)
            assert looked_at(c).cycles() == []


async def test_reserved_room_and_pods_that_end_are_held() -> None:
    async with gang_cluster(3) as c:
        await fill(c, *[single(f"low{number}", grace_seconds=30) for number in range(3)])
        await create_gang(c, Gang(DIALECT, "high", 2, cpu="4", priority=100))
        await create_gang(c, Gang(DIALECT, "mid", 2, cpu="4", priority=5))
        await c.advance(2)
        assert {one.name: one.holding for one in holders(c, "mid")} == {
            "default/high": Holding.RESERVED,
            **{
                pod.key: Holding.ENDING
                for name in c.scheduler.nominator.by_node()
                if (info := c.scheduler.cache.get_node(name))
                for pod in info.pods.values()
            },
        }
        ending = holders(c, "high")
        assert [one.holding for one in ending] == [Holding.ENDING] * 2
        assert "default/high" not in {one.name for one in ending}, "it does not wait for itself"
        assert looked_at(c).cycles() == []


async def test_room_reserved_for_less_important_pods_is_not_held() -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{number}", grace_seconds=30) for number in range(2)])
        await create_gang(c, Gang(DIALECT, "mid", 2, cpu="4", priority=5))
        await c.advance(2)
        wide = Gang(DIALECT, "wide", 3, cpu="4", priority=100)
        await create_gang(c, wide)
        await c.settle()
        assert {one.holding for one in holders(c, "wide")} == {Holding.ENDING}


async def test_only_the_rack_of_the_others_counts() -> None:
    nodes = [sized("a1", 4, rack="a"), sized("a2", 4, rack="a"), sized("b1", 4, rack="b")]
    async with cluster(nodes, config=configured(DIALECT)) as c:
        x = Gang(DIALECT, "x", 8, topology="rack")
        y = Gang(DIALECT, "y", 4)
        for gang in (x, y):
            await gang.create(c)
            await c.settle()
        assert {c.bound(name) for name in y.names} == {"b1"}
        await lose(c, "a2", x)
        await c.delete("y-0", grace_seconds=0)
        await c.create(y.pod("0-again").req(cpu="2"))
        await c.advance(5)
        assert looked_at(c).cycles() == []
        assert holders(c, "x") == [], "y holds room in another rack"
        assert [one.name for one in holders(c, "y")] == ["default/x"]


async def test_a_group_that_does_not_wait_for_room_has_no_holders() -> None:
    gate = PermitGate("Gate")
    async with cluster(1, config=configured(DIALECT), plugins=[gate]) as c:
        await Gang(DIALECT, "held", 4).create(c)
        await c.create(Gang(DIALECT, "late", 2).pod(0))
        await c.settle()
        assert holders(c, "held") == []
        assert holders(c, "late") == [], "it waits for its pods"


async def test_one_that_holds_too_little_alone_is_a_holder_with_the_others() -> None:
    gate = PermitGate("Gate")
    async with cluster([sized("n1", 4)], config=configured(DIALECT), plugins=[gate]) as c:
        await c.create(*(make_pod(f"part{number}").req(cpu="2") for number in range(2)))
        await c.settle()
        await Gang(DIALECT, "wide", 2, cpu="4").create(c)
        await c.settle()
        assert [one.name for one in holders(c, "wide")] == ["default/part0", "default/part1"]


async def broken_on_nodes(c: Cluster, groups: int, size: int, nodes: int) -> None:
    """Groups that each lack their last member, dealt out over the nodes."""
    cache, registry = c.scheduler.cache, c.scheduler.groups
    places = cycle(range(nodes))
    for number in range(groups):
        *placed, last = [
            cache.pod_info(pod.obj()) for pod in Gang(DIALECT, f"g{number}", size).pods()
        ]
        for pod in placed:
            pod = pod.on_node(f"n{next(places)}")
            cache.add_pod(pod)
            registry.placed(pod, is_assumed=False)
        registry.pending(last, is_ours=True)
        group = registry.of(last.uid)
        assert group is not None
        registry.satisfied(group)
        assert group.is_broken


@pytest.mark.parametrize(("groups", "size"), [(30, 3), (200, 3), (20, 20)])
async def test_the_search_for_cycles_looks_at_a_bounded_number_of_nodes(
    groups: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds up the event loop, and everybody who lists groups asks for it."""
    nodes = [sized(f"n{number}", 4) for number in range(200)]
    async with cluster(nodes, config=configured(DIALECT), check_declarations=False) as c:
        await broken_on_nodes(c, groups, size, len(nodes))
        looked, looks = looked_at(c), list[str]()
        get_node = SchedulerCache.get_node

        def counted(cache: SchedulerCache, name: str) -> NodeInfo | None:
            looks.append(name)
            return get_node(cache, name)

        monkeypatch.setattr(SchedulerCache, "get_node", counted)
        [found] = looked.cycles()
        assert len(found) == min(groups, 32)
        assert len(looks) <= MOST_LOOKS

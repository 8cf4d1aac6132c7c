from __future__ import annotations

from ksched.demo.gang_permit import FABRIC_SECONDS, GANG, PATIENCE_SECONDS, SIZE, GangPermit
from ksched.queue.places import Place
from ksched.testing import PodBuilder, cluster, make_pod

PLUGINS = {GangPermit.name: GangPermit}


def member(number: int, size: int = 3) -> PodBuilder:
    return make_pod(f"m{number}").req(cpu="1").label({GANG: "training", SIZE: str(size)})


async def test_a_gang_is_bound_when_its_last_member_has_a_node() -> None:
    async with cluster(nodes=2, plugins=PLUGINS) as c:
        await c.create(member(1), member(2))
        await c.advance(5)
        assert [c.bound(name) for name in ("m1", "m2")] == [None, None]
        assert len(c.scheduler.waiting) == 2
        await c.create(member(3))
        await c.settle()
        assert c.bound("m1") is None, "the call that pre_bind awaits is not answered yet"
        await c.advance(FABRIC_SECONDS)
        assert all(c.bound(name) for name in ("m1", "m2", "m3"))


async def test_other_pods_pass_a_gang_that_waits() -> None:
    async with cluster(nodes=1, plugins=PLUGINS) as c:
        await c.create(member(1), make_pod("other").req(cpu="1"))
        await c.settle()
        assert c.bound("other")
        assert c.bound("m1") is None


async def test_other_pods_are_bound_while_pre_bind_awaits() -> None:
    async with cluster(nodes=1, plugins=PLUGINS) as c:
        await c.create(member(1, size=2), member(2, size=2))
        await c.settle()
        await c.create(make_pod("other").req(cpu="1"))
        await c.settle()
        assert c.bound("other")
        assert c.bound("m1") is None


async def test_a_gang_that_stays_incomplete_gives_its_nodes_back() -> None:
    async with cluster(nodes=1, plugins=PLUGINS) as c:
        await c.create(member(1), member(2), make_pod("big").req(cpu="4"))
        await c.settle()
        assert c.place("big") is Place.UNSCHEDULABLE
        await c.advance(PATIENCE_SECONDS + 1)
        assert c.bound("big")
        assert not len(c.scheduler.waiting)


async def test_members_give_up_when_one_of_them_is_deleted() -> None:
    async with cluster(nodes=1, plugins=PLUGINS) as c:
        await c.create(member(1), member(2))
        await c.settle()
        await c.delete("m1")
        await c.settle()
        assert any("gang training: m1 lost its node" in event.note for event in c.events("m2"))


async def test_gangs_do_not_count_each_others_members() -> None:
    async with cluster(nodes=2, plugins=PLUGINS) as c:
        other = make_pod("o1").req(cpu="1").label({GANG: "other", SIZE: "3"})
        await c.create(member(1), member(2), other)
        await c.advance(FABRIC_SECONDS)
        assert len(c.scheduler.waiting) == 3

"""Gated members of a group are told what it waits for when it has stopped growing."""

from __future__ import annotations

from ksched.scheduling.gate_reports import LONGEST_SECONDS, QUIET_SECONDS
from ksched.testing import Cluster, cluster
from lab.gangs import Gang, configured


def patches(c: Cluster) -> int:
    return sum(one.verb == "patch" and one.resource == "pods/status" for one in c.requests)


async def test_members_of_a_group_that_completes_soon_cost_no_patch() -> None:
    async with cluster(4, config=configured("annotations")) as c:
        gang = Gang("annotations", "g", 6)
        for pod in gang.pods():
            await c.create(pod)
            await c.advance(QUIET_SECONDS * 0.7)
        assert gang.bound(c) == 6
        await c.advance(QUIET_SECONDS * 3)
        assert patches(c) == 0


async def test_a_group_that_stops_growing_says_what_it_waits_for() -> None:
    async with cluster(4, config=configured("annotations")) as c:
        gang = Gang("annotations", "g", 6)
        await c.create(*gang.pods()[:5])
        await c.settle()
        assert c.message("g-0") == ""
        await c.advance(QUIET_SECONDS * 2)
        for number in range(5):
            condition = c.condition(f"g-{number}")
            assert condition is not None
            assert condition["reason"] == "SchedulingGated"
            assert "minCount pods" in condition["message"]
        assert patches(c) == 5
        assert len(c.scheduler.gate_reports) == 0


async def test_a_group_that_never_stops_growing_says_so_too() -> None:
    async with cluster(4, config=configured("annotations")) as c:
        gang = Gang("annotations", "g", 200)
        for pod in gang.pods()[:100]:
            await c.create(pod)
            await c.advance(QUIET_SECONDS / 2)
        assert "minCount pods" in c.message("g-0")
        assert 100 * QUIET_SECONDS / 2 > LONGEST_SECONDS


async def test_pods_that_are_gone_or_gated_no_longer_are_not_reported() -> None:
    async with cluster(4, config=configured("annotations")) as c:
        gang = Gang("annotations", "g", 3)
        await c.create(*gang.pods()[:2])
        await c.settle()
        await c.delete("g-0", grace_seconds=0)
        await c.advance(QUIET_SECONDS * 2)
        assert patches(c) == 1

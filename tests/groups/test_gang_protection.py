"""A large gang is not kept out for ever by small pods, and small pods do not wait behind it.

Covers ``ksched.scheduling.group_protection``.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ksched.testing import Cluster, cluster, make_pod
from lab.gangs import Gang, configured, priority_class

HOSTNAME = "kubernetes.io/hostname"


def protecting(seconds: int, percentage: int = 50) -> dict[str, Any]:
    config = configured("annotations")
    args = {"protectAfterSeconds": seconds, "maxProtectedPercentage": percentage}
    config["profiles"][0]["pluginConfig"] = [{"name": "GangScheduling", "args": args}]
    return config


class Stream:
    """Small pods that keep the cluster full: whenever one ends the next is there."""

    def __init__(self, c: Cluster) -> None:
        self._cluster = c
        self._numbers = itertools.count()
        self.running: list[str] = []
        self.waits: list[str] = []

    async def start(self, pods: int) -> None:
        for _ in range(pods):
            await self._arrive()
        await self._cluster.settle()
        self._look()
        assert len(self.running) == pods

    async def step(self) -> None:
        """A pod ends after two have come."""
        while len(self.waits) < 2:
            await self._arrive()
        await self._cluster.delete(self.running.pop(0), grace_seconds=0)
        await self._cluster.advance(3)
        self._look()

    async def _arrive(self) -> None:
        name = f"small-{next(self._numbers)}"
        await self._cluster.create(make_pod(name).req(cpu="1"))
        self.waits.append(name)

    def _look(self) -> None:
        placed = [name for name in self.waits if self._cluster.bound(name)]
        self.running += placed
        self.waits = [name for name in self.waits if name not in placed]


@pytest.mark.parametrize(("seconds", "percentage", "bound"), [(0, 50, 0), (60, 50, 2), (60, 49, 0)])
async def test_17_a_gang_gets_its_turn_after_a_while_if_that_is_configured(
    seconds: int, percentage: int, bound: int
) -> None:
    async with cluster(4, config=protecting(seconds, percentage)) as c:
        stream = Stream(c)
        await stream.start(16)
        gang = Gang("annotations", "big", 2, cpu="4")
        await gang.create(c)
        for _ in range(60):
            await stream.step()
        assert gang.bound(c) == bound
        # On the other nodes small pods come and go as before.
        assert len(stream.running) == 16 - 4 * bound
        assert len(c.scheduler.nominator) == 0


async def test_17_the_gang_says_that_room_is_reserved_on_the_nodes_that_lack_least() -> None:
    async with cluster(4, config=protecting(60)) as c:
        stream = Stream(c)
        await stream.start(16)
        for name in [name for name in stream.running if c.bound(name) in ("n2", "n3")][:6]:
            await c.delete(name, grace_seconds=0)
        gang = Gang("annotations", "big", 2, cpu="4")
        await gang.create(c)
        await c.advance(150)
        assert c.message("big-0").endswith(
            "it has waited for long: room on 2 nodes is reserved for it"
        )
        nominated = {c.pod(name)["status"]["nominatedNodeName"] for name in gang.names}
        assert nominated == {"n2", "n3"}
        await c.create(make_pod("late").req(cpu="1"))
        await c.advance(5)
        assert c.bound("late") is None
        free = {"n2", "n3"}
        for pod in c.pods():
            if pod["spec"].get("nodeName") in free:
                await c.delete(pod["metadata"]["name"], grace_seconds=0)
        await c.advance(15)
        assert gang.bound(c) == 2


async def test_one_gang_of_a_priority_is_protected_and_a_more_important_pod_passes() -> None:
    async with cluster(4, config=protecting(60, 100)) as c:
        await c.create(priority_class(100))
        stream = Stream(c)
        await stream.start(16)
        gangs = [Gang("annotations", name, 2, cpu="4") for name in ("a", "b")]
        for gang in gangs:
            await gang.create(c)
        await c.advance(200)
        protected = [gang for gang in gangs if "reserved" in c.message(gang.names[0])]
        assert len(protected) == 1
        kept = c.pod(protected[0].names[0])["status"]["nominatedNodeName"]
        victim = next(name for name in stream.running if c.bound(name) == kept)
        await c.delete(victim, grace_seconds=0)
        high = make_pod("high").req(cpu="1").merge({"spec": {"priorityClassName": "p100"}})
        await c.create(high)
        await c.advance(5)
        assert c.bound("high") == kept


async def test_a_gang_that_could_never_fit_reserves_nothing() -> None:
    async with cluster(2, config=protecting(60, 100)) as c:
        await c.create(priority_class(100))
        for number in range(2):
            high = make_pod(f"high{number}").req(cpu="2")
            await c.create(high.merge({"spec": {"priorityClassName": "p100"}}))
        await c.settle()
        gang = Gang("annotations", "big", 2, cpu="3")
        await gang.create(c)
        await c.advance(200)
        assert len(c.scheduler.nominator) == 0
        assert "reserved" not in c.message("big-0")


async def test_a_protected_gang_that_is_deleted_frees_the_room() -> None:
    async with cluster(2, config=protecting(60, 100)) as c:
        stream = Stream(c)
        await stream.start(8)
        gang = Gang("annotations", "big", 2, cpu="4")
        await gang.create(c)
        await c.advance(200)
        assert len(c.scheduler.nominator) == 2
        await c.delete("big-0", grace_seconds=0)
        await c.settle()
        assert len(c.scheduler.nominator) == 0
        await c.delete(stream.running[0], grace_seconds=0)
        await c.create(make_pod("late").req(cpu="1"))
        await c.advance(5)
        assert c.bound("late")


async def test_room_where_other_filters_keep_the_gang_out_is_given_up() -> None:
    """Nodes are chosen by amounts, which do not show that a pod on n1 rejects the members."""
    async with cluster(2, config=protecting(60, 100)) as c:
        hermit = make_pod("hermit").req(cpu="1").pod_anti_affinity(HOSTNAME, {"app": "big"})
        await c.create(hermit.node_selector({HOSTNAME: "n1"}))
        await c.create(make_pod("large").req(cpu="4").node_selector({HOSTNAME: "n2"}))
        await c.settle()
        gang = Gang("annotations", "big", 2, cpu="3")
        await c.create(*(pod.label(app="big") for pod in gang.pods()))
        await c.advance(200)
        assert c.scheduler.nominator.by_node().keys() == {"n1", "n2"}
        await c.delete("large", grace_seconds=0)
        await c.advance(200)
        assert gang.bound(c) == 0
        assert "reserved" not in c.message("big-0")
        await c.create(make_pod("late").req(cpu="3").node_selector({HOSTNAME: "n2"}))
        await c.settle()
        assert c.bound("late") == "n2"

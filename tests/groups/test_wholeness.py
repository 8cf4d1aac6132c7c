"""Single pods that preempt keep gangs whole.

Covers ``ksched.groups.wholeness`` and its use by DefaultPreemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.groups.dialects.annotations import Annotations
from ksched.groups.registry import Groups
from ksched.groups.wholeness import Wholeness, importance
from ksched.testing import Cluster, PodBuilder, cluster, make_node, make_pod
from lab.gangs import Gang, configured, priority_class


def plain(name: str, priority: int, cpu: str = "4") -> PodBuilder:
    spec = {"priorityClassName": f"p{priority}", "terminationGracePeriodSeconds": 0}
    return make_pod(name).req(cpu=cpu).merge({"spec": spec})


def gang_of(name: str, size: int, minimum: int, cpu: str = "4", priority: int = 1) -> Gang:
    return Gang("annotations", name, size, minimum, cpu=cpu, priority=priority)


async def create_now(c: Cluster, *objects: Any) -> None:
    """Create pods that end at once when they are deleted, and let them be placed."""
    for one in objects:
        pods = one.pods() if isinstance(one, Gang) else [one]
        now = {"spec": {"terminationGracePeriodSeconds": 0}}
        await c.create(*[pod.merge(now) for pod in pods])
    await c.settle()


def left(c: Cluster) -> Counter[str]:
    return Counter(pod["metadata"]["name"].rpartition("-")[0] for pod in c.pods())


async def test_22_a_gang_at_its_minimum_is_spared_where_another_pod_will_do() -> None:
    async with cluster(3, config=configured("annotations")) as c:
        await c.create(*map(priority_class, (1, 100)))
        await create_now(c, gang_of("low", 2, 2), plain("single-0", 1))
        await c.create(plain("high", 100))
        await c.advance(5)
        assert c.bound("high") is not None
        assert left(c) == {"low": 2, "": 1}, "the single pod went"


async def test_22_on_one_node_the_pod_that_breaks_no_gang_goes() -> None:
    nodes = [make_node("n1"), make_node("n2").capacity(cpu="2", pods="110")]
    async with cluster(nodes, config=configured("annotations")) as c:
        await c.create(*map(priority_class, (1, 100)))
        # The gang is on both nodes; on the large one there is a single pod beside it.
        gang = gang_of("low", 2, 2, cpu="2")
        pods = [
            pod.node_selector({"kubernetes.io/hostname": f"n{n + 1}"})
            for n, pod in enumerate(gang.pods())
        ]
        await create_now(c, *pods, plain("single-0", 1, cpu="2"))
        await c.create(plain("high", 100, cpu="2"))
        await c.advance(5)
        assert c.bound("high") == "n1"
        assert left(c) == {"low": 2, "": 1}


async def test_22_a_gang_at_its_minimum_goes_whole() -> None:
    async with cluster(3, config=configured("annotations")) as c:
        await c.create(*map(priority_class, (1, 100)))
        await create_now(c, gang_of("low", 3, 3))
        await c.create(plain("high", 100))
        await c.advance(5)
        assert c.bound("high") is not None
        assert left(c) == {"": 1}


async def test_21_only_the_surplus_of_a_gang_goes() -> None:
    async with cluster(3, config=configured("annotations")) as c:
        await c.create(*map(priority_class, (1, 100)))
        await create_now(c, gang_of("low", 3, 2))
        await c.advance(5)
        assert left(c) == {"low": 3}
        await c.create(plain("high", 100))
        await c.advance(5)
        assert left(c) == {"low": 2, "": 1}
        await c.create(plain("higher", 100))
        await c.advance(5)
        assert left(c) == {"": 2}, "the rest would be one of two"


async def test_a_gang_with_a_member_that_may_not_be_evicted_is_left_alone() -> None:
    async with cluster(2, config=configured("annotations")) as c:
        await c.create(*map(priority_class, (1, 50, 100)))
        gang = gang_of("mixed", 2, 2)
        pods = [gang.pod(0), gang.pod(1).merge({"spec": {"priorityClassName": "p100"}})]
        await create_now(c, *pods)
        await c.create(plain("middle", 50))
        await c.advance(5)
        assert left(c) == {"mixed": 2, "": 1}
        assert c.bound("middle") is None
        assert "preemption: no candidate node for preemption" in c.message("middle")


# -- the rules by themselves ---------------------------------------------------------------------


class Book:
    """A registry with members on nodes."""

    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.groups = Groups(Listers())
        self.groups.read(Annotations("GangScheduling"), "default-scheduler")
        self.wholeness = Wholeness(self.groups)

    def place(self, gang: Gang, **more: Any) -> list[PodInfo]:
        infos = [
            self.cache.pod_info(pod.uid(f"{gang.name}{n}").node(f"n{n}").merge(more).obj())
            for n, pod in enumerate(gang.pods())
        ]
        for info in infos:
            self.groups.placed(info, is_assumed=False)
        return infos


@pytest.mark.parametrize(
    ("size", "minimum", "leaving", "expected"),
    [(4, 4, 1, 4), (4, 3, 1, 1), (4, 3, 2, 4), (4, 2, 2, 2), (3, 4, 1, 3), (4, 1, 4, 4)],
)
def test_a_group_keeps_its_minimum_or_goes(
    size: int, minimum: int, leaving: int, expected: int
) -> None:
    book = Book()
    members = book.place(gang_of("g", size, minimum))
    whole = book.wholeness.complete(members[:leaving])
    assert len(whole.pods) == len({pod.uid for pod in whole.pods}) == expected
    assert len(whole.broken) == (expected != leaving or leaving == size > 1 < minimum)


def test_what_a_group_can_spare_breaks_nothing() -> None:
    book = Book()
    members: Sequence[PodInfo] = book.place(gang_of("g", 4, 2))
    assert book.wholeness.breaking(members) == {"g0", "g1"}, "the least important two are spared"
    assert book.wholeness.breaking(members[:2]) == set()


def test_a_group_is_as_important_as_its_most_important_member() -> None:
    book = Book()
    gang = gang_of("g", 3, 3)
    book.place(gang)
    [group] = book.groups
    assert importance(group) == 0
    pod = gang.pod(7).uid("g7").node("n1").merge({"spec": {"priority": 9}})
    book.groups.placed(book.cache.pod_info(pod.obj()), is_assumed=False)
    assert importance(group) == 9

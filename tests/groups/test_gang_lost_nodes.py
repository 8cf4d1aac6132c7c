"""Scenario 13: a node is lost after five of eight members are bound, while the others are about to.

Covers ``ksched.scheduling.group_cycle``, ``ksched.scheduling.binding_cycle`` and
``ksched.groups.states``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.request import Request
from ksched.apiserver.status_errors import GroupResource, conflict
from ksched.groups.states import state_of, waits_for
from ksched.testing import Checkers, Cluster, NodeBuilder, cluster, make_node, make_pod
from lab.gangs import DIALECTS, Gang, configured, install

REFUSED = conflict(GroupResource("", "pods"), "g", "refused")
LATE = 3.0
FAILING = {
    "refused late": Fault(delay_seconds=LATE, answer=REFUSED),
    "no answer": Fault(hang=True),
}

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def sized(name: str, cpu: int, **labels: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=str(cpu), pods="200").label(**labels)


def binds(c: Cluster) -> Counter[str]:
    """How often each pod was bound, by path."""
    return Counter(
        one.path for one in c.requests if one.path.endswith("/binding") and one.code == 201
    )


def is_bind_to(node: str, request: Request) -> bool:
    return f'"{node}"'.encode() in (request.body or b"")


class Cut:
    """A gang of eight: five members are bound to ``a1``, three are being bound to ``b1``."""

    def __init__(self, c: Cluster, gang: Gang) -> None:
        self.cluster, self.gang = c, gang
        self.before = {name: c.bound(name) for name in gang.names}
        self.uids = {name: c.uid(name) for name in gang.names}
        self.late = [name for name, node in self.before.items() if node is None]
        assert Counter(self.before.values()) == {"a1": 5, None: 3}

    @property
    def told(self) -> tuple[str, str]:
        scheduler = self.cluster.scheduler
        [group] = [one for one in scheduler.groups if one.key.name == self.gang.name]
        return state_of(group), waits_for(group)

    def check(self, node: str) -> None:
        """Whether the three are bound to a node, and the five are untouched."""
        c = self.cluster
        assert {c.bound(name) for name in self.late} == {node}
        stayed = {name: where for name, where in self.before.items() if where is not None}
        assert {name: c.bound(name) for name in stayed} == stayed
        assert {name: c.uid(name) for name in self.gang.names} == self.uids
        assert set(binds(c).values()) == {1}


@asynccontextmanager
async def cut(
    dialect: str, fault: Fault, *more: NodeBuilder, topology: str = ""
) -> AsyncIterator[Cut]:
    nodes = [sized("a1", 5, rack="r1"), sized("b1", 3, rack="r1"), *more]
    async with cluster(nodes, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        late = Rule(
            fault,
            verb="create",
            resource="pods/binding",
            when=lambda request: is_bind_to("b1", request),
            times=3,
        )
        c.faults.rules.append(late)
        async with c.scheduler:
            checkers = Checkers(c)
            gang = Gang(dialect, "g", 8, topology=topology)
            await gang.create(c)
            await c.advance(1)
            yield Cut(c, gang)
            checkers.check_books()


@every_dialect
@pytest.mark.parametrize("failing", FAILING)
async def test_13_members_that_are_being_bound_to_a_lost_node_are_placed_again_alone(
    dialect: str, failing: str
) -> None:
    async with cut(dialect, FAILING[failing]) as found:
        c = found.cluster
        await c.add_nodes([sized("b2", 3)])
        await c.delete_node("b1")
        await c.advance(60)
        found.check("b2")
        assert found.told == ("placed", "")


@every_dialect
async def test_13_without_room_the_gang_is_broken_and_comes_before_its_equals(
    dialect: str,
) -> None:
    async with cut(dialect, FAILING["refused late"]) as found:
        c = found.cluster
        # So many that they wait for one another.
        others = [Gang(dialect, f"earlier{number}", 3) for number in range(10)]
        for gang in others:
            await gang.create(c)
        await c.create(make_pod("single").req(cpu="1"))
        await c.settle()
        await c.delete_node("b1")
        await c.advance(20)
        why = "0 of 3 fit; short of 3 × 1 cpu"
        assert found.told == ("broken", f"5 of 8 are on nodes; the others wait: {why}")
        assert why in c.message(found.late[0])
        others.append(Gang(dialect, "later", 3))
        await others[-1].create(c)
        await c.settle()
        assert {c.bound(name) for name in found.late} == {None}
        await c.add_nodes([sized("b2", 3)])
        await c.settle()
        found.check("b2")
        assert sum(gang.bound(c) for gang in others) == 0
        assert c.bound("single") is None


@pytest.mark.parametrize("dialect", ["annotations", "in-tree"])
async def test_13_members_that_are_placed_again_stay_in_the_rack_of_the_others(
    dialect: str,
) -> None:
    elsewhere = sized("x1", 7, rack="r2")
    async with cut(dialect, FAILING["refused late"], elsewhere, topology="rack") as found:
        c = found.cluster
        await c.delete_node("b1")
        await c.advance(60)
        assert {c.bound(name) for name in found.late} == {None}
        assert "0 of 3 fit in one domain of rack" in c.message(found.late[0])
        await c.add_nodes([sized("b2", 3, rack="r1")])
        await c.advance(15)
        found.check("b2")


@every_dialect
async def test_13_replacements_of_members_that_were_bound_to_the_lost_node_start_alone(
    dialect: str,
) -> None:
    """The API server binds a pod to any name; whoever collects such pods deletes them."""
    async with cut(dialect, Fault(delay_seconds=LATE)) as found:
        c = found.cluster
        await c.delete_node("b1")
        await c.advance(LATE)
        assert {c.bound(name) for name in found.late} == {"b1"}
        await c.add_nodes([sized("b2", 3)])
        for name in found.late:
            await c.delete(name, grace_seconds=0)
            number = name.rpartition("-")[2]
            await c.create(found.gang.pod(number))
        await c.advance(15)
        assert {c.bound(name) for name in found.late} == {"b2"}
        stayed = {name: where for name, where in found.before.items() if where == "a1"}
        assert {name: c.bound(name) for name in stayed} == stayed


async def test_13_binds_that_have_not_begun_are_not_sent_to_a_lost_node() -> None:
    sent: list[float] = []

    def is_noted(request: Request) -> bool:
        if is_bind_to("b1", request):
            sent.append(c.clock.now())
        return True

    slow = Rule(Fault(delay_seconds=1), "create", "pods/binding", when=is_noted, times=None)
    nodes = [sized("a1", 60), sized("b1", 60)]
    async with cluster(nodes, config=configured("annotations")) as c:
        c.faults.rules.append(slow)
        gang = Gang("annotations", "g", 120)
        await gang.create(c)
        await c.advance(0.5)
        before = len(sent)
        assert 0 < before < 60
        await c.add_nodes([sized("b2", 60)])
        await c.delete_node("b1")
        await c.advance(30)
        assert len(sent) == before
        where = Counter(c.bound(name) for name in gang.names)
        assert where == {"a1": 60, "b1": before, "b2": 60 - before}
        assert set(binds(c).values()) == {1}

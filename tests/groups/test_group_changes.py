"""A group changes while its members wait or run: its object, its minimum, its run, its scheduler.

Covers ``ksched.groups.registry``, ``ksched.groups.group`` and
``ksched.scheduling.finished_members``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.apiserver.in_process import InProcessTransport
from ksched.framework import SUCCESS
from ksched.groups.group import Group
from ksched.groups.states import state_of, waits_for
from ksched.queue.places import Place
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import After, Checkers, Cluster, FakePlugin, cluster, make_node
from lab.gangs import DIALECTS, KINDS, Gang, configured, install

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
with_object = pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])

NO_OBJECT = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
INCOMPLETE = "waiting for minCount pods from a gang to appear in scheduling queue"


@asynccontextmanager
async def gang_cluster(dialect: str, nodes: int = 4, **options: Any) -> AsyncIterator[Cluster]:
    async with cluster(nodes, config=configured(dialect), start=False, **options) as c:
        await install(c, dialect)
        async with c.scheduler:
            checkers = Checkers(c)
            yield c
            checkers.check_books()


@asynccontextmanager
async def left_by_another(
    dialect: str, gang: Gang, succeeded: Sequence[str] = ()
) -> AsyncIterator[Cluster]:
    """What a scheduler leaves that has placed a gang."""
    async with cluster(4, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            await gang.create(c)
            await c.settle()
            if succeeded:
                await phase(c, "Running", *gang.names)
                await phase(c, "Succeeded", *succeeded)
                await c.advance(10)
        yield c


def successor(c: Cluster) -> Scheduler:
    transport = InProcessTransport(c.server, "system:kube-scheduler")
    return Scheduler(transport, c.scheduler.configuration, clock=c.clock, seed=1)


async def phase(c: Cluster, text: str, *names: str) -> None:
    for name in names:
        await c.patch(name, {"status": {"phase": text}}, subresource="status")


async def delete(c: Cluster, names: Sequence[str], grace_seconds: int = 0) -> None:
    for name in names:
        await c.delete(name, grace_seconds=grace_seconds)


def the_group(scheduler: Scheduler) -> Group:
    [group] = scheduler.groups
    return group


def told(c: Cluster, names: Sequence[str]) -> set[tuple[str, str]]:
    """Reasons and messages of pods that wait."""
    conditions = [c.condition(name) or {} for name in names]
    return {(one["reason"], one["message"]) for one in conditions}


# -- the object -----------------------------------------------------------------------------------


@with_object
async def test_07_of_a_group_that_is_made_anew_nothing_counts_but_the_pods_that_run(
    dialect: str,
) -> None:
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "g", 4)
        await gang.create(c)
        await c.advance(100)
        assert gang.bound(c) == 4
        await c.remove(gang.objects()[0])
        await c.settle()
        await delete(c, gang.names[:3])
        await c.create(*gang.objects())
        again = [gang.pod(f"again-{number}") for number in range(3)]
        await c.create(*again[:2])
        await c.advance(100)
        assert [c.bound(f"g-again-{number}") for number in range(2)] == [None, None]
        assert waits_for(the_group(c.scheduler)) == "3 of 4 pods exist"
        await c.create(again[2])
        await c.settle()
        assert all(c.bound(f"g-again-{number}") for number in range(3))


@with_object
async def test_conditions_follow_the_object_that_comes_and_goes(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "g", 6)
        await c.create(*gang.pods()[:2])
        await c.advance(5)
        assert told(c, gang.names[:2]) == {("SchedulingGated", NO_OBJECT)}
        await c.create(*gang.objects())
        await c.advance(5)
        assert told(c, gang.names[:2]) == {("SchedulingGated", INCOMPLETE)}
        await c.create(*gang.pods()[2:])
        await c.advance(5)
        short = "pod group is unschedulable, 4 of 6 fit; short of 2 × 1 cpu"
        assert told(c, gang.names) == {("Unschedulable", short)}
        await c.remove(gang.objects()[0])
        await c.advance(5)
        assert told(c, gang.names) == {("SchedulingGated", NO_OBJECT)}


@with_object
@pytest.mark.parametrize("change", ["raised", "deleted"])
async def test_an_object_that_changes_during_the_decision_stops_it(
    dialect: str, change: str
) -> None:
    slow = FakePlugin("Slow", reserve=After(1.0, SUCCESS))
    async with gang_cluster(dialect, plugins=[slow]) as c:
        gang = Gang(dialect, "g", 4)
        await gang.create(c)
        await c.advance(2.5)
        if change == "raised":
            await c.replace(Gang(dialect, "g", 4, minimum=6).objects()[0])
        else:
            await c.remove(gang.objects()[0])
        await c.advance(10)
        assert gang.bound(c) == 0
        assert {c.place(name) for name in gang.names} == {Place.GATED}


# -- the minimum ----------------------------------------------------------------------------------


@with_object
async def test_08_a_minimum_that_is_raised_gates_the_members_and_says_so(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "g", 6)
        await gang.create(c)
        await c.settle()
        await c.replace(Gang(dialect, "g", 6, minimum=7).objects()[0])
        await c.advance(5)
        assert {c.place(name) for name in gang.names} == {Place.GATED}
        assert told(c, gang.names) == {("SchedulingGated", INCOMPLETE)}


async def test_08_a_minimum_that_is_lowered_by_annotations_counts_at_once() -> None:
    async with gang_cluster("annotations", nodes=1) as c:
        gang = Gang("annotations", "g", 6)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        for name in gang.names:
            await c.patch(name, {"metadata": {"annotations": {"ksched.dev/group-min": "4"}}})
        await c.settle()
        assert gang.bound(c) == 4


@every_dialect
async def test_08_more_members_for_a_raised_minimum_start_together(dialect: str) -> None:
    async with gang_cluster(dialect) as c:
        gang, larger = Gang(dialect, "g", 4), Gang(dialect, "g", 8)
        await gang.create(c)
        await c.advance(100)
        if dialect != "annotations":
            await c.replace(larger.objects()[0])
        await c.create(*larger.pods()[4:7])
        await c.advance(100)
        assert larger.bound(c) == 4
        assert waits_for(the_group(c.scheduler)) == "7 of 8 pods exist"
        await c.create(larger.pods()[7])
        await c.settle()
        assert larger.bound(c) == 8


# -- members --------------------------------------------------------------------------------------


@every_dialect
async def test_a_gang_that_waits_for_room_and_loses_a_member_asks_for_no_nodes(
    dialect: str,
) -> None:
    """An autoscaler adds nodes for pods with the reason Unschedulable."""
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "g", 6)
        await gang.create(c)
        await c.advance(5)
        await c.delete("g-3", grace_seconds=0)
        await c.advance(5)
        rest = [name for name in gang.names if name != "default/g-3"]
        assert told(c, rest) == {("SchedulingGated", INCOMPLETE)}
        await c.add_nodes(1)
        await c.create(gang.pod("again"))
        await c.settle()
        assert all(c.bound(name) for name in [*rest, "g-again"])


# -- the run --------------------------------------------------------------------------------------


@every_dialect
@pytest.mark.parametrize("grace_seconds", [0, 30])
async def test_a_job_that_is_made_anew_starts_whole_though_pods_of_the_last_one_had_succeeded(
    dialect: str, grace_seconds: int
) -> None:
    """The object stays, and nobody sees that the pods that had succeeded are deleted."""
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "g", 8)
        await gang.create(c)
        await c.settle()
        await phase(c, "Succeeded", *gang.names[:5])
        await c.advance(10)
        await delete(c, gang.names[:5])
        await delete(c, gang.names[5:], grace_seconds)
        again = [gang.pod(f"again-{number}") for number in range(8)]
        for pod in again[:7]:
            await c.create(pod)
            await c.settle()
        await c.advance(20)
        assert {c.bound(f"g-again-{number}") for number in range(7)} == {None}
        await c.create(again[7])
        await c.settle()
        assert all(c.bound(f"g-again-{number}") for number in range(8))


@every_dialect
async def test_33_the_last_members_are_replaced_although_none_runs_meanwhile(dialect: str) -> None:
    """Unlike those of the last test, the pods that have succeeded still exist."""
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "g", 8)
        await gang.create(c)
        await c.settle()
        await phase(c, "Succeeded", *gang.names[:5])
        await c.advance(10)
        await delete(c, gang.names[5:])
        for number in range(3):
            await c.create(gang.pod(f"again-{number}"))
        await c.advance(10)
        assert all(c.bound(f"g-again-{number}") for number in range(3))


async def job_ends(c: Cluster, gang: Gang, controller: str, succeeded: int, failed: int) -> None:
    """A job of some pods that end, and stay."""
    gang.size = succeeded + failed
    await c.create(*gang.objects())
    await c.create(*(pod.owner("Job", controller) for pod in gang.pods()))
    await c.settle()
    assert gang.bound(c) == gang.size
    await phase(c, "Succeeded", *gang.names[:succeeded])
    await phase(c, "Failed", *gang.names[succeeded:])
    await c.advance(10)


@every_dialect
async def test_33_the_last_pod_is_replaced_although_as_many_as_the_minimum_have_succeeded(
    dialect: str,
) -> None:
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "g", 8, minimum=4)
        await job_ends(c, gang, "train", 7, 1)
        await c.create(gang.pod("again").owner("Job", "train"))
        await c.advance(10)
        assert c.bound("g-again") is not None


@every_dialect
async def test_the_next_job_of_a_cron_job_starts_whole_though_the_last_one_failed_in_part(
    dialect: str,
) -> None:
    """Its pods are kept, and have the marks of the same group."""
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "g", 8, minimum=8)
        await job_ends(c, gang, "train-1", 5, 3)
        again = [gang.pod(f"again-{number}").owner("Job", "train-2") for number in range(8)]
        await c.create(*again[:7])
        await c.advance(20)
        assert {c.bound(f"g-again-{number}") for number in range(7)} == {None}
        await c.create(again[7])
        await c.settle()
        assert all(c.bound(f"g-again-{number}") for number in range(8))


# -- the scheduler --------------------------------------------------------------------------------


@every_dialect
@pytest.mark.parametrize("name", ["0", "zz"], ids=["listed first", "listed last"])
@pytest.mark.parametrize("age", [0, 100])
async def test_after_a_restart_a_replacement_starts_though_others_are_gone(
    dialect: str, name: str, age: int
) -> None:
    """Two members were deleted for good. In the end the age of the group tells that it had run."""
    gang = Gang(dialect, "g", 8)
    async with left_by_another(dialect, gang) as c:
        await c.advance(age)
        await delete(c, gang.names[:3])
        await c.create(gang.pod(name))
        async with successor(c):
            await c.advance(5)
            assert (c.bound(f"g-{name}") is not None) == bool(age)
            await c.advance(60)
            assert c.bound(f"g-{name}") is not None


@every_dialect
async def test_after_a_restart_a_group_with_members_that_succeeded_is_not_broken(
    dialect: str,
) -> None:
    gang = Gang(dialect, "g", 4)
    async with left_by_another(dialect, gang, gang.names[:2]) as c, successor(c) as next_one:
        await c.advance(5)
        assert state_of(the_group(next_one)) == "ended"


async def test_after_a_restart_the_status_keeps_what_it_says_of_members_that_ended() -> None:
    gang = Gang("scheduler-plugins", "g", 4)
    async with left_by_another("scheduler-plugins", gang, gang.names[:2]) as c:
        seen = len(c.requests)
        async with successor(c):
            await c.advance(30)
        assert [one.path for one in list(c.requests)[seen:] if one.verb == "patch"] == []
        found = await c.client.get(KINDS[gang.dialect].resource, "default", "g")
        status = msgspec.json.decode(found)["status"]
        assert (status["phase"], status["running"], status["succeeded"]) == ("Running", 2, 2)


async def test_pods_of_a_profile_without_the_plugin_are_no_members() -> None:
    """Their profile has no part in the decision: it would not keep them in one rack."""
    config = configured("annotations")
    config["profiles"].append({"schedulerName": "plain"})
    racks = [make_node(f"n{number}").label(rack=f"r{number}") for number in range(2)]
    async with cluster(racks, config=config) as c:
        gang = Gang("annotations", "g", 4, topology="rack")
        plain = {"spec": {"schedulerName": "plain"}}
        await c.create(gang.pod(0).merge(plain), gang.pod(1))
        await c.settle()
        assert c.bound("g-0") is not None
        assert c.bound("g-1") is None
        assert waits_for(the_group(c.scheduler)) == "1 of 4 pods exist"

"""The status of group objects says what is true of their groups, and is written seldom.

Covers ``ksched.scheduling.group_status``, ``ksched.scheduling.finished_members``,
``ksched.groups.report`` and the reports of the dialects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.status_errors import GroupResource, StatusError, conflict, not_found
from ksched.scheduling.group_status import PAUSE_SECONDS
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import Cluster, cluster, make_node, make_pod
from lab.gangs import KINDS, Gang, configured, install

PATCHED = "podgroups/status"
PODGROUPS = GroupResource("scheduling.x-k8s.io", "podgroups")


@asynccontextmanager
async def gang_cluster(dialect: str, nodes: int = 2) -> AsyncIterator[Cluster]:
    async with cluster(nodes, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        async with c.scheduler:
            yield c


def successor(c: Cluster) -> Scheduler:
    """The next scheduler on what the first one left."""
    transport = InProcessTransport(c.server, "system:kube-scheduler")
    return Scheduler(transport, c.scheduler.configuration, clock=c.clock, seed=1)


async def status(c: Cluster, gang: Gang) -> dict[str, Any]:
    resource = KINDS[gang.dialect].resource
    found = msgspec.json.decode(await c.client.get(resource, gang.namespace, gang.name))
    told: dict[str, Any] = found.get("status", {})
    return told


async def condition(c: Cluster, gang: Gang) -> tuple[str, str, str]:
    [one] = (await status(c, gang))["conditions"]
    assert one["type"] == "PodGroupScheduled"
    assert one["observedGeneration"] == 1
    assert one["lastTransitionTime"]
    return one["status"], one["reason"], one["message"]


async def phase(c: Cluster, gang: Gang) -> str:
    found: str = (await status(c, gang)).get("phase", "")
    return found


def patches(c: Cluster) -> int:
    return sum(one.resource == PATCHED and one.verb == "patch" for one in c.requests)


async def run_pods(c: Cluster, gang: Gang, text: str = "Running", *numbers: int) -> None:
    for number in numbers or range(gang.size):
        await c.patch(gang.names[number], {"status": {"phase": text}}, subresource="status")


# -- Kubernetes' PodGroup -------------------------------------------------------------------------


async def test_the_condition_of_a_podgroup_from_its_first_pod_to_its_last_bind() -> None:
    async with gang_cluster("in-tree") as c:
        gang = Gang("in-tree", "train", 3, cpu="4")
        await c.create(*gang.objects(), *gang.pods()[:2])
        await c.advance(1)
        assert await condition(c, gang) == ("False", "SchedulingGated", "2 of 3 pods exist")
        await c.create(gang.pods()[2])
        await c.advance(1)
        told = ("False", "Unschedulable", "2 of 3 fit; short of 1 × 4 cpu")
        assert await condition(c, gang) == told
        await c.add_nodes([make_node("n3").capacity(cpu="4", pods="110")])
        await c.advance(11)
        assert gang.bound(c) == 3
        assert await condition(c, gang) == ("True", "Scheduled", "")


async def test_a_condition_that_is_true_stays_so() -> None:
    async with gang_cluster("in-tree", nodes=1) as c:
        gang = Gang("in-tree", "train", 2, cpu="2")
        await gang.create(c)
        await c.advance(1)
        assert await condition(c, gang) == ("True", "Scheduled", "")
        written = patches(c)
        await c.delete("train-0", grace_seconds=0)
        await c.create(make_pod("thief").req(cpu="2"), gang.pod("again"))
        await c.advance(30)
        assert await condition(c, gang) == ("True", "Scheduled", "")
        assert patches(c) == written


async def test_a_plugin_that_fails_is_a_scheduler_error() -> None:
    async with gang_cluster("in-tree") as c:
        gang = Gang("in-tree", "train", 2)
        await gang.create(c)
        group = next(iter(c.scheduler.groups))
        group.last_reason = "failed to schedule other pod from a pod group: it broke"
        c.scheduler.groups.decided(group)
        report = c.scheduler.groups.report(group.key)
        assert report is not None
        assert report.wanted == (
            "False",
            "SchedulerError",
            "failed to schedule other pod from a pod group: it broke",
        )


# -- scheduler-plugins' PodGroup ------------------------------------------------------------------


async def test_the_phases_of_a_podgroup() -> None:
    async with gang_cluster("scheduler-plugins") as c:
        gang = Gang("scheduler-plugins", "train", 3)
        await c.create(*gang.objects())
        await c.advance(1)
        assert await status(c, gang) == {}, "no pod says whose group it is"
        await c.create(*gang.pods()[:2])
        await c.advance(1)
        assert await phase(c, gang) == "Pending"
        await c.create(*gang.pods()[2:])
        await c.advance(1)
        assert gang.bound(c) == 3
        told = await status(c, gang)
        assert told["phase"] == "Scheduling"
        assert told["scheduleStartTime"]
        await run_pods(c, gang)
        await c.advance(1)
        told = await status(c, gang)
        assert (told["phase"], told["running"]) == ("Running", 3)
        await run_pods(c, gang, "Succeeded", 0)
        await c.advance(10)
        told = await status(c, gang)
        assert (told["phase"], told["running"], told["succeeded"]) == ("Running", 2, 1)
        await run_pods(c, gang, "Succeeded", 1, 2)
        await c.advance(10)
        told = await status(c, gang)
        assert (told["phase"], told["running"], told["succeeded"]) == ("Finished", 0, 3)


@pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])
async def test_the_groups_of_another_scheduler_are_left_to_it(dialect: str) -> None:
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "theirs", 2)
        await c.create(*gang.objects())
        await c.create(*(pod.merge({"spec": {"schedulerName": "x"}}) for pod in gang.pods()))
        await c.advance(5)
        await c.bind("theirs-0", "n1")
        await c.advance(5)
        assert await status(c, gang) == {}


async def test_the_phase_of_a_group_that_failed_or_was_cut() -> None:
    async with gang_cluster("scheduler-plugins") as c:
        gang = Gang("scheduler-plugins", "train", 3)
        await gang.create(c)
        await c.settle()
        await run_pods(c, gang)
        await c.delete("train-0", grace_seconds=0)
        await c.advance(10)
        assert await phase(c, gang) == "Unknown"
        await run_pods(c, gang, "Failed", 1)
        await c.advance(10)
        told = await status(c, gang)
        assert (told["phase"], told["failed"], told["running"]) == ("Failed", 1, 1)
        for name in gang.names[1:]:
            await c.delete(name, grace_seconds=0)
        await c.advance(10)
        assert (await status(c, gang))["running"] == 0


async def test_the_owners_of_the_pods_are_named() -> None:
    async with gang_cluster("scheduler-plugins") as c:
        gang = Gang("scheduler-plugins", "train", 1)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-job", "uid": "1"}
        await c.create(
            *gang.objects(), gang.pod(0).merge({"metadata": {"ownerReferences": [owner]}})
        )
        await c.advance(1)
        assert (await status(c, gang))["occupiedBy"] == "default/train-job"


# -- how it is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])
async def test_a_gang_whose_members_are_bound_one_by_one_is_written_once(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=5) as c:
        gang = Gang(dialect, "train", 20)
        await gang.create(c)
        await c.advance(1)
        assert gang.bound(c) == 20
        assert patches(c) == 1
        await c.advance(60)
        assert patches(c) == 1


@pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])
async def test_what_the_object_says_already_is_not_written_again(dialect: str) -> None:
    async with cluster(1, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        gang = Gang(dialect, "train", 2)
        async with c.scheduler:
            await gang.create(c)
            await c.advance(1)
        written = patches(c)
        assert written == 1
        async with successor(c):
            await c.advance(5)
            assert patches(c) == written


async def test_an_object_that_another_writer_changed_is_left_alone() -> None:
    async with gang_cluster("scheduler-plugins") as c:
        gang = Gang("scheduler-plugins", "train", 2)
        await gang.create(c)
        await c.advance(1)
        resource = KINDS["scheduler-plugins"].resource
        body = msgspec.json.encode({"status": {"phase": "Scheduled"}})
        merge = "application/merge-patch+json"
        await c.client.patch(
            resource, "default", "train", body, subresource="status", content_type=merge
        )
        await c.advance(30)
        assert await phase(c, gang) == "Scheduled"
        await run_pods(c, gang)
        await c.advance(1)
        assert await phase(c, gang) == "Running"


@pytest.mark.parametrize(
    "answer",
    [
        StatusError(503, "ServiceUnavailable", "not now"),
        StatusError(429, "TooManyRequests", "later"),
        conflict(PODGROUPS, "train", "changed"),
    ],
    ids=["unavailable", "too many requests", "conflict"],
)
async def test_a_write_that_fails_for_a_while_is_repeated(answer: StatusError) -> None:
    async with gang_cluster("scheduler-plugins") as c:
        c.faults.rules.append(Rule(Fault(answer=answer), resource=PATCHED, times=12))
        gang = Gang("scheduler-plugins", "train", 2)
        await gang.create(c)
        await c.advance(1)
        assert gang.bound(c) == 2, "no bind waits for it"
        assert await phase(c, gang) == ""
        await c.advance(120)
        assert await phase(c, gang) == "Scheduling"


@pytest.mark.parametrize(
    "answer",
    [StatusError(403, "Forbidden", "no role"), not_found(PODGROUPS, "train")],
    ids=["forbidden", "not found"],
)
async def test_a_write_that_cannot_succeed_is_not_repeated(answer: StatusError) -> None:
    async with gang_cluster("scheduler-plugins") as c:
        c.faults.rules.append(Rule(Fault(answer=answer), resource=PATCHED, times=None))
        gang = Gang("scheduler-plugins", "train", 2)
        await gang.create(c)
        await c.advance(120)
        assert gang.bound(c) == 2
        assert len(c.faults.fired) == 1


async def test_a_hanging_api_server_holds_up_no_gang_and_is_given_up() -> None:
    async with gang_cluster("scheduler-plugins", nodes=4) as c:
        c.faults.rules.append(Rule(Fault(hang=True), resource=PATCHED, times=2))
        gangs = [Gang("scheduler-plugins", f"g{number}", 2) for number in range(4)]
        for gang in gangs:
            await gang.create(c)
        await c.advance(1)
        assert [gang.bound(c) for gang in gangs] == [2] * 4
        await c.advance(60)
        assert [await phase(c, gang) for gang in gangs] == ["Scheduling"] * 4


async def test_of_a_group_that_is_made_anew_only_the_new_object_is_written() -> None:
    async with gang_cluster("in-tree", nodes=1) as c:
        gang = Gang("in-tree", "train", 5)
        await gang.create(c)
        await c.advance(1)
        assert (await condition(c, gang))[1] == "Unschedulable"
        await c.remove(gang.objects()[0])
        smaller = Gang("in-tree", "train", 5, minimum=4)
        await c.create(*smaller.objects())
        await c.advance(1)
        assert await condition(c, smaller) == ("True", "Scheduled", "")


async def test_changes_within_the_pause_are_one_write() -> None:
    async with gang_cluster("scheduler-plugins") as c:
        gang = Gang("scheduler-plugins", "train", 4)
        await gang.create(c)
        await c.advance(1)
        written = patches(c)
        for number in range(4):
            await run_pods(c, gang, "Running", number)
            await c.advance(PAUSE_SECONDS / 10)
        await c.advance(1)
        assert patches(c) == written + 1
        assert (await status(c, gang))["running"] == 4


# -- members that have ended ----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["annotations", "in-tree", "scheduler-plugins"])
async def test_33_the_last_worker_is_replaced_although_all_others_have_succeeded(
    dialect: str,
) -> None:
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "job", 4)
        await gang.create(c)
        await c.settle()
        await run_pods(c, gang, "Succeeded", 0, 1, 2)
        await run_pods(c, gang, "Failed", 3)
        await c.advance(10)
        await c.create(gang.pod("3-again"))
        await c.settle()
        await c.advance(10)
        assert c.bound("job-3-again") is not None


@pytest.mark.parametrize("dialect", ["annotations", "in-tree", "scheduler-plugins"])
async def test_33_a_replacement_starts_under_the_next_scheduler_too(dialect: str) -> None:
    async with cluster(2, config=configured(dialect), start=False) as c:
        await install(c, dialect)
        gang = Gang(dialect, "job", 4)
        async with c.scheduler:
            await gang.create(c)
            await c.settle()
        await run_pods(c, gang, "Succeeded", 0, 1, 2)
        await run_pods(c, gang, "Failed", 3)
        await c.create(gang.pod("3-again"))
        async with successor(c):
            await c.advance(10)
            assert c.bound("job-3-again") is not None


@pytest.mark.parametrize("dialect", ["annotations", "in-tree", "scheduler-plugins"])
async def test_another_run_of_a_group_is_whole_again(dialect: str) -> None:
    """The object of the first run, and its pods, are still there."""
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "job", 4)
        await gang.create(c)
        await c.settle()
        await run_pods(c, gang, "Succeeded")
        await c.advance(10)
        again = [gang.pod(f"{number}-again") for number in range(4)]
        await c.create(*again[:3])
        await c.advance(30)
        assert all(c.bound(f"job-{number}-again") is None for number in range(3))
        await c.create(again[3])
        await c.advance(11)
        assert all(c.bound(f"job-{number}-again") is not None for number in range(4))


async def test_ended_pods_of_a_namespace_are_read_once_for_all_groups() -> None:
    async with gang_cluster("annotations", nodes=10) as c:
        gangs = [Gang("annotations", f"g{number}", 2) for number in range(10)]
        for gang in gangs:
            await gang.create(c)
        await c.settle()
        for gang in gangs:
            await run_pods(c, gang, "Succeeded", 0)
        lists = [one for one in c.requests if (one.verb, one.resource) == ("list", "pods")]
        await c.advance(10)
        after = [one for one in c.requests if (one.verb, one.resource) == ("list", "pods")]
        assert len(after) - len(lists) == 1
        assert {group.succeeded for group in c.scheduler.groups} == {1}


async def test_groups_that_complete_in_time_cost_no_list() -> None:
    async with gang_cluster("annotations") as c:
        lists = sum((one.verb, one.resource) == ("list", "pods") for one in c.requests)
        gang = Gang("annotations", "g", 4)
        for pod in gang.pods():
            await c.create(pod)
            await c.advance(0.5)
        await c.advance(10)
        assert gang.bound(c) == 4
        assert sum((one.verb, one.resource) == ("list", "pods") for one in c.requests) == lists

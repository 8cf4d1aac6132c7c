"""Volcano's PodGroups are admitted before their pods exist, and then placed whole.

Covers ``ksched.groups.dialects.volcano``, ``ksched.framework.plugins.volcano`` and
``ksched.scheduling.group_admission``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.groups.dialects import volcano
from ksched.groups.group import GroupKey
from ksched.scheduling.group_trial import Need
from ksched.testing import Cluster, PodBuilder, cluster, custom_resource_definition, make_pod

CONFIG = {
    "profiles": [
        {
            "schedulerName": "volcano",
            "plugins": {"multiPoint": {"enabled": [{"name": "Volcano"}]}},
        }
    ]
}


@asynccontextmanager
async def volcano_cluster(nodes: int = 2) -> AsyncIterator[Cluster]:
    definition = custom_resource_definition(volcano.KIND)
    definition["spec"]["versions"][0]["subresources"] = {"status": {}}
    async with cluster(nodes, config=CONFIG, start=False) as c:
        await c.create(definition)
        async with c.scheduler:
            yield c


def pod_group(name: str, minimum: int, cpu: int = 0, **spec: Any) -> dict[str, Any]:
    if cpu:
        spec["minResources"] = {"cpu": str(cpu)}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum, **spec},
    }


def worker(
    group: str, number: int, role: str = "worker", mark: str = volcano.MARKS[0]
) -> PodBuilder:
    return (
        make_pod(f"{group}-{role}-{number}")
        .req(cpu="1")
        .annotation({mark: group, volcano.ROLE: role})
        .merge({"spec": {"schedulerName": "volcano"}})
    )


async def status(c: Cluster, name: str) -> dict[str, Any]:
    found = msgspec.json.decode(await c.client.get(volcano.KIND.resource, "default", name))
    told: dict[str, Any] = found.get("status", {})
    return told


async def test_35_a_job_gets_pods_when_it_is_inqueue_and_runs_then() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("job", 4, cpu=4))
        await c.advance(3)
        assert (await status(c, "job"))["phase"] == "Inqueue"
        # What Volcano's controller does now.
        await c.create(*(worker("job", number) for number in range(4)))
        await c.advance(1)
        assert all(c.bound(f"job-worker-{number}") for number in range(4))
        [condition] = (await status(c, "job"))["conditions"]
        assert (condition["type"], condition["status"]) == ("Scheduled", "True")
        for number in range(4):
            running = {"status": {"phase": "Running"}}
            await c.patch(f"job-worker-{number}", running, subresource="status")
        await c.advance(1)
        told = await status(c, "job")
        assert (told["phase"], told["running"]) == ("Running", 4)
        for number in range(4):
            done = {"status": {"phase": "Succeeded"}}
            await c.patch(f"job-worker-{number}", done, subresource="status")
        await c.advance(10)
        told = await status(c, "job")
        assert (told["phase"], told["succeeded"], told["running"]) == ("Completed", 4, 0)


async def test_35_a_job_is_admitted_when_its_resources_are_free() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("first", 4, cpu=6))
        await c.advance(2)
        await c.create(pod_group("second", 4, cpu=6), pod_group("none", 1))
        await c.advance(60)
        assert (await status(c, "first"))["phase"] == "Inqueue"
        assert (await status(c, "none"))["phase"] == "Inqueue"
        assert await status(c, "second") == {}, "the room is promised to the first"
        await c.remove(pod_group("first", 4))
        await c.advance(3)
        assert (await status(c, "second"))["phase"] == "Inqueue"


async def test_a_job_that_does_not_fit_says_so() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("wide", 9))
        await c.create(*(worker("wide", number) for number in range(9)))
        await c.advance(3)
        told = await status(c, "wide")
        [condition] = told["conditions"]
        assert (told["phase"], condition["type"]) == ("Inqueue", "Unschedulable")
        assert condition["reason"] == "NotEnoughResources"
        assert condition["message"] == "8 of 9 fit; short of 1 × 1 cpu"


async def test_every_role_needs_its_minimum() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("job", 3, minTaskMember={"master": 1, "worker": 2}))
        await c.create(*(worker("job", number) for number in range(3)))
        await c.advance(5)
        assert c.bound("job-worker-0") is None
        assert "1 of role master" in c.message("job-worker-0")
        await c.create(worker("job", 0, "master", volcano.MARKS[1]))
        await c.advance(5)
        assert c.bound("job-master-0") is not None
        assert sum(c.bound(f"job-worker-{number}") is not None for number in range(3)) >= 2


async def test_the_roles_of_an_elastic_job_have_no_minimum() -> None:
    """Volcano writes the replicas of each task as its minimum; that of the job is smaller."""
    async with volcano_cluster() as c:
        await c.create(pod_group("job", 3, minTaskMember={"master": 1, "worker": 5}))
        await c.create(*(worker("job", number) for number in range(3)))
        await c.advance(5)
        assert all(c.bound(f"job-worker-{number}") for number in range(3))


async def test_a_role_that_is_missing_holds_up_no_replacement_in_another() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("job", 3, minTaskMember={"master": 1, "worker": 2}))
        await c.create(worker("job", 0, "master"), *(worker("job", number) for number in range(3)))
        await c.advance(5)
        await c.delete("job-master-0", grace_seconds=0)
        await c.create(worker("job", 3))
        await c.advance(5)
        assert c.bound("job-worker-3") is not None


async def test_a_job_that_is_made_anew_is_admitted_anew() -> None:
    async with volcano_cluster() as c:
        job = pod_group("job", 2, cpu=2)
        await c.create(job)
        await c.create(worker("job", 0))
        await c.advance(3)
        assert (await status(c, "job"))["phase"] == "Inqueue"
        await c.remove(job)
        await c.advance(3)
        await c.create(pod_group("job", 2, cpu=20))
        await c.advance(3)
        assert (await status(c, "job")).get("phase", "") != "Inqueue"


async def test_a_job_that_is_completed_holds_no_room_after_a_restart() -> None:
    async with cluster(2, config=CONFIG, start=False) as c:
        definition = custom_resource_definition(volcano.KIND)
        definition["spec"]["versions"][0]["subresources"] = {"status": {}}
        await c.create(definition, pod_group("old", 1, cpu=6), pod_group("new", 1, cpu=6))
        body = msgspec.json.encode({"status": {"phase": "Completed"}})
        await c.client.patch(
            volcano.KIND.resource,
            "default",
            "old",
            body,
            subresource="status",
            content_type="application/merge-patch+json",
        )
        async with c.scheduler:
            await c.advance(3)
            assert (await status(c, "new"))["phase"] == "Inqueue"


async def test_a_job_that_lost_a_member_is_unknown() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("job", 2))
        await c.create(*(worker("job", number) for number in range(2)))
        await c.advance(2)
        await c.delete("job-worker-0", grace_seconds=0)
        await c.advance(10)
        assert (await status(c, "job"))["phase"] == "Unknown"


@pytest.mark.parametrize(
    ("phase", "admitted", "satisfied"),
    [
        ("", False, False),
        ("Pending", False, False),
        ("Inqueue", True, False),
        ("Running", True, True),
        ("Unknown", True, True),
        ("Completed", True, True),
    ],
)
def test_the_terms_of_a_podgroup(phase: str, admitted: bool, satisfied: bool) -> None:
    found = msgspec.convert(
        {
            "metadata": {"name": "g", "uid": "u"},
            "spec": {"minMember": 3, "minResources": {"cpu": "2"}, "minTaskMember": {"a": 2}},
            "status": {"phase": phase},
        },
        volcano.PodGroup,
    )
    terms = volcano.terms_of(found)
    assert (terms.minimum, terms.min_resources, terms.min_by_role) == (3, {"cpu": 2000}, {"a": 2})
    assert (terms.was_admitted, terms.was_satisfied) == (admitted, satisfied)


async def test_a_podgroup_that_cannot_be_read_says_why() -> None:
    async with volcano_cluster() as c:
        await c.create(pod_group("job", 1, minResources={"cpu": "many"}), worker("job", 0))
        await c.advance(3)
        assert "minResources" in c.message("job-worker-0")
        assert c.scheduler.groups.get(GroupKey("volcano", "default", "job")) is not None


async def test_roles_are_counted_once_for_a_member_that_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not all that are placed again for each: of 20,000 members that took minutes."""
    asked = 0
    role_of = Need.role_of

    def noted(need: Need, uid: str) -> str:
        nonlocal asked
        asked += 1
        return role_of(need, uid)

    monkeypatch.setattr(Need, "role_of", noted)
    async with volcano_cluster(20) as c:
        await c.create(pod_group("g", 2, minTaskMember={"worker": 1, "driver": 1}))
        await c.create(worker("g", 0, "driver").req(cpu="1000"))
        for number in range(60):
            await c.create(worker("g", number))
        await c.settle()
        assert c.bound("g-worker-0") is None
        attempts = c.queued("g-driver-0").attempts
        assert 0 < asked < 10 * 61 * attempts

"""What happens to a gang while it is being decided, or while its victims end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice
from ksched.queue.places import Place
from ksched.scheduling import group_cycle
from ksched.scheduling.group_trial import Trial
from ksched.testing import make_node, make_pod
from ksched.testing.harness import Cluster
from lab.gangs import KINDS, Gang
from tests.groups.test_gang_preemption import create_gang, evicted, fill, gang_cluster, single


async def vanish(c: Cluster, name: str, uid: str) -> None:
    """Delete a pod, and let the scheduler see it before anything else happens."""
    await c.delete(name, grace_seconds=0)
    for _ in range(200):
        await asyncio.sleep(0)
    assert c.scheduler.pending.get(uid) is None


def vanishing_member(c: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the first member that is placed vanish before the second is; returns its uid then."""
    place: Any = vars(group_cycle)["place"]
    vanished: list[str] = []

    async def placed_beside(cycle: Any, trial: Trial, queued: QueuedPodInfo) -> None:
        if len(trial) == 1 and not vanished:
            pod = trial.placed[0].queued.pod
            vanished.append(pod.uid)
            await vanish(c, pod.name, pod.uid)
        await place(cycle, trial, queued)

    monkeypatch.setattr(group_cycle, "place", placed_beside)
    return vanished


async def test_a_member_deleted_while_the_gang_is_tried_leaves_no_nomination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gang_cluster(3) as c:
        await fill(c, *[single(f"low{number}", grace_seconds=20) for number in range(3)])
        await create_gang(c, Gang("annotations", "high", 2, cpu="4", priority=100))
        await c.settle()
        vanished = vanishing_member(c, monkeypatch)
        await c.advance(1)
        for number in range(3):
            if c.pod(f"low{number}")["metadata"].get("deletionTimestamp"):
                await c.delete(f"low{number}", grace_seconds=0)
        await c.advance(700)
        assert vanished
        assert len(c.scheduler.nominator) == 0


async def test_a_member_deleted_while_the_gang_is_tried_is_not_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gang_cluster(3) as c:
        vanished = vanishing_member(c, monkeypatch)
        await create_gang(c, Gang("annotations", "high", 2, cpu="4", priority=100))
        await c.advance(5)
        assert c.scheduler.queue.place_of(vanished[0]) is Place.ABSENT


@pytest.mark.parametrize("change", ["a larger minimum", "no PodGroup"])
async def test_a_gang_that_is_gated_again_has_no_room_reserved(change: str) -> None:
    async with gang_cluster(2, "scheduler-plugins") as c:
        await c.advance(61)
        await fill(c, *[single(f"low{number}", grace_seconds=20) for number in range(2)])
        await create_gang(c, Gang("scheduler-plugins", "high", 2, cpu="4", priority=100))
        await c.advance(2)
        assert len(c.scheduler.nominator) == 2
        resource = KINDS["scheduler-plugins"].resource
        if change == "no PodGroup":
            await c.client.request("DELETE", resource.path("default", "high"), b"{}")
        else:
            patch, kind = b'{"spec":{"minMember":3}}', "application/merge-patch+json"
            await c.client.patch(resource, "default", "high", patch, content_type=kind)
        await c.advance(20)
        for number in range(2):
            await c.delete(f"low{number}", grace_seconds=0)
        await c.advance(120)
        await c.create(single("small", priority=1, cpu="1"))
        await c.advance(60)
        assert c.bound("small")


async def test_replacements_of_an_evicted_gang_start_together() -> None:
    async with gang_cluster(4) as c:
        low = Gang("annotations", "low", 3, cpu="4", priority=1)
        await create_gang(c, low, grace_seconds=30)
        await c.advance(3)
        assert low.bound(c) == 3
        await fill(c, single("mid", priority=5))
        await create_gang(c, Gang("annotations", "high", 2, cpu="4", priority=5))
        await c.advance(2)
        assert evicted(c) == 3
        await c.create(low.pod("r0"))
        await c.advance(20)
        for number in range(3):
            await c.delete(f"low-{number}", grace_seconds=0)
            await c.advance(1)
        await c.advance(60)
        assert not c.bound("low-r0")


async def test_members_go_on_at_once_when_one_is_deleted_before_the_evictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{number}") for number in range(2)])
        preemptors = c.scheduler.preemption._preemptors
        is_still_pending = preemptors.is_still_pending
        deleted: list[str] = []

        async def after_a_deletion(preemptor: Any, since: float) -> bool:
            if not deleted:
                deleted.append(preemptor.pods[0].name)
                await c.delete(deleted[0], grace_seconds=0)
            return await is_still_pending(preemptor, since)

        monkeypatch.setattr(preemptors, "is_still_pending", after_a_deletion)
        gang = Gang("annotations", "high", 3, minimum=2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(10)
        assert deleted
        assert gang.bound(c) == 2


@pytest.mark.parametrize("seed", [0, 1, 19, 27, 45])
async def test_gangs_of_two_kinds_are_planned_without_errors(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [
        make_node(f"n{number}").capacity(
            cpu=str(chance.randint(3, 8)), memory=f"{chance.randint(3, 8)}Gi", pods="20"
        )
        for number in range(3)
    ]
    async with gang_cluster(nodes) as c:
        for number in range(chance.randint(2, 5)):
            low = make_pod(f"low{number}").req(
                cpu=str(chance.randint(1, 4)), memory=f"{chance.randint(1, 3)}Gi"
            )
            await c.create(
                low.merge({"spec": {"priorityClassName": "p1", "terminationGracePeriodSeconds": 0}})
            )
        await c.settle()
        first, second = chance.randint(1, 3), chance.randint(1, 3)
        gang = Gang("annotations", "high", first + second, cpu="1", priority=100)
        kinds = [(chance.randint(1, 4), chance.randint(1, 4)) for _ in range(2)]
        for number in range(first + second):
            cpu, memory = kinds[number >= first]
            await c.create(gang.pod(number).req(cpu=str(cpu), memory=f"{memory}Gi"))
        await c.advance(30)
        for number in range(first + second):
            assert "error" not in c.message(f"high-{number}")


async def decided_with_a_deletion(size: int, pause: int) -> int:
    """Delete a member at one pause of its gang's decision; returns how many pauses there were."""
    gang, count, give_way = (
        Gang("annotations", "g", size, minimum=3, cpu="4"),
        0,
        TimeSlice.give_way,
    )

    async def deleting(self: TimeSlice) -> None:
        nonlocal count
        await give_way(self)
        task = asyncio.current_task()
        if task is None or task.get_name() != "scheduler":
            # Reports of gates and status pause too.
            return
        if count == pause:
            await vanish(c, "g-1", c.pod("g-1")["metadata"]["uid"])
        count += 1

    async with gang_cluster(4) as c:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TimeSlice, "is_over", True)
            patch.setattr(TimeSlice, "give_way", deleting)
            await create_gang(c, gang)
            await c.advance(10)
        scheduler, is_deleted = c.scheduler, count > pause
        assert gang.bound(c) == (size if not is_deleted else 3 if size > 3 else 0), (pause, count)
        assert not scheduler.cache.assumed()
        assert scheduler.queue.statistics().in_flight == 0
        published = scheduler.cache.update_snapshot()
        assert sum(len(info.pods) for info in published.table.infos) == gang.bound(c)
        assert not c.scheduler.unexpected_errors._reported
    return count


@pytest.mark.parametrize("size", [3, 4])
async def test_a_member_may_vanish_at_any_pause_of_the_decision(size: int) -> None:
    pause, paused = 0, 1
    while pause < paused:
        paused = await decided_with_a_deletion(size, pause)
        pause += 1
    # Sorted, counted, tried and assumed, each member or step.
    assert pause > 2 * size

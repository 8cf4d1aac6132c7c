"""Room is made for a gang by one plan and one wave, or nobody is evicted: scenarios by number.

Covers ``ksched.scheduling.group_preemption``, ``ksched.scheduling.group_survey`` and
``ksched.framework.plugins.default_preemption.group_plan``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from ksched.framework import PermitResult, wait
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice
from ksched.queue.places import Place
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import Checkers, Cluster, FakePlugin, PodBuilder, cluster, make_pod
from lab.gangs import DIALECTS, Gang, configured, install, priority_class

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@asynccontextmanager
async def gang_cluster(
    nodes: int | Sequence[Any], dialect: str = "annotations", **options: Any
) -> AsyncIterator[Cluster]:
    config = options.pop("config", configured(dialect))
    async with cluster(nodes, config=config, start=False, **options) as c:
        await install(c, dialect)
        await c.create(*map(priority_class, (1, 5, 50, 100, 200)))
        async with c.scheduler:
            checkers = Checkers(c)
            yield c
            checkers.check_books()


def single(name: str, priority: int = 1, cpu: str = "4", grace_seconds: int = 0) -> PodBuilder:
    spec = {
        "priorityClassName": f"p{priority}",
        "terminationGracePeriodSeconds": grace_seconds,
    }
    return make_pod(name).req(cpu=cpu).merge({"spec": spec})


async def fill(c: Cluster, *pods: PodBuilder) -> None:
    await c.create(*pods)
    await c.settle()
    for pod in pods:
        assert c.bound(pod.to_dict()["metadata"]["name"]), "the test wants it placed"


async def create_gang(c: Cluster, gang: Gang, grace_seconds: int = 0) -> None:
    spec = {"spec": {"terminationGracePeriodSeconds": grace_seconds}}
    await c.create(*gang.objects(), *[pod.merge(spec) for pod in gang.pods()])


def evicted(c: Cluster) -> int:
    """How many pods were deleted for somebody."""
    paths = {one.path for one in c.requests if one.verb == "delete" and one.resource == "pods"}
    return len(paths)


def left(c: Cluster, prefix: str) -> int:
    return sum(pod["metadata"]["name"].startswith(prefix) for pod in c.pods())


def budget(app: str, allowed: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget-{app}", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        },
    }


@every_dialect
async def test_a_gang_takes_the_place_of_lesser_pods_in_one_wave(dialect: str) -> None:
    async with gang_cluster(3, dialect) as c:
        await fill(c, *[single(f"low{n}") for n in range(3)])
        gang = Gang(dialect, "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.settle()
        assert c.events("high-0")[0].note == (
            "pod group is unschedulable, 0 of 2 fit; short of 2 × 4 cpu; pod group is waiting for "
            "preemption to complete: 2 pods on 2 nodes are evicted"
        )
        await c.advance(5)
        assert gang.bound(c) == 2
        assert left(c, "low") == 1
        assert evicted(c) == 2


async def test_20_nobody_is_evicted_if_one_node_cannot_be_freed() -> None:
    async with gang_cluster(8) as c:
        await fill(c, *[single(f"low{n}") for n in range(7)], single("top", priority=200))
        gang = Gang("annotations", "high", 8, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(60)
        assert gang.bound(c) == 0
        assert evicted(c) == 0
        assert c.message("high-3") == (
            "pod group is unschedulable, 0 of 8 fit; short of 8 × 4 cpu; preemption: not helpful, "
            "without pods of lower priority 7 of 8 would fit"
        )
        assert len(c.scheduler.nominator) == 0


async def test_20_nor_if_filters_forbid_the_last_place() -> None:
    """By amounts all would fit; the anti-affinity to a pod that stays shows only in the trial."""
    async with gang_cluster(4) as c:
        guard = single("guard", priority=200, cpu="1").label(app="guard")
        await fill(c, guard, *[single(f"low{n}", cpu="3") for n in range(4)])
        gang = Gang("annotations", "high", 4, cpu="3", priority=100)
        pods = [
            pod.label(app="high")
            .pod_anti_affinity("kubernetes.io/hostname", {"app": "guard"})
            .pod_anti_affinity("kubernetes.io/hostname", {"app": "high"})
            for pod in gang.pods()
        ]
        await c.create(*pods)
        await c.advance(60)
        assert gang.bound(c) == 0
        assert evicted(c) == 0


@every_dialect
async def test_21_only_as_much_surplus_as_needed_is_evicted(dialect: str) -> None:
    async with gang_cluster(4, dialect) as c:
        elastic = Gang(dialect, "low", 16, minimum=4, priority=1)
        await create_gang(c, elastic)
        await c.advance(5)
        assert elastic.bound(c) == 16
        gang = Gang(dialect, "high", 2, cpu="1", priority=100)
        await create_gang(c, gang)
        await c.advance(5)
        assert gang.bound(c) == 2
        assert left(c, "low") == 14
        assert evicted(c) == 2


async def test_22_singles_go_before_a_gang_at_its_minimum() -> None:
    async with gang_cluster(4) as c:
        low = Gang("annotations", "low", 2, cpu="4", priority=1)
        await create_gang(c, low)
        await c.settle()
        await fill(c, single("single-a"), single("single-b"))
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(5)
        assert gang.bound(c) == 2
        assert low.bound(c) == 2
        assert left(c, "single") == 0


async def test_22_a_gang_at_its_minimum_goes_whole_or_not_at_all() -> None:
    async with gang_cluster(4) as c:
        low = Gang("annotations", "low", 3, cpu="4", priority=1)
        await create_gang(c, low)
        await c.settle()
        await fill(c, single("single", priority=1))
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(5)
        assert gang.bound(c) == 2
        assert left(c, "low") == 0
        assert left(c, "single") == 1, "the gang had to go anyway, and that was enough"


async def test_22_an_elastic_gang_is_not_left_below_its_minimum() -> None:
    async with gang_cluster(4) as c:
        low = Gang("annotations", "low", 4, minimum=3, cpu="4", priority=1)
        await create_gang(c, low)
        await c.advance(5)
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(5)
        assert gang.bound(c) == 2
        assert left(c, "low") == 0


async def test_23_budgets_are_counted_over_all_victims() -> None:
    """One disruption is allowed: the second victim is another pod, though it is as good."""
    async with gang_cluster(3) as c:
        await c.create(budget("db", 1))
        await fill(c, *[single(f"db{n}").label(app="db") for n in range(2)], single("other"))
        await create_gang(c, Gang("annotations", "high", 2, cpu="4", priority=100))
        await c.advance(5)
        assert left(c, "high") == 2
        assert left(c, "db") == 1
        assert left(c, "other") == 0


async def test_the_lowest_priorities_that_suffice_are_evicted() -> None:
    async with gang_cluster(4) as c:
        await fill(
            c,
            *[single(f"low{n}", priority=1) for n in range(2)],
            *[single(f"middle{n}", priority=50) for n in range(2)],
        )
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(5)
        assert gang.bound(c) == 2
        assert left(c, "middle") == 2


async def test_24_freed_room_is_kept_and_there_is_no_second_wave() -> None:
    async with gang_cluster(3) as c:
        await fill(c, *[single(f"low{n}", grace_seconds=600) for n in range(3)])
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.settle()
        going = [pod["metadata"]["name"] for pod in c.pods() if "deletionTimestamp" in str(pod)]
        assert len(going) == 2
        nominated = {c.pod(name)["status"]["nominatedNodeName"] for name in gang.names}
        assert nominated == {c.bound(name) for name in going}
        await c.advance(30)
        await c.delete(going[0], grace_seconds=0)
        # Of the same priority, and it would fit where the first victim was.
        await c.create(single("thief", priority=100), single("mouse", priority=1, cpu="1"))
        await c.advance(60)
        assert gang.bound(c) == 0
        assert c.bound("mouse") is None
        thief = c.bound("thief")
        assert thief is None or thief not in nominated
        assert "1 of 2 pods have not ended" in c.message("high-0")
        assert {c.pod(name)["status"]["nominatedNodeName"] for name in gang.names} == nominated
        await c.delete(going[1], grace_seconds=0)
        await c.advance(20)
        assert gang.bound(c) == 2
        assert {c.bound(name) for name in gang.names} == nominated


async def test_24_room_is_given_up_if_a_victim_never_ends() -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{n}", cpu="3", grace_seconds=30) for n in range(2)])
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.create(single("mouse", cpu="1"))
        await c.advance(60)
        # The grace period is over, and nobody ends the pods.
        assert len(c.scheduler.nominator) == 2
        assert c.bound("mouse") is None
        await c.advance(30 + 90 + 10)
        assert len(c.scheduler.nominator) == 0
        assert c.bound("mouse") is not None
        assert evicted(c) == 2


async def test_24_a_scheduler_that_takes_over_waits_for_the_same_victims() -> None:
    async with gang_cluster(3) as c:
        await fill(c, *[single(f"low{n}", grace_seconds=600) for n in range(3)])
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.settle()
        c.scheduler._attempts._group_cycle._preemption._victims.clear()
        going = [pod["metadata"]["name"] for pod in c.pods() if "deletionTimestamp" in str(pod)]
        c.scheduler.queue.activate(c.scheduler.pending)
        await c.advance(20)
        assert len([pod for pod in c.pods() if "deletionTimestamp" in str(pod)]) == 2
        assert "2 of 2 pods have not ended" in c.message("high-0")
        for name in going:
            await c.delete(name, grace_seconds=0)
        await c.advance(20)
        assert gang.bound(c) == 2


async def test_25_recreated_victims_do_not_take_the_room_back() -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{n}") for n in range(2)])
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        for number in range(40):
            await c.settle()
            if left(c, "low") < 2:
                await c.create(single(f"low-again{number}"))
            await c.advance(0.2)
        assert gang.bound(c) == 2
        assert evicted(c) == 2


async def test_18_a_gang_that_waits_at_permit_is_sent_back_in_memory() -> None:
    approval = FakePlugin(
        "Approval",
        permit=lambda state, pod, node: (
            PermitResult(wait(), 600.0) if pod.name.startswith("low") else PermitResult()
        ),
    )
    async with gang_cluster(2, plugins=[approval]) as c:
        low = Gang("annotations", "low", 2, cpu="4", priority=1)
        await create_gang(c, low)
        await c.settle()
        assert len(c.scheduler.waiting) == 2
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.advance(15)
        assert gang.bound(c) == 2
        assert low.bound(c) == 0
        assert left(c, "low") == 2
        assert evicted(c) == 0


async def test_19_a_gang_evicts_as_its_least_important_member_may() -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{n}", priority=5) for n in range(2)])
        gang = Gang("annotations", "mixed", 2, cpu="4")
        pods = [
            gang.pod(n).merge({"spec": {"priorityClassName": f"p{priority}"}})
            for n, priority in enumerate((1, 100))
        ]
        await c.create(*pods)
        await c.advance(130)
        assert gang.bound(c) == 0
        assert evicted(c) == 0
        notes = [event.note for name in gang.names for event in c.events(name)]
        assert (
            notes.count(
                "pods of group mixed have different priorities: "
                "it evicts pods below 1 and is evicted by pods above 100"
            )
            == 1
        )


async def test_members_that_never_preempt_evict_nobody() -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{n}") for n in range(2)])
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        calm = {**priority_class(99), "preemptionPolicy": "Never"}
        await c.create(calm)
        calm_pod = gang.pod(1).merge({"spec": {"priorityClassName": "p99"}})
        await c.create(gang.pod(0), calm_pod)
        await c.advance(30)
        assert evicted(c) == 0
        assert c.message("high-0").endswith(
            "preemption: not eligible due to preemptionPolicy=Never."
        )


async def test_a_gang_with_anti_affinity_frees_as_many_nodes_as_it_has_members() -> None:
    async with gang_cluster(3) as c:
        await fill(c, *[single(f"low{n}", cpu="1") for n in range(12)])
        gang = Gang("annotations", "high", 3, cpu="2", priority=100)
        pods = [
            pod.label(app="h").pod_anti_affinity("kubernetes.io/hostname", {"app": "h"})
            for pod in gang.pods()
        ]
        await c.create(*pods)
        await c.advance(5)
        assert gang.bound(c) == 3
        assert left(c, "low") == 6


async def test_where_amounts_do_not_show_the_obstacle_it_is_evicted_too() -> None:
    """Pods that object to the gang by their own anti-affinity, on nodes with room enough."""
    async with gang_cluster(3) as c:
        await fill(
            c,
            *[
                single(f"low{n}", cpu="1").pod_anti_affinity(
                    "kubernetes.io/hostname", {"app": "high"}
                )
                for n in range(3)
            ],
            *[single(f"calm{n}", cpu="1") for n in range(3)],
        )
        gang = Gang("annotations", "high", 3, cpu="2", priority=100)
        await c.create(
            *[
                pod.label(app="high").pod_anti_affinity("kubernetes.io/hostname", {"app": "high"})
                for pod in gang.pods()
            ]
        )
        await c.advance(5)
        assert gang.bound(c) == 3
        assert left(c, "low") == 0
        assert left(c, "calm") == 3, "reprieved"


@pytest.mark.parametrize(("minimum", "stay"), [(2, 2), (3, 0)])
async def test_21_there_too_only_surplus_is_evicted_or_the_whole_gang(
    minimum: int, stay: int
) -> None:
    async with gang_cluster(4) as c:
        low = Gang("annotations", "low", 4, minimum=minimum, priority=1)
        now = {"spec": {"terminationGracePeriodSeconds": 0}}
        away = ("kubernetes.io/hostname", {"group": "any"})
        pods = [pod.merge(now).label(group="any").pod_anti_affinity(*away) for pod in low.pods()]
        await c.create(*pods)
        await c.advance(5)
        assert low.bound(c) == 4
        gang = Gang("annotations", "high", 2, priority=100)
        await c.create(*[pod.label(group="any").pod_anti_affinity(*away) for pod in gang.pods()])
        await c.advance(5)
        assert gang.bound(c) == 2
        assert left(c, "low") == stay


async def test_large_and_small_members_are_planned_together() -> None:
    async with gang_cluster(3) as c:
        await fill(c, *[single(f"low{n}", cpu="1") for n in range(12)])
        gang = Gang("annotations", "high", 4, priority=100)
        pods = [gang.pod(n).req(cpu=cpu) for n, cpu in enumerate(("3", "1", "1", "2"))]
        await c.create(*pods)
        await c.advance(5)
        assert gang.bound(c) == 4
        assert left(c, "low") == 5


async def test_a_gang_that_loses_a_member_while_it_waits_gives_the_room_up() -> None:
    async with gang_cluster(2) as c:
        await fill(c, *[single(f"low{n}", grace_seconds=600) for n in range(2)])
        gang = Gang("annotations", "high", 2, cpu="4", priority=100)
        await create_gang(c, gang)
        await c.settle()
        assert len(c.scheduler.nominator) == 2
        await c.delete("high-1", grace_seconds=0)
        await c.settle()
        assert len(c.scheduler.nominator) == 0
        assert c.place("high-0") is Place.GATED
        assert not c.pod("high-0")["status"].get("nominatedNodeName")
        counts = Counter(pod["metadata"]["name"] for pod in c.pods())
        assert counts["low0"] == counts["low1"] == 1


@pytest.mark.parametrize("filters_decide", [False, True])
async def test_a_search_that_is_cancelled_leaves_everything_as_it_was(filters_decide: bool) -> None:
    """Wherever it pauses: a lost lease cancels it there."""
    async with gang_cluster(3) as c:
        low = [single(f"low{n}", cpu="1") for n in range(12)]
        if filters_decide:
            away = ("kubernetes.io/hostname", {"app": "high"})
            low = [pod.pod_anti_affinity(*away) for pod in low[:8]]
        await fill(c, *low)
        scheduler = c.scheduler
        scheduler.cache.update_snapshot()
        before = _look(scheduler)
        gang = Gang("annotations", "high", 3, cpu="2", priority=100)
        pods = [pod.label(app="high").merge({"spec": {"priority": 100}}) for pod in gang.pods()]
        infos = [scheduler.cache.pod_info(pod.obj()) for pod in pods]
        for info in infos:
            scheduler.groups.pending(info, is_ours=True)
        group = scheduler.groups.of(infos[0].uid)
        assert group is not None
        members = [QueuedPodInfo(info, 0.0) for info in infos]
        preemption = scheduler._attempts._group_cycle._preemption
        pauses = 0
        for limit in itertools.count():
            with monkeypatched_pauses(limit) as reached:
                try:
                    await preemption.run(group, members, 0, lambda one: False)
                except asyncio.CancelledError:
                    pauses += 1
            assert _look(scheduler) == before
            if not reached:
                break
        assert pauses > 10
        for info in infos:
            scheduler.groups.gone(info.uid)


def _look(scheduler: Scheduler) -> object:
    table, nodes = scheduler.cache.snapshot.table, len(scheduler.cache.snapshot)
    return (
        [column[:nodes].tolist() for column in table.requested],
        [sorted(info.pods) for info in table.infos],
        scheduler.nominator.by_node(),
    )


@contextmanager
def monkeypatched_pauses(limit: int) -> Iterator[list[int]]:
    """Every slice is over at once, and the pause of that number is where the attempt ends."""
    reached: list[int] = []
    count = itertools.count()

    async def give_way(self: TimeSlice) -> None:
        if next(count) == limit:
            reached.append(limit)
            raise asyncio.CancelledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimeSlice, "is_over", True)
        patch.setattr(TimeSlice, "give_way", give_way)
        yield reached

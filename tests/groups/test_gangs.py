"""A group is placed whole or not at all: scenarios of the field, by number, in every dialect.

Covers ``ksched.scheduling.group_cycle``, ``ksched.scheduling.group_trial``,
``ksched.scheduling.attempts``, ``ksched.groups.registry``,
``ksched.framework.plugins.gang_scheduling`` and ``ksched.framework.plugins.coscheduling``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.status_errors import GroupResource, conflict
from ksched.groups.states import state_of
from ksched.queue.places import Place
from ksched.testing import Checkers, Cluster, cluster, make_node, make_pod
from lab.gangs import DIALECTS, Gang, configured, install, priority_class

TAKEN = conflict(GroupResource("", "pods"), "g", "taken")

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@asynccontextmanager
async def gang_cluster(dialect: str, nodes: int = 4, **options: Any) -> AsyncIterator[Cluster]:
    config = options.pop("config", configured(dialect))
    async with cluster(nodes, config=config, start=False, **options) as c:
        await install(c, dialect)
        async with c.scheduler:
            checkers = Checkers(c)
            yield c
            checkers.check_books()


@every_dialect
async def test_01_of_two_gangs_that_arrive_interleaved_one_is_placed_whole(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=2) as c:
        a, b = Gang(dialect, "a", 8), Gang(dialect, "b", 8)
        await c.create(*a.objects(), *b.objects())
        for one, other in zip(a.pods(), b.pods(), strict=True):
            await c.create(one, other)
        await c.settle()
        assert sorted([a.bound(c), b.bound(c)]) == [0, 8]
        loser = a if not a.bound(c) else b
        assert len(c.scheduler.cache.pods()) == 8
        await c.advance(300)
        assert loser.bound(c) == 0
        winner = b if loser is a else a
        for name in winner.names:
            await c.delete(name, grace_seconds=0)
        await c.advance(20)
        assert loser.bound(c) == 8


@every_dialect
async def test_02_many_gangs_with_room_for_some_are_whole_at_every_instant(dialect: str) -> None:
    rng = random.Random(dialect)
    async with gang_cluster(dialect, nodes=15) as c:
        gangs = [Gang(dialect, f"g{number}", 5) for number in range(20)]
        pods = [pod for gang in gangs for pod in gang.pods()]
        rng.shuffle(pods)
        await c.create(*[one for gang in gangs for one in gang.objects()])
        for number, pod in enumerate(pods):
            await c.create(pod)
            if number % 7 == 0:
                await c.settle()
                assert {gang.bound(c) for gang in gangs} <= {0, 5}
        await c.advance(5)
        assert sorted(gang.bound(c) for gang in gangs) == [0] * 8 + [5] * 12
        await c.add_nodes(10)
        await c.advance(30)
        assert [gang.bound(c) for gang in gangs] == [5] * 20


async def test_02_of_a_hundred_gangs_sixty_run_whatever_dies_and_all_when_there_is_room() -> None:
    """Room is counted in the scheduler: the API server sees a gang that is bound one by one."""
    dialect, rng = "annotations", random.Random(2)
    async with gang_cluster(dialect, nodes=150, check_declarations=False) as c:
        gangs = [Gang(dialect, f"g{number}", 10) for number in range(100)]
        pods = [pod for gang in gangs for pod in gang.pods()]
        rng.shuffle(pods)
        were_whole: set[str] = set()
        for number, pod in enumerate(pods):
            await c.create(pod)
            if number % 40 == 0:
                await c.settle()
                placed = Counter(one.name.partition("-")[0] for one in c.scheduler.cache.pods())
                assert {placed[name] for name in placed.keys() - were_whole} <= {10}
                were_whole |= placed.keys()
                # One of any gang dies, and is created again by its controller.
                victim = rng.choice([name for gang in gangs for name in gang.names])
                if c.exists(victim):
                    await c.delete(victim, grace_seconds=0)
                    gang, _, index = victim.removeprefix("default/").partition("-")
                    await c.create(gangs[int(gang[1:])].pod(index))
        await c.advance(15)
        assert Counter(gang.bound(c) for gang in gangs) == {0: 40, 10: 60}
        await c.add_nodes(100)
        await c.advance(60)
        assert Counter(gang.bound(c) for gang in gangs) == {10: 100}


@every_dialect
async def test_03_a_gang_larger_than_the_cluster_holds_nothing_and_says_what_it_lacks(
    dialect: str,
) -> None:
    async with gang_cluster(dialect, nodes=5) as c:
        gang = Gang(dialect, "big", 8, cpu="4")
        await gang.create(c)
        await c.create(make_pod("single").req(cpu="2"))
        await c.settle()
        assert gang.bound(c) == 0
        assert c.bound("single") is not None
        for name in gang.names:
            assert c.condition(name)["reason"] == "Unschedulable"  # type: ignore[index]
            assert "of 8 fit; short of" in c.message(name)
        assert "pod group is unschedulable, 5 of 8 fit; short of 3 × 4 cpu" in {
            event.note for event in c.events("big-0")
        }
        attempts = c.queued("big-0").attempts
        await c.advance(30)
        assert c.queued("big-0").attempts <= attempts + 1, "nothing happened that could help"


@every_dialect
async def test_04_a_gang_that_fits_by_sums_only_is_refused(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=8) as c:
        await c.create(*[make_pod(f"s{n}").req(cpu="2") for n in range(8)])
        await c.settle()
        gang = Gang(dialect, "wide", 4, cpu="3")
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        assert "0 of 4 fit; short of 4 × 3 cpu" in c.message("wide-0")


@every_dialect
async def test_05_members_are_not_tried_before_the_last_has_come(dialect: str) -> None:
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "slow", 4)
        await c.create(*gang.objects())
        for pod in gang.pods()[:-1]:
            await c.create(pod)
            await c.advance(20)
        assert [c.queued(name).attempts for name in gang.names[:-1]] == [0, 0, 0]
        assert c.place("slow-0") is Place.GATED
        assert c.condition("slow-0")["reason"] == "SchedulingGated"  # type: ignore[index]
        assert c.message("slow-0").startswith("waiting for minCount pods from a gang to appear")
        await c.create(gang.pods()[-1])
        await c.settle()
        assert gang.bound(c) == 4


@pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])
async def test_06_members_wait_for_their_group_object_and_say_so(dialect: str) -> None:
    async with gang_cluster(dialect) as c:
        gang = Gang(dialect, "late", 3)
        await c.create(*gang.pods())
        await c.advance(5)
        assert c.message("late-1") == (
            'waiting for pods\'s pod group "late" to appear in scheduling queue'
        )
        await c.create(*gang.objects())
        await c.settle()
        assert gang.bound(c) == 3


@pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])
async def test_07_a_group_that_is_made_anew_rules_by_its_new_minimum(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "again", 6, minimum=5)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        await c.remove(gang.objects()[0])
        await c.settle()
        smaller = Gang(dialect, "again", 6, minimum=4)
        await c.create(*smaller.objects())
        await c.settle()
        assert gang.bound(c) == 4


@pytest.mark.parametrize("dialect", ["in-tree", "scheduler-plugins"])
async def test_08_a_minimum_that_changes_counts_at_once(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "g", 6, minimum=6)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        await c.replace(Gang(dialect, "g", 6, minimum=7).objects()[0])
        await c.advance(120)
        assert gang.bound(c) == 0
        await c.replace(Gang(dialect, "g", 6, minimum=3).objects()[0])
        await c.settle()
        assert gang.bound(c) == 4


@every_dialect
async def test_12_a_member_whose_bind_fails_keeps_its_place_and_is_tried_again(
    dialect: str,
) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        c.faults.rules.append(
            Rule(Fault(answer=TAKEN), verb="create", resource="pods/binding", skip=2)
        )
        gang = Gang(dialect, "g", 4)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 3
        await c.create(make_pod("thief"))
        await c.settle()
        assert c.bound("thief") is None or c.bound("thief") == "n1"
        await c.advance(5)
        assert gang.bound(c) == 4


@every_dialect
async def test_16_a_more_important_pod_does_not_wait_behind_a_gang(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=2) as c:
        gang = Gang(dialect, "low", 9)
        await gang.create(c)
        await c.settle()
        high = make_pod("high").req(cpu="4").merge({"spec": {"priorityClassName": "p100"}})
        await c.create(priority_class(100), high)
        await c.settle()
        assert c.bound("high") is not None
        assert gang.bound(c) == 0


@every_dialect
async def test_29_anti_affinity_between_members_holds_inside_the_gang(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=3) as c:
        gang = Gang(dialect, "spread", 3)
        pods = [
            pod.label(app="spread").pod_anti_affinity("kubernetes.io/hostname", {"app": "spread"})
            for pod in gang.pods()
        ]
        await c.create(*gang.objects(), *pods)
        await c.settle()
        assert {c.bound(name) for name in gang.names} == {"n1", "n2", "n3"}
        more = Gang(dialect, "crowd", 4)
        pods = [
            pod.label(app="crowd").pod_anti_affinity("kubernetes.io/hostname", {"app": "crowd"})
            for pod in more.pods()
        ]
        await c.create(*more.objects(), *pods)
        await c.settle()
        assert more.bound(c) == 0
        assert "3 of 4 fit" in c.message("crowd-0")


@every_dialect
async def test_32_nodes_that_come_one_by_one_lead_to_no_partial_bind(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "g", 8, cpu="4")
        await gang.create(c)
        for _ in range(6):
            await c.add_nodes(1)
            await c.advance(30)
            assert gang.bound(c) == 0
        assert c.queued("g-0").attempts <= 9
        assert all(c.condition(name)["reason"] == "Unschedulable" for name in gang.names)  # type: ignore[index]
        await c.add_nodes(1)
        await c.advance(11)
        assert gang.bound(c) == 8


@every_dialect
async def test_33_a_replacement_starts_after_another_member_has_finished(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=1) as c:
        gang = Gang(dialect, "job", 4)
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 4
        await c.patch("job-0", {"status": {"phase": "Succeeded"}}, subresource="status")
        await c.patch("job-3", {"status": {"phase": "Failed"}}, subresource="status")
        await c.settle()
        await c.create(gang.pod("3-again"))
        await c.settle()
        assert c.bound("job-3-again") == "n1"


@every_dialect
async def test_34_minimums_go_before_what_is_past_them(dialect: str) -> None:
    node = make_node("n1").capacity(cpu="10", pods="110")
    async with cluster([node], config=configured(dialect), start=False) as c:
        elastic, fixed = Gang(dialect, "elastic", 16, minimum=4), Gang(dialect, "fixed", 4)
        await install(c, dialect)
        await c.create(*elastic.objects(), *fixed.objects())
        await c.create(*elastic.pods(), *fixed.pods())
        async with c.scheduler:
            await c.settle()
            assert fixed.bound(c) == 4
            assert elastic.bound(c) == 6


@every_dialect
async def test_44_groups_of_one_name_in_two_namespaces_do_not_meet(dialect: str) -> None:
    async with gang_cluster(dialect, nodes=2) as c:
        for namespace in ("default", "other"):
            if namespace != "default":
                await c.create(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
            gang = Gang(dialect, "same", 3, namespace=namespace)
            await c.create(*gang.objects(), *gang.pods()[:2])
        await c.settle()
        assert {len(group.members) for group in c.scheduler.groups} == {2}
        gang = Gang(dialect, "same", 3)
        await c.create(gang.pods()[2])
        await c.settle()
        assert gang.bound(c) == 3
        assert Gang(dialect, "same", 2, namespace="other").bound(c) == 0


async def test_three_dialects_at_once_do_not_meet() -> None:
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {
            "multiPoint": {"enabled": [{"name": "GangScheduling"}, {"name": "Coscheduling"}]}
        },
    }
    async with cluster(3, config={"profiles": [profile]}) as c:
        for dialect in DIALECTS:
            await install(c, dialect)
        await c.advance(60)
        gangs = [Gang(dialect, "same", 2) for dialect in DIALECTS]
        for gang in gangs:
            await c.create(*gang.objects())
            await c.create(gang.pod(gang.dialect))
        await c.settle()
        assert len(c.scheduler.groups) == 3
        assert all(c.bound(f"same-{dialect}") is None for dialect in DIALECTS)


async def test_31_minimum_resources_are_named_and_wake_the_group() -> None:
    dialect = "scheduler-plugins"
    async with gang_cluster(dialect, nodes=3) as c:
        await c.create(*[make_pod(f"s{number}").req(cpu="3") for number in range(1)])
        await c.settle()
        gang = Gang(dialect, "g", 2, more={"minResources": {"cpu": "10"}})
        await gang.create(c)
        await c.settle()
        assert gang.bound(c) == 0
        assert "minResources: 9 of 10 cpu is free" in c.message("g-0")
        await c.delete("s0", grace_seconds=0)
        await c.advance(2)
        assert gang.bound(c) == 2


async def test_36_a_driver_starts_only_when_its_executors_would_fit() -> None:
    dialect = "scheduler-plugins"
    async with gang_cluster(dialect, nodes=1) as c:
        app = Gang(dialect, "app", 5, minimum=1, more={"minResources": {"cpu": "5"}})
        await c.create(*app.objects(), app.pod(0))
        await c.settle()
        assert app.bound(c) == 0
        await c.add_nodes(1)
        await c.advance(2)
        assert app.bound(c) == 1
        await c.create(*app.pods()[1:])
        await c.settle()
        assert app.bound(c) == 5


async def hopeless_cycles(count: int) -> int:
    """Pods that are filtered when room appears beside gangs that are too large for it."""
    dialect = "annotations"
    async with gang_cluster(dialect, nodes=4, check_declarations=False) as c:
        await c.create(make_pod("first").req(cpu="1"))
        gangs = [Gang(dialect, f"g{number}", 5, cpu="4") for number in range(count)]
        for gang in gangs:
            await gang.create(c)
        await c.advance(60)
        work = c.scheduler.profiles["default-scheduler"].pipeline.work
        before = work.cycles
        await c.delete("first", grace_seconds=0)
        await c.create(make_pod("single").req(cpu="1"))
        await c.advance(0.5)
        assert c.bound("single") is not None
        assert all(gang.bound(c) == 0 for gang in gangs)
        return work.cycles - before


async def test_38_hopeless_gangs_of_one_kind_cost_one_pass_and_hold_up_no_single_pod() -> None:
    # The members of one gang are tried, those of its likes are not.
    few, many = await hopeless_cycles(20), await hopeless_cycles(60)
    assert few == many <= 15


@asynccontextmanager
async def broken_gangs(count: int) -> AsyncIterator[tuple[Cluster, list[Gang]]]:
    """Gangs of three with two replacements that do not fit on four nodes with 3 CPUs left."""
    dialect = "annotations"
    nodes = [make_node(f"n{number}").capacity(cpu="4", pods="200") for number in range(4)]
    async with cluster(nodes, config=configured(dialect), check_declarations=False) as c:
        await c.create(*(make_pod(name).req(cpu="1") for name in ("first", "2nd", "3rd", "4th")))
        gangs = [Gang(dialect, f"g{number}", 3, cpu="10m") for number in range(count)]
        for gang in gangs:
            await gang.create(c)
        await c.settle()
        for gang in gangs:
            assert gang.bound(c) == 3
            for number in range(2):
                await c.delete(f"{gang.name}-{number}", grace_seconds=0)
            await c.create(*(gang.pod(f"{number}-again").req(cpu="4") for number in range(2)))
        await c.advance(60)
        assert {state_of(group) for group in c.scheduler.groups} == {"broken"}
        yield c, gangs


async def broken_attempts(count: int) -> int:
    """Pods that are tried when room appears beside gangs whose replacements are too large."""
    async with broken_gangs(count) as (c, _):
        await c.delete("first", grace_seconds=0)
        await c.create(make_pod("single").req(cpu="1"))
        await c.advance(0.5)
        assert c.bound("single") is not None
        assert {state_of(group) for group in c.scheduler.groups} == {"broken"}
        flows = c.scheduler.queue.flows(1)
        return sum(pods for (_, target), pods in flows.items() if target is Place.IN_FLIGHT)


async def test_38_broken_gangs_of_one_kind_cost_one_attempt_and_hold_up_no_single_pod() -> None:
    few, many = await broken_attempts(20), await broken_attempts(40)
    assert few == many <= 10


async def test_38_of_broken_gangs_that_wait_together_as_many_are_whole_as_there_is_room_for() -> (
    None
):
    async with broken_gangs(20) as (c, _):
        for healed in (1, 2, 4):
            have = Counter(map(state_of, c.scheduler.groups))["placed"]
            capacity = str(8 * (healed - have))
            await c.add_nodes([make_node(f"new{healed}").capacity(cpu=capacity, pods="200")])
            await c.advance(3)
            assert Counter(map(state_of, c.scheduler.groups)) == {
                "placed": healed,
                "broken": 20 - healed,
            }

"""Random histories of gangs, checked from outside; and the proof that the checks find a deadlock.

Covers ``ksched.scheduling.group_cycle`` and ``ksched.groups.registry``.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.framework import SUCCESS, Handle, PermitResult, PodInfo, wait
from ksched.framework.plugins.default_preemption import group_plan
from ksched.groups import wholeness
from ksched.scheduling.group_survey import Lines
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.scheduling.victim_search import VictimSearch
from ksched.testing import cluster
from ksched.testing.virtual_time import run
from lab.gang_histories import KINDS, PREEMPTION, PROTECTION, RACKS, History
from lab.gang_simulation import GangSimulation
from lab.gangs import DIALECTS, Gang, configured


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", range(6))
async def test_gangs_are_whole_at_every_instant(dialect: str, seed: int) -> None:
    await History(seed, dialect).live()


@pytest.mark.parametrize("dialect", ["annotations", "in-tree"])
@pytest.mark.parametrize("seed", range(6))
async def test_gangs_with_a_topology_are_in_one_rack_at_every_instant(
    dialect: str, seed: int
) -> None:
    await History(seed, dialect, RACKS).live()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [PREEMPTION, PROTECTION])
async def test_gangs_that_preempt_evict_for_the_whole_gang_only(
    dialect: str, seed: int, kind: str
) -> None:
    await History(seed, dialect, kind).live()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
async def test_no_gang_is_left_cut_by_a_leader_that_is_killed(seed: int, kind: str) -> None:
    happened = await History(seed, DIALECTS[seed % 2], kind, take_overs=True).live()
    assert happened["leader_is_killed"]


async def test_a_successor_may_evict_for_a_gang_whose_room_others_have_taken() -> None:
    await History.of(117).live()


async def test_room_may_be_taken_while_the_bind_of_the_pod_it_was_freed_for_is_refused() -> None:
    await History.of(559).live()


async def test_a_gang_may_evict_elsewhere_when_a_more_important_one_takes_its_room() -> None:
    await History.of(777).live()


async def test_a_gang_with_a_member_on_a_lost_node_is_no_obstacle() -> None:
    await History.of(1235).live()


async def live(seed: int) -> None:
    config = configured("annotations")
    async with cluster(3, config=config, seed=seed, check_declarations=False, kubelet=True) as c:
        await GangSimulation(c, "annotations", seed, priorities=(1, 5, 50)).run(steps=50)


def is_seen(text: str) -> bool:
    """Whether a problem is found in one of some histories."""
    for seed in range(20):
        try:
            run(live(seed))
        except AssertionError as problem:
            if text in str(problem):
                return True
    return False


def test_the_checks_see_a_gang_that_is_left_with_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholeness, "can_spare", lambda group, leaving: True)
    monkeypatch.setattr(group_plan, "can_spare", lambda group, leaving: True)
    assert is_seen(" leaves ")


def test_the_checks_see_evictions_for_a_part_of_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that takes victims for twice as large, and is not tried."""
    plain = Lines.of_pod
    monkeypatch.setattr(Lines, "of_pod", lambda self, pod: [2 * n for n in plain(self, pod)])
    monkeypatch.setattr(VictimSearch, "_try", pretend)
    assert is_seen("I3: ")


def test_the_checks_see_room_taken_that_was_freed_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SchedulingCycle, "_expected_beside", lambda self, pod: None)
    assert is_seen("I9: ")


async def pretend(self: Any, members: Any, going: Any, wanted: Any) -> Any:
    """Say that all members have their places without looking."""
    return wanted


class PermitOnly:
    """A gang by Permit alone: members hold their places until all have one."""

    name = "PermitOnly"

    def __init__(self, args: Any, handle: Handle) -> None:
        self._handle = handle

    def permit(self, state: Any, pod: PodInfo, node_name: str) -> Any:
        group = pod.pod.metadata.annotations.get("ksched.dev/group")
        if group is None:
            return SUCCESS
        minimum = int(pod.pod.metadata.annotations["ksched.dev/group-min"])
        held = [
            waiting
            for waiting in self._handle.waiting_pods()
            if waiting.pod.pod.metadata.annotations.get("ksched.dev/group") == group
        ]
        if len(held) + 1 < minimum:
            return PermitResult(wait(), 600.0)
        for waiting in held:
            waiting.allow(self.name)
        return SUCCESS


async def test_without_the_decision_on_one_snapshot_two_gangs_deadlock() -> None:
    """Scenario 1: what the group cycle is there for, and that the simulation's check sees it."""
    async with cluster(2, plugins={"PermitOnly": PermitOnly}) as c:
        simulation = GangSimulation(c, "annotations", 0)
        gangs = [Gang("annotations", name, 8) for name in ("a", "b")]
        simulation.gangs = {gang.name: gang for gang in gangs}
        for one, other in zip(gangs[0].pods(), gangs[1].pods(), strict=True):
            await c.create(one, other)
        await c.advance(300)
        assert [gang.bound(c) for gang in gangs] == [0, 0]
        with pytest.raises(AssertionError, match="I1: a holds 4 of 8"):
            simulation.check()

"""Members of a decision go on together or not at all."""

from __future__ import annotations

import asyncio

from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import Status, error, unschedulable
from ksched.scheduling.quorum_gate import QuorumGate


class Members:
    def __init__(self, need: int, names: str) -> None:
        self.opened = 0
        self.gate = QuorumGate(need, WaitingPods(), self._open)
        self.gate.expect(names)
        self.statuses: dict[str, Status] = {}

    def _open(self) -> None:
        self.opened += 1

    async def arrive(self, name: str) -> None:
        self.statuses[name] = await self.gate.passed(name)


async def test_the_last_member_opens_the_gate() -> None:
    members = Members(3, "abc")
    async with asyncio.TaskGroup() as tasks:
        for name in "ab":
            tasks.create_task(members.arrive(name))
        await asyncio.sleep(0)
        assert members.statuses == {}
        assert not members.gate.is_open
        tasks.create_task(members.arrive("c"))
    assert {name: status.is_success for name, status in members.statuses.items()} == {
        "a": True,
        "b": True,
        "c": True,
    }
    assert members.opened == 1


async def test_a_member_that_fails_sends_all_back_with_its_words() -> None:
    members = Members(2, "ab")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(members.arrive("a"))
        await asyncio.sleep(0)
        members.gate.leave("b", unschedulable("no licence").by("Licences"))
    assert members.statuses["a"].message == "pod group is unschedulable, no licence"
    assert members.statuses["a"].plugin == "Licences"
    assert members.opened == 0


async def test_a_member_that_is_not_needed_may_fail() -> None:
    members = Members(2, "abc")
    async with asyncio.TaskGroup() as tasks:
        for name in "ab":
            tasks.create_task(members.arrive(name))
        await asyncio.sleep(0)
        members.gate.leave("c", error("gone"))
    assert members.opened == 1
    assert members.statuses["a"].is_success


async def test_after_the_gate_has_opened_members_are_on_their_own() -> None:
    members = Members(1, "a")
    await members.arrive("a")
    members.gate.leave("a", error("bind failed"))
    assert members.gate.is_open

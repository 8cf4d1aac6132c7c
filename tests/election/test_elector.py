"""What the scripts do not show: fractions of seconds, jitter, health, and calls that hang."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import anyio
import pytest

from ksched.configuration.model import LeaderElection
from ksched.election import Callbacks, Elector, LeaderElectionRecord
from ksched.election.elector import TOLERATED_SECONDS
from ksched.election.locks import OnChange
from ksched.errors import ApiError, LeaseLost, NotFound, Unavailable
from ksched.testing.virtual_time import VirtualClock


class Lock:
    """A lock in memory that nobody else wants; every call takes ``latency`` seconds."""

    identity = "me"

    def __init__(self, record: LeaderElectionRecord | None = None) -> None:
        self.record = record
        self.latency = 0.0
        self.hangs = False
        self.calls: list[tuple[float, str, float]] = []
        """When, what, and how long it was allowed to take."""
        self.events: list[str] = []

    async def _call(self, what: str, timeout: float) -> None:
        self.calls.append((now(), what, timeout))
        if self.hangs:
            # A transport that does not keep its promise, say in a credential plugin.
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency)

    @property
    def version(self) -> str:
        return ""

    async def get(self, timeout: float) -> LeaderElectionRecord:
        await self._call("get", timeout)
        if self.record is None:
            raise NotFound(404, "NotFound", "no lock")
        return self.record

    async def create(self, record: LeaderElectionRecord, timeout: float) -> None:
        await self._call("create", timeout)
        self.record = record

    async def update(self, record: LeaderElectionRecord, timeout: float) -> None:
        await self._call("update", timeout)
        self.record = record

    async def watch(self, on_change: OnChange, idle_timeout: float) -> None:
        raise ApiError(403, "Forbidden", "no watching")

    async def record_event(self, text: str, timeout: float) -> None:
        self.events.append(text)
        await self._call("event", timeout)

    def describe(self) -> str:
        return "kube-system/kube-scheduler"


def now() -> float:
    return asyncio.get_running_loop().time()


class Leader:
    """An elector whose work waits for ever and remembers when it was cancelled."""

    def __init__(self, lock: Lock, **config: Any) -> None:
        self.lock = lock
        self.elector = Elector(
            lock,
            LeaderElection(**config),
            VirtualClock(),
            rng=random.Random(1),
            callbacks=Callbacks(started_leading=self._started),
        )
        self.started_at: float | None = None
        self.cancelled_at: float | None = None

    def _started(self) -> None:
        self.started_at = now()

    async def work(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled_at = now()

    async def lead_until_lost(self) -> None:
        with pytest.raises(LeaseLost):
            await self.elector.run(self.work)


async def test_lease_counts_from_before_the_request() -> None:
    lock = Lock()
    lock.latency = 4.0
    leader = Leader(lock)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leader.lead_until_lost())
        await asyncio.sleep(9)
        assert leader.started_at == 8.0
        # Created by a request that was sent at 4.
        assert leader.elector.remaining() == 5.0
        lock.hangs = True
    assert leader.cancelled_at == 14.0


async def test_no_call_may_outlive_the_lease_whatever_the_transport_does() -> None:
    lock = Lock()
    leader = Leader(lock)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leader.lead_until_lost())
        await asyncio.sleep(5)
        lock.hangs = True
    assert leader.cancelled_at == 14.0
    late = [(at, what, timeout) for at, what, timeout in lock.calls if at > 5 and what != "event"]
    assert late == [(6.0, "update", 5.0), (11.0, "get", 3.0)]


async def test_work_that_will_not_stop_is_unhealthy_after_a_while() -> None:
    lock = Lock()
    elector = Elector(lock, LeaderElection(), VirtualClock())
    ends = asyncio.Event()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await ends.wait()

    async def run() -> None:
        with pytest.raises(LeaseLost):
            await elector.run(stubborn)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        await asyncio.sleep(1)
        lock.hangs = True
        await asyncio.sleep(15 + TOLERATED_SECONDS - 2)
        assert (elector.remaining(), elector.is_leading) == (0.0, True)
        assert elector.problem() == ""
        await asyncio.sleep(2)
        problem = "failed election to renew leadership on lease kube-system/kube-scheduler"
        assert elector.problem() == problem
        ends.set()
    assert elector.problem() == ""


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        pytest.param(15.0, 15, id="whole"),
        pytest.param(2.5, 3, id="rounded up, or others would come too early"),
        pytest.param(0.5, 1, id="less than a second"),
    ],
)
async def test_duration_is_written_in_whole_seconds(seconds: float, written: int) -> None:
    lock = Lock()
    config = {"renew_deadline_seconds": seconds / 2, "retry_period_seconds": seconds / 4}
    leader = Leader(lock, lease_duration_seconds=seconds, **config)
    async with asyncio.timeout(1):
        await leader.elector.run(lambda: asyncio.sleep(0.1))

    given_back: LeaderElectionRecord | None = lock.record
    assert given_back is not None
    assert given_back.lease_duration_seconds == 1  # given back
    task = asyncio.create_task(leader.elector.run(lambda: asyncio.sleep(10)))
    await asyncio.sleep(0.01)
    assert lock.record is not None
    assert lock.record.lease_duration_seconds == written
    task.cancel()


async def test_candidates_look_at_jittered_intervals() -> None:
    other = LeaderElectionRecord(holder_identity="other", lease_duration_seconds=1000)
    lock = Lock(other)
    leader = Leader(lock)
    task = asyncio.create_task(leader.elector.run(leader.work))
    await asyncio.sleep(300)
    task.cancel()

    looks = [at for at, what, _ in lock.calls if what == "get"]
    pauses = [after - before for before, after in pairwise(looks)]
    assert min(pauses) >= 2.0
    assert max(pauses) <= 4.4
    assert max(pauses) - min(pauses) > 1.5


async def test_renewals_come_closer_together_towards_the_end() -> None:
    lock = Lock()
    leader = Leader(lock)

    async def refuse(record: LeaderElectionRecord, timeout: float) -> None:
        lock.calls.append((now(), "refused", timeout))
        raise Unavailable(503, "", "no leader")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leader.lead_until_lost())
        await asyncio.sleep(1)
        lock.update = refuse  # type: ignore[method-assign]

    tries = sorted({at for at, what, _ in lock.calls if what == "refused"})
    assert tries == [2.0, 4.0, 6.0, 8.0, 9.0, 9.5, 9.75]
    assert leader.cancelled_at == 10.0


async def test_events_never_hold_up_the_work() -> None:
    lock = Lock()
    leader = Leader(lock)

    async def work() -> None:
        lock.hangs = True
        await asyncio.sleep(3)

    task = asyncio.create_task(leader.elector.run(work))
    await asyncio.sleep(1)
    lock.hangs = False
    await task

    assert now() == 3.0
    assert lock.events == ["became leader", "stopped leading"]


async def test_cancelled_while_somebody_else_leads_nothing_is_written() -> None:
    lock = Lock(LeaderElectionRecord(holder_identity="other", lease_duration_seconds=15))
    leader = Leader(lock)
    task = asyncio.create_task(leader.elector.run(leader.work))
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert {what for _, what, _ in lock.calls} == {"get"}
    assert leader.started_at is None

"""Several daemons in one process on virtual time: what a replica does with the lease."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer, Audit
from ksched.apiserver.faults import Fault, Faults, Rule, StreamEnd
from ksched.apiserver.in_process import InProcessTransport
from ksched.configuration import SchedulerConfiguration
from ksched.configuration.flags import RunOptions
from ksched.configuration.model import ClientConnection, LeaderElection
from ksched.configuration.serving_flags import ServingOptions
from ksched.daemon import process
from ksched.daemon.process import Daemon
from ksched.errors import LeaseLost
from ksched.metrics import Metrics
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.virtual_time import VirtualClock, VirtualLoop

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon tunes the garbage collector of its process, which here is not its own."""

    async def leave_it(first_sync: object) -> None:
        pass

    monkeypatch.setattr(process, "spare_first_objects", leave_it)


class Replica:
    """A daemon; ``faults`` come between it and the server, ``lease_faults`` for its lease only."""

    def __init__(self, site: Site, name: str, options: dict[str, Any]) -> None:
        self.name, self._site = name, site
        self.faults, self.lease_faults = Faults(), Faults()
        on_lease_lost = options.pop("on_lease_lost", "exit")
        election = LeaderElection(leader_elect=options.pop("leader_elect", True))
        connection = ClientConnection(qps=options.pop("qps", -1.0), burst=options.pop("burst", 1))
        configuration = SchedulerConfiguration(
            leader_election=election, client_connection=connection, **options
        )
        run_options = RunOptions(
            configuration=configuration,
            feature_gates={},
            serving=ServingOptions(secure_port=0),
            on_lease_lost=on_lease_lost,
        )
        self.metrics = Metrics()
        self.daemon = Daemon(
            run_options,
            InProcessTransport(site.server, name, self.faults),
            InProcessTransport(site.server, f"{name} (lease)", self.lease_faults),
            site.clock,
            self.metrics,
        )
        self.ended_at: float | None = None
        self.lost: LeaseLost | None = None

    async def run(self) -> None:
        try:
            await self.daemon.run()
        except LeaseLost as lost:
            self.lost = lost
        self.ended_at = self._site.clock.now()

    def cut(self) -> None:
        for faults in (self.faults, self.lease_faults):
            faults.rules.append(Rule(Fault(hang=True), times=None))

    def heal(self) -> None:
        self.faults.rules.clear()
        self.lease_faults.rules.clear()

    @property
    def is_leading(self) -> bool:
        return self.metric("leader_election_master_status") == 1

    def metric(self, name: str) -> float | None:
        for family in self.metrics.collect():
            for sample in family.samples:
                if sample.name == name and sample.labels == {"name": "kube-scheduler"}:
                    return sample.value
        return None

    def readiness(self) -> dict[str, str]:
        return {name: check() for name, check in self.daemon._readiness().items()}

    def requests(self, verb: str, resource: str) -> list[Audit]:
        users = (self.name, f"{self.name} (lease)")
        return [
            audit
            for audit in self._site.server.requests
            if audit.user in users and (audit.verb, audit.resource) == (verb, resource)
        ]


class Site:
    """An API server with two nodes, and replicas."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(self.clock)
        self._tasks = tasks
        self._client = InProcessTransport(self.server, "test")
        self._pods = 0

    async def start(self, name: str, **options: Any) -> Replica:
        replica = Replica(self, name, options)
        self._tasks.create_task(replica.run(), name=name)
        await self.settle()
        return replica

    async def create(self, obj: PodBuilder | NodeBuilder) -> None:
        data = obj.to_dict()
        path = "nodes" if data["kind"] == "Node" else "namespaces/default/pods"
        answer = await self._client.request("POST", f"/api/v1/{path}", msgspec.json.encode(data))
        assert answer.status == 201, answer.body

    async def create_pods(self, count: int) -> None:
        for _ in range(count):
            self._pods += 1
            await self.create(make_pod(f"p{self._pods}"))

    async def settle(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await loop.idle()

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.settle()

    def block(self, seconds: float) -> None:
        """Time passes and nobody may run: a stopped process, a plugin that never yields."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.keep_busy(seconds)

    def binders(self) -> Counter[str]:
        """How many pods each replica has bound; a pod that was bound twice fails the test."""
        binds = [
            audit
            for audit in self.server.requests
            if audit.resource == "pods/binding" and audit.code == 201
        ]
        assert len({audit.path for audit in binds}) == len(binds)
        return Counter(audit.user for audit in binds)

    @property
    def pending(self) -> int:
        return self._pods - self.binders().total()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with _site() as site:
        yield site


@asynccontextmanager
async def _site() -> AsyncIterator[Site]:
    async with asyncio.TaskGroup() as tasks:
        site = Site(tasks)
        for name in ("n1", "n2"):
            await site.create(make_node(name))
        yield site
        for task in tasks._tasks:
            task.cancel()


async def test_only_the_leader_binds_and_the_follower_is_warm(site: Site) -> None:
    a, b = await site.start("a"), await site.start("b")
    await site.create_pods(5)
    await site.settle()

    assert site.binders() == {"a": 5}
    assert (a.is_leading, b.is_leading) == (True, False)
    assert set(b.readiness().values()) == {""}
    assert b.daemon.scheduler.cache.statistics().pods == 5


async def test_terminated_leader_gives_back_the_lease_at_once(site: Site) -> None:
    a, b = await site.start("a"), await site.start("b")
    await site.advance(5)

    a.daemon.stop()
    await site.create_pods(3)
    await site.advance(0.2)

    assert site.binders() == {"b": 3}
    assert a.lost is None
    assert b.is_leading


async def test_what_was_not_sent_is_left_to_the_next_leader(site: Site) -> None:
    a = await site.start("a", qps=5.0, burst=30)
    await site.start("b")
    await site.create_pods(100)
    await site.advance(3)
    bound = site.binders()["a"]
    assert 0 < bound < 50

    a.daemon.stop()
    await site.advance(0.2)

    assert site.binders() == {"a": bound, "b": 100 - bound}


async def test_a_bind_on_its_way_is_waited_for(site: Site) -> None:
    a = await site.start("a")
    await site.start("b")
    a.faults.rules.append(Rule(Fault(delay_seconds=3.0), verb="create", resource="pods/binding"))
    await site.create_pods(1)
    await site.advance(1)

    a.daemon.stop()
    await site.advance(1)
    led_while_binding = a.is_leading
    await site.advance(2)

    assert led_while_binding
    assert site.binders() == {"a": 1}
    assert not a.is_leading
    assert [audit.code for audit in a.requests("create", "pods/binding")] == [201]


async def test_follower_stops_without_a_word_to_the_lease(site: Site) -> None:
    a, b = await site.start("a"), await site.start("b")
    await site.advance(3)

    b.daemon.stop()
    await site.settle()

    assert b.ended_at == site.clock.now()
    assert b.requests("update", "leases") == []
    assert a.is_leading


async def test_nobody_campaigns_before_it_knows_the_cluster(site: Site) -> None:
    a = Replica(site, "a", {})
    a.faults.rules.append(Rule(Fault(hang=True), times=None))
    site._tasks.create_task(a.run())
    await site.advance(10)
    assert a.requests("get", "leases") == []
    assert a.readiness()["informer-sync"]

    a.daemon.stop()
    await site.settle()

    assert a.ended_at == site.clock.now()


async def test_lost_lease_ends_the_work_before_anybody_takes_over(site: Site) -> None:
    a, b = await site.start("a"), await site.start("b")
    await site.advance(4)
    renewed_at = a.requests("update", "leases")[-1].at
    a.lease_faults.rules.append(Rule(Fault(hang=True), times=None))

    while not b.is_leading:
        await site.create_pods(1)
        await asyncio.sleep(0.25)
    taken_at = site.clock.now()
    await site.advance(1)

    assert a.lost is not None
    assert a.lost.reason == f"not renewed for {RENEW:g} seconds"
    last = a.requests("create", "pods/binding")[-1].at
    assert renewed_at + RENEW - 0.5 < last < renewed_at + RENEW
    assert taken_at == pytest.approx(renewed_at + LEASE, abs=0.5)
    assert site.pending == 0


async def test_standby_campaigns_again_with_a_new_scheduler(site: Site) -> None:
    a = await site.start("a", on_lease_lost="standby")
    b = await site.start("b")
    first = a.daemon.scheduler
    web = a.daemon._web = a.daemon._make_web()
    a.cut()
    await site.advance(LEASE + RETRY)
    assert b.is_leading

    a.heal()
    await site.advance(60)
    assert a.daemon.scheduler is not first
    assert web.scheduler is a.daemon.scheduler
    assert set(a.readiness().values()) == {""}
    b.daemon.stop()
    await site.advance(1)
    await site.create_pods(2)
    await site.settle()

    assert a.is_leading
    assert site.binders() == {"a": 2}
    assert a.lost is None


async def test_after_a_long_stop_the_very_next_bind_is_refused(site: Site) -> None:
    a = await site.start("a", qps=5.0, burst=30)
    await site.create_pods(100)
    await site.advance(3.1)
    before = len(a.requests("create", "pods/binding"))
    assert 0 < before < 50

    site.block(20)
    await site.advance(5)

    assert len(a.requests("create", "pods/binding")) == before
    assert a.lost is not None


async def test_after_a_short_stop_it_goes_on(site: Site) -> None:
    a = await site.start("a", qps=5.0, burst=30)
    await site.create_pods(40)
    await site.advance(3.1)

    site.block(5)
    await site.advance(10)

    assert site.binders() == {"a": 40}
    assert a.is_leading


# -- the API server is restored from an older copy -------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_older_record_of_another_takes_no_lease_away(site: Site, is_there: bool) -> None:
    """A former leader that is still there finds itself in the record and must not believe it."""
    a = await site.start("a", on_lease_lost="standby")
    b = await site.start("b")
    await site.create_pods(2)
    await site.advance(5)
    copy = site.server.store.copy()
    a.cut()
    await site.advance(LEASE + RETRY)
    assert b.is_leading
    if is_there:
        a.heal()
        await site.advance(10)

    site.server.store.restore(copy)
    for _ in range(200):
        await site.advance(0.1)
        assert (a.is_leading, b.is_leading) == (False, True)
    assert b.lost is None
    await site.create_pods(1)
    await site.settle()
    assert b.requests("create", "pods/binding")[-1].code == 201


async def test_the_former_leader_leads_again_when_the_last_one_is_gone(site: Site) -> None:
    a = await site.start("a", on_lease_lost="standby")
    b = await site.start("b")
    await site.advance(5)
    copy = site.server.store.copy()
    a.cut()
    await site.advance(LEASE + RETRY)
    a.heal()
    await site.advance(10)
    renewed_at = b.requests("update", "leases")[-1].at
    b.cut()
    site.server.store.restore(copy)
    while not a.is_leading:
        await site.advance(0.1)
    assert site.clock.now() >= renewed_at + LEASE
    assert b.lost is not None


async def test_a_copy_from_before_the_lease_ends_no_leadership(site: Site) -> None:
    copy = site.server.store.copy()
    a, b = await site.start("a"), await site.start("b")
    await site.advance(5)
    site.server.store.restore(copy)
    for _ in range(200):
        await site.advance(0.1)
        assert (a.is_leading, b.is_leading) == (True, False)
    assert a.lost is None


async def test_an_older_record_of_our_own_makes_everything_be_listed_again(site: Site) -> None:
    """Noticed by the renewal, though no watch of the scheduler ends."""
    a, b = await site.start("a"), await site.start("b")
    await site.advance(30)
    copy = site.server.store.copy()
    await site.advance(30)
    for replica in (a, b):
        rule = Rule(Fault(stream_end=StreamEnd.SILENT, stream_events=0), verb="watch", times=None)
        replica.faults.rules.append(rule)
    site.server.drop_watches()
    await site.advance(10)
    site.server.store.restore(copy)
    restored_at = site.clock.now()
    await site.create_pods(1)
    await site.advance(20)
    assert site.binders() == {"a": 1}
    assert a.is_leading
    assert all(one.requests("list", "pods")[-1].at > restored_at for one in (a, b))


async def test_delayed_cache_is_filled_by_the_leader_only(site: Site) -> None:
    options = {"delay_cache_until_active": True}
    a, b = await site.start("a", **options), await site.start("b", **options)
    await site.create_pods(2)
    await site.advance(1)
    assert site.binders() == {"a": 2}
    assert b.requests("list", "pods") == b.requests("watch", "pods") == []
    assert set(b.readiness().values()) == {""}

    a.daemon.stop()
    await site.create_pods(2)
    await site.advance(1)

    assert site.binders() == {"a": 2, "b": 2}


async def test_without_election_there_is_no_lease(site: Site) -> None:
    a = await site.start("a", leader_elect=False)
    await site.create_pods(2)
    await site.advance(30)

    assert site.binders() == {"a": 2}
    assert not [audit for audit in site.server.requests if audit.resource == "leases"]
    assert a.metric("leader_election_master_status") is None


async def test_slow_renewals_are_counted(site: Site) -> None:
    a = await site.start("a")
    a.lease_faults.rules.append(Rule(Fault(lose_response=True), verb="update"))
    await site.advance(5)

    assert a.metric("leader_election_slowpath_total") == 1
    assert a.is_leading

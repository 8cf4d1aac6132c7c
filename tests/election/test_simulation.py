"""Candidates with clocks of their own, a bad network, crashes and restarts, by the seed.

Judged from outside: by what the API server was asked, and by when each said that it led.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest

from ksched.api.resources import CONFIG_MAPS
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.request import Request
from ksched.apiserver.served_resources import LEASES
from ksched.apiserver.status_errors import StatusError
from ksched.client.rest import ApiClient
from ksched.configuration.model import LeaderElection
from ksched.election import Callbacks, Elector, WriteFence, make_lock
from ksched.errors import ApiError, LeaseLost
from ksched.testing.virtual_time import VirtualClock, VirtualLoop

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0
DRIFT = 0.05
SECONDS = 500.0
SPARED = "spared"
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

TROUBLES = (
    Fault(hang=True),
    Fault(lose_response=True),
    Fault(delay_seconds=1.5),
    Fault(answer=StatusError(503, "ServiceUnavailable", "etcd has no leader")),
    Fault(answer=StatusError(409, "Conflict", "somebody was faster")),
    Fault(answer=StatusError(429, "TooManyRequests", "later")),
)


class Clock(VirtualClock):
    """Too fast or too slow, and wrong about the time of day."""

    def __init__(self, rate: float, offset: float) -> None:
        self._rate, self._offset = rate, offset

    def now(self) -> float:
        return super().now() * self._rate

    def wall(self) -> float:
        return super().wall() + self._offset

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._rate)


class Term:
    """One leadership, in true time."""

    def __init__(self, who: str, began: float) -> None:
        self.who, self.began, self.ended = who, began, SECONDS

    def __repr__(self) -> str:
        return f"{self.who} led from {self.began:.3f} to {self.ended:.3f}"


class Candidate:
    """Writes all the time while it leads, gives up after a while, crashes and comes back."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self._world = name, world
        rng = world.rng
        self.clock = Clock(1 + rng.uniform(-DRIFT, DRIFT), rng.uniform(-1e5, 1e5))
        self.faults = Faults(seed=rng.randrange(1000))
        self._term: Term | None = None
        self.lives = 0

    def build(self) -> Elector:
        self.lives += 1
        self.faults.rules.clear()
        transport = InProcessTransport(self._world.server, self.name, self.faults)
        config = LeaderElection()
        lock = make_lock(
            config, ApiClient(transport, self.clock), self.clock, f"{self.name}-{self.lives}", "x"
        )
        elector = Elector(
            lock,
            config,
            self.clock,
            rng=random.Random(self._world.rng.random()),
            callbacks=Callbacks(started_leading=self._started, stopped_leading=self._stopped),
        )
        self._client = ApiClient(WriteFence(elector.remaining).guard(transport), self.clock)
        return elector

    def _started(self) -> None:
        self._term = Term(self.name, self._world.now)
        self._world.terms.append(self._term)

    def _stopped(self) -> None:
        if self._term is not None:
            self._term.ended = self._world.now
            self._term = None

    async def run(self) -> None:
        """One life after the other, each until the process crashes or is told to end."""
        while True:
            elector = self.build()
            life = asyncio.create_task(self._live(elector))
            years = None if self.name == SPARED else self._world.rng.expovariate(1 / 90)
            try:
                await asyncio.wait({life}, timeout=years)
                if self._world.rng.random() < 0.7:
                    # A crash: nothing is said any more, and nothing done.
                    self.faults.rules[:] = [Rule(Fault(hang=True), times=None)]
                    self._stopped()
            finally:
                life.cancel()
            await asyncio.wait({life})
            await asyncio.sleep(self._world.rng.uniform(0, 10))

    async def _live(self, elector: Elector) -> None:
        while True:
            with suppress(LeaseLost):
                await elector.run(self.write_for_a_while)
            await asyncio.sleep(0.1)

    async def write_for_a_while(self) -> None:
        weary = 10.0 if self.name == SPARED else 60.0
        with suppress(TimeoutError):
            async with asyncio.timeout(weary), asyncio.TaskGroup() as tasks:
                for _ in range(3):
                    tasks.create_task(self._write())

    async def _write(self) -> None:
        number = 0
        while True:
            await self.clock.sleep(self._world.rng.uniform(0.01, 2.0))
            number += 1
            name = f"{self.name}-{self.lives}-{id(asyncio.current_task())}-{number}"
            body = msgspec.json.encode({"metadata": {"name": name}})
            with suppress(ApiError):
                await self._client.create(CONFIG_MAPS, "default", body)


class World:
    """The API server, its candidates, and the weather between them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.server = ApiServer(VirtualClock(), log_length=1_000_000)
        self.terms: list[Term] = []
        self.lease: list[tuple[float, str]] = []
        """When the lease was written, and who held it then, as the server stored it."""
        self.blocked: list[tuple[float, float]] = []
        """When the event loop did not run, and for how long."""
        self.candidates = [Candidate(self, name) for name in (SPARED, "b", "c", "d")]
        handle = self.server.handle

        def remembering(request: Request) -> object:
            answer = handle(request)
            if request.method in ("PUT", "POST") and request.path.startswith(PATH):
                self._remember()
            return answer

        self.server.handle = remembering  # type: ignore[assignment, method-assign]
        self._version = 0

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _remember(self) -> None:
        (entry,) = self.server.store.collection(LEASES).entries.values()
        if entry.version != self._version:
            self._version = entry.version
            holder = entry.decode()["spec"].get("holderIdentity") or ""
            self.lease.append((self.now, holder.rpartition("-")[0]))

    async def run(self) -> None:
        tasks = [asyncio.create_task(one.run()) for one in self.candidates]
        tasks.append(asyncio.create_task(self._weather()))
        await asyncio.sleep(SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    async def _weather(self) -> None:
        """Outages of one candidate or of all but one, and now and then a loop that hangs."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 8))
            victim = self.rng.choice(self.candidates[1:])
            fault, chance = self.rng.choice(TROUBLES), self.rng.choice((0.3, 1.0))
            rule = Rule(fault, times=None, chance=chance)
            victim.faults.rules.append(rule)
            await asyncio.sleep(self.rng.choice((0.5, 3.0, 9.0, 14.0, 40.0)))
            with suppress(ValueError):
                victim.faults.rules.remove(rule)
            if self.rng.random() < 0.1:
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualLoop)
                seconds = self.rng.choice((1.0, 12.0, 20.0))
                self.blocked.append((self.now, seconds))
                loop.keep_busy(seconds)

    # -- judgement --------------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        yield from self._two_leaders()
        yield from self._writes_without_lease()
        yield from self._nobody_cares()

    def _two_leaders(self) -> Iterator[str]:
        terms = sorted(self.terms, key=lambda term: term.began)
        for number, term in enumerate(terms):
            for later in terms[number + 1 :]:
                if later.began < term.ended:
                    yield f"two leaders: {term} and {later}"

    def _writes_without_lease(self) -> Iterator[str]:
        changes = iter([*self.lease, (SECONDS * 2, "")])
        (until, following), holder = next(changes), ""
        for audit in self.server.requests:
            while until <= audit.at:
                holder, (until, following) = following, next(changes)
            if audit.resource == "configmaps" and audit.user != holder:
                where = holder or "nobody"
                yield f"{audit.user} writes at {audit.at:.3f}, the lease is with {where}"

    def _nobody_cares(self) -> Iterator[str]:
        """One candidate is always well: what nobody renews, it takes."""
        for (before, _), (after, _) in pairwise([*self.lease, (SECONDS, "")]):
            blocked = sum(seconds for at, seconds in self.blocked if before - 20 <= at <= after)
            if after - before > (LEASE + RETRY) / (1 - DRIFT) + blocked:
                yield f"the lease was nobody's from {before:.3f} to {after:.3f}"


SEEDS = int(os.environ.get("KSCHED_SIMULATION_SEEDS", "10"))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_never_two_leaders_and_never_none_for_long(seed: int) -> None:
    world = World(seed)
    await world.run()

    assert list(world.problems()) == []
    # It must have been worth watching.
    assert len(world.terms) > 5
    assert sum(audit.resource == "configmaps" for audit in world.server.requests) > 300

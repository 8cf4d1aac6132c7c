"""Replicas of the daemon with one lease, in virtual time: killed, frozen, cut off and stopped.

Each is a ``Daemon`` as ``ksched run`` builds it, with elector and fence, on a network of its own to
the simulated server. One that has ended is started again after a while.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from unittest.mock import patch

from ksched.apiserver.faults import Fault, Rule
from ksched.configuration.flags import RunOptions
from ksched.configuration.serving_flags import ServingOptions
from ksched.daemon import process
from ksched.daemon.process import Daemon
from ksched.errors import LeaseLost
from ksched.metrics import Metrics
from ksched.queue.places import Place
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import Cluster
from ksched.testing.virtual_time import VirtualClock
from lab.freezing import Freezer, context_of
from lab.lease_watch import LeaseWatch, Wire

REPLICAS = 2
RESTART_SECONDS = (0.0, 1.0, 5.0, 20.0)
FIRST_LEADER_SECONDS = 0.1


class Clock(VirtualClock):
    """A process's own: somebody may set its time of day."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0

    def wall(self) -> float:
        return super().wall() + self.offset_seconds


class Replica(Daemon):
    """One process; ``elected`` is called with it whenever it begins to schedule."""

    def __init__(
        self,
        c: Cluster,
        name: str,
        seed: int,
        lease: LeaseWatch,
        elected: Callable[[Replica], None],
    ) -> None:
        self.name, self._elected = name, elected
        self.wire, self.lease_wire = (Wire(c.server, name, c.faults, lease) for _ in range(2))
        self.clock = Clock()
        options = RunOptions(
            configuration=c.scheduler.configuration,
            feature_gates={},
            serving=ServingOptions(secure_port=0),
            seed=seed,
        )
        super().__init__(options, self.wire, self.lease_wire, self.clock, Metrics())
        self.task = asyncio.get_running_loop().create_task(
            self._live(), name=name, context=context_of(name)
        )
        """Ends with how the lease was lost, if it was."""

    async def _lead(self) -> None:
        self._elected(self)
        await super()._lead()


class ElectedReplicas:
    """``c.scheduler`` is the one that leads, or was the last to do so.

    ``complain`` is called with each write that was sent without the lease, ``on_late_bind`` with
    the key of a pod that is bound after the sender gave that up.
    """

    def __init__(
        self,
        c: Cluster,
        seed: int,
        complain: Callable[[str], None],
        on_late_bind: Callable[[str], None],
    ) -> None:
        self._cluster = c
        self._rng = random.Random(seed)
        self._freezer = Freezer(asyncio.get_running_loop())
        self._lease = LeaseWatch(c.server, complain, on_late_bind)
        self._replicas: dict[int, Replica] = {}
        self._started = 0
        self._leader: Replica | None = None
        self.happened: Counter[str] = Counter()
        """How leaderships ended, and how often a pod went from one place in a queue to another."""

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        c: Cluster,
        seed: int,
        complain: Callable[[str], None],
        on_late_bind: Callable[[str], None],
    ) -> AsyncIterator[ElectedReplicas]:
        """Run them until the block ends; ``c`` was made with ``start=False``."""
        replicas = cls(c, seed, complain, on_late_bind)
        problem: Exception | None = None
        # The daemon tunes the garbage collector of its process, which here is not its own.
        with patch.object(process, "spare_first_objects", _leave_collector):
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(replicas._keep_running(number)) for number in range(REPLICAS)
                ]
                while replicas._leader is None:
                    await c.advance(FIRST_LEADER_SECONDS)
                try:
                    yield replicas
                except Exception as raised:  # noqa: BLE001 - raised again below, not in a group
                    problem = raised
                for task in running:
                    task.cancel()
        if problem is not None:
            raise problem

    @property
    def leader(self) -> Replica:
        """The one that leads, or was the last to do so."""
        assert self._leader is not None
        return self._leader

    def kill(self, replica: Replica) -> None:
        """End a process between two steps of the event loop; what it has sent has been sent."""
        replica.wire.is_cut = replica.lease_wire.is_cut = True
        self._freezer.thaw(replica.name)
        replica.task.cancel()

    def kill_all(self) -> None:
        for replica in self._replicas.values():
            self.kill(replica)

    def freeze(self, replica: Replica, seconds: float) -> None:
        """Stop a process and let it go on later."""
        self._freezer.freeze(replica.name)
        self._after(seconds, self._freezer.thaw, replica.name)

    def cut_off(self, replica: Replica, fault: Fault, resource: str, seconds: float) -> None:
        """Let requests of a process go wrong for a while: all, or those for one resource."""
        rule = Rule(fault, resource=resource, user=replica.name, times=None)
        self._cluster.faults.rules.insert(0, rule)
        self._after(seconds, self._lift, rule)

    def _lift(self, rule: Rule) -> None:
        with suppress(ValueError):
            self._cluster.faults.rules.remove(rule)

    def _after(self, seconds: float, action: Callable[..., None], argument: object) -> None:
        asyncio.get_running_loop().call_later(seconds, action, argument)

    async def _keep_running(self, number: int) -> None:
        """Start a process whenever the one before has ended, as a kubelet would."""
        while True:
            self._started += 1
            name = f"replica-{self._started}"
            replica = Replica(self._cluster, name, self._started, self._lease, self._elected)
            self._replicas[number] = replica
            try:
                await asyncio.wait({replica.task})
            except asyncio.CancelledError:
                self.kill(replica)
                await asyncio.wait({replica.task})
                raise
            finally:
                self._count(replica)
            await asyncio.sleep(self._rng.choice(RESTART_SECONDS))

    def _elected(self, replica: Replica) -> None:
        self._leader = replica
        self._cluster.scheduler = replica.scheduler
        self.happened["leader elected"] += 1

    def _count(self, replica: Replica) -> None:
        self.happened += moves(replica.scheduler)
        if replica.task.done() and not replica.task.cancelled():
            lost = replica.task.result()
            if isinstance(lost, LeaseLost):
                self.happened[f"lease lost: {lost.reason.partition(' by ')[0]}"] += 1
            else:
                self.happened["stopped"] += 1


def moves(scheduler: Scheduler) -> Counter[str]:
    """How often pods went from one place of a scheduler's queue to another."""
    flows = scheduler.queue.flows(math.inf).items()
    return Counter({move(source, target): times for (source, target), times in flows})


def move(source: Place, target: Place) -> str:
    return f"{source.value} -> {target.value}"


async def _leave_collector(first_sync: object) -> None:
    pass

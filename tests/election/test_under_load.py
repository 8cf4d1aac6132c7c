"""The renewer shares the event loop with the scheduler and must get its turn.

Counted, not timed: ``python -m bench.lease`` measures.
"""

from __future__ import annotations

import asyncio

from bench.workloads import node, pod
from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.configuration.model import LeaderElection
from ksched.election import Elector, make_lock
from ksched.queue import Place
from ksched.testing.harness import cluster

NODES, PODS = 5000, 150


class Pops:
    """Counts the pods that were taken from the queue between two turns of a neighbour."""

    def __init__(self) -> None:
        self.total = self.now = self.most = 0

    def moved(self, cause: str, source: Place, target: Place) -> None:
        if target is Place.IN_FLIGHT:
            self.total += 1
            self.now += 1

    async def neighbour(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.most, self.now = max(self.most, self.now), 0


async def test_between_two_turns_of_a_neighbour_one_pod_is_tried_at_most() -> None:
    pops = Pops()
    async with cluster(nodes=[node(number) for number in range(NODES)], observer=pops) as c:
        config = LeaderElection()
        client = ApiClient(InProcessTransport(c.server, "lease"), c.clock)
        elector = Elector(make_lock(config, client, c.clock, "me", "test"), config, c.clock)

        async def work() -> None:
            # All at once: the queue is never empty, and nothing else makes the scheduler wait.
            await asyncio.gather(*(c.create(pod(number, "mixed")) for number in range(PODS)))
            while c.scheduler.cache.statistics().pods < PODS:  # noqa: ASYNC110
                await asyncio.sleep(0)

        beside = asyncio.create_task(pops.neighbour())
        await elector.run(work)
        beside.cancel()

    assert pops.total >= PODS
    assert pops.most == 1

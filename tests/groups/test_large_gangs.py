"""Scenario 40: a gang of 5,000 is decided in one pass, the event loop has its turns, and the leader
keeps its lease. Counted, not timed: ``python -m bench.lease --workloads gang`` measures.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.configuration.model import LeaderElection
from ksched.election import Elector, make_lock
from ksched.testing import Cluster, cluster, make_node
from lab.counted_time import calls_take_time
from lab.gangs import Gang, configured

MEMBERS = 5000
CALL_SECONDS = 1e-5
"""So slow that the decision outlasts the lease."""
CALLS_PER_STEP = 12 * MEMBERS
"""At most so many between two turns of a neighbour: enough to look at every member once."""
ELECTION = LeaderElection()
LEADER = "leader"


async def lateness(c: Cluster, found: list[float]) -> None:
    """Note how much later than asked for a neighbour is woken."""
    while True:
        due = c.clock.now() + 0.01
        await asyncio.sleep(0.01)
        found.append(c.clock.now() - due)


def renewals(c: Cluster) -> list[float]:
    return [one.at for one in c.requests if (one.user, one.verb) == (LEADER, "update")]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_40_a_gang_of_5000_is_decided_in_one_pass_and_the_lease_is_kept() -> None:
    nodes = [make_node(f"n{n}").capacity(cpu="128", memory="512Gi", pods="110") for n in range(50)]
    config, late = configured("annotations"), list[float]()
    async with cluster(nodes, config=config, start=False, check_declarations=False) as c:
        client = ApiClient(InProcessTransport(c.server, LEADER), c.clock)
        lock = make_lock(ELECTION, client, c.clock, LEADER, "test")
        elector = Elector(lock, ELECTION, c.clock)
        leading = asyncio.create_task(elector.run(c.scheduler.run))
        await c.settle()
        gang = Gang("annotations", "g", MEMBERS)
        *most, last = gang.pods()
        await c.create(*most)
        await c.settle()
        neighbour = asyncio.create_task(lateness(c, late))
        with calls_take_time(CALL_SECONDS):
            await c.create(last)
            began = c.clock.now()
            while c.scheduler.cache.statistics().pods < MEMBERS and not leading.done():
                await c.clock.sleep(0.05)
            ended = c.clock.now()
        neighbour.cancel()
        assert not leading.done(), leading
        await c.settle()
        assert gang.bound(c) == MEMBERS
        assert c.scheduler.metrics.group_undone_placements.value() == 0
        causes = Counter(one.cause for name in gang.names for one in c.story(name))
        assert (causes["PodPopped"], causes["PodGroupPopped"]) == (1, MEMBERS - 1)
        assert ended - began > ELECTION.lease_duration_seconds
        assert max(late) < CALLS_PER_STEP * CALL_SECONDS
        gaps = [after - before for before, after in pairwise(renewals(c))]
        assert sum(gaps) > ELECTION.lease_duration_seconds
        assert max(gaps) < ELECTION.retry_period_seconds + CALLS_PER_STEP * CALL_SECONDS
        assert elector.is_leading
        leading.cancel()

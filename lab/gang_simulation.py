"""A random history of gangs: arrivals, deaths, lost nodes, refused binds and take-overs.

Invariants are checked after every step from the objects and the request log of the API server and
from the scheduler's cache; the group registry is only compared with them.

- I1, I2: a gang holds no room, or so many members that bind requests of its minimum were sent.
- I6: no node is over its allocatable.
- I7: the counts of every group equal a recount.
- I8: when everything has calmed down, no gang waits that would fit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.status_errors import GroupResource, conflict
from ksched.testing import Checkers, Cluster
from lab.gangs import Gang

CALM_SECONDS = 200.0
REFUSED = conflict(GroupResource("", "pods"), "gang", "refused")


class GangSimulation:
    """Drives a cluster whose scheduler reads one dialect of groups."""

    def __init__(self, c: Cluster, dialect: str, seed: int, *, faults: bool = True) -> None:
        self._cluster, self._dialect, self._seed = c, dialect, seed
        self._rng = random.Random(seed)
        self._checkers = Checkers(c)
        self.gangs: dict[str, Gang] = {}
        self.was_whole: set[str] = set()
        """Gangs that had their minimum bound once; a death afterwards leaves fewer."""
        self.happened: Counter[str] = Counter()
        self._actions: dict[Callable[[], Awaitable[None]], int] = {
            self.gang_arrives: 6,
            self.gang_is_deleted: 4,
            self.member_dies: 3,
            self.node_joins: 2,
            self.node_is_lost: 1,
        }
        if faults:
            self._actions |= {self.bind_is_refused: 3, self.watches_break: 2}

    async def run(self, steps: int) -> None:
        """Live through some steps, then calm down; raises ``AssertionError`` with the seed."""
        try:
            for _ in range(steps):
                [action] = self._rng.choices([*self._actions], [*self._actions.values()])
                self.happened[action.__name__] += 1
                await action()
                await self._cluster.advance(self._rng.choice((0.0, 0.5, 3.0, 20.0)))
                self.check()
            self._cluster.faults.rules.clear()
            await self._cluster.advance(CALM_SECONDS)
            self.check()
            self._checkers.check_books()
            self._check_nothing_is_left_behind()
        except AssertionError as problem:
            raise AssertionError(f"seed {self._seed}, {self.happened}: {problem}") from problem

    # -- events ---------------------------------------------------------------------------------

    async def gang_arrives(self) -> None:
        name = f"g{self.happened['gang_arrives']}"
        size = self._rng.randint(2, 6)
        cpu = str(self._rng.choice((1, 1, 2, 3)))
        gang = self.gangs[name] = Gang(self._dialect, name, size, cpu=cpu)
        objects: list[Any] = [*gang.objects(), *gang.pods()]
        self._rng.shuffle(objects)
        for one in objects:
            await self._cluster.create(one)
            if self._rng.random() < 0.3:
                await self._cluster.settle()
                self.check()

    async def gang_is_deleted(self) -> None:
        if self.gangs:
            name = self._rng.choice(sorted(self.gangs))
            gang = self.gangs.pop(name)
            for pod in gang.names:
                if self._cluster.exists(pod):
                    await self._cluster.delete(pod, grace_seconds=0)
            for one in gang.objects():
                await self._cluster.remove(one)

    async def member_dies(self) -> None:
        pods = [pod for gang in self.gangs.values() for pod in gang.names]
        alive = [pod for pod in pods if self._cluster.exists(pod)]
        if alive:
            await self._cluster.delete(self._rng.choice(alive), grace_seconds=0)

    async def node_joins(self) -> None:
        names = {node["metadata"]["name"] for node in self._cluster.nodes()}
        if len(names) < 6:
            await self._cluster.add_nodes(1)

    async def node_is_lost(self) -> None:
        nodes = sorted(node["metadata"]["name"] for node in self._cluster.nodes())
        # The harness numbers nodes by how many there are: only the last may go.
        if len(nodes) > 2:
            lost = nodes[-1]
            await self._cluster.delete_node(lost)
            for gang in self.gangs.values():
                for pod in gang.names:
                    if self._cluster.exists(pod) and self._cluster.bound(pod) == lost:
                        await self._cluster.delete(pod, grace_seconds=0)

    async def bind_is_refused(self) -> None:
        rule = Rule(Fault(answer=REFUSED), verb="create", resource="pods/binding")
        self._cluster.faults.rules.append(rule)

    async def watches_break(self) -> None:
        self._cluster.server.drop_watches()

    # -- invariants -----------------------------------------------------------------------------

    def check(self) -> None:
        """I1, I2, I6 (the ledger's problems) and I7 at this instant."""
        c = self._cluster
        cache = c.scheduler.cache
        problems = list(self._checkers.ledger.problems)
        placed = Counter(pod.key.rpartition("-")[0].partition("/")[2] for pod in cache.pods())
        for name, gang in self.gangs.items():
            bound = gang.bound(c)
            if bound >= gang.least:
                self.was_whole.add(name)
            if name in self.was_whole:
                continue
            if 0 < placed[name] < gang.least and not self._is_cut(gang):
                problems.append(f"I1: {name} holds {placed[name]} of {gang.least}")
        for group in c.scheduler.groups:
            recount = sum(cache.get_pod(uid) is not None for uid in group.members)
            leaving = sum(one.pod.is_terminating for one in group.members.values())
            if not recount - leaving <= group.placed <= recount:
                problems.append(f"I7: {group.key} counts {group.placed}, there are {recount}")
        assert not problems, "\n".join(problems)

    def _is_cut(self, gang: Gang) -> bool:
        """Whether bind requests for the whole minimum were sent, and some failed or were undone."""
        paths = [one.path for one in self._cluster.requests if one.resource == "pods/binding"]
        # The server has no record of requests that were refused on the way to it.
        paths += [request.path for request, _ in self._cluster.faults.fired]
        requested = {
            path for path in paths if f"/pods/{gang.name}-" in path and path.endswith("/binding")
        }
        return len(requested) >= gang.least

    def _check_nothing_is_left_behind(self) -> None:
        """I8, for gangs of equals of which every member exists."""
        free = []
        cache = self._cluster.scheduler.cache
        for name in cache.node_names():
            info = cache.get_node(name)
            assert info is not None
            free.append(4000 - info.requested_of("cpu"))
        for name, gang in self.gangs.items():
            if gang.bound(self._cluster) or not all(map(self._cluster.exists, gang.names)):
                continue
            slots = sum(room // (1000 * int(gang.cpu)) for room in free)
            assert slots < gang.least, f"I8: {name} waits though {slots} of {gang.least} fit"

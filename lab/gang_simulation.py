"""A random history of gangs: arrivals, deaths, lost nodes, refused binds and take-overs.

Invariants are checked after every step from the objects and the request log of the API server and
from the scheduler's cache; the group registry is only compared with them.

- I1, I2: a gang holds no room, or so many members that bind requests of its minimum were sent.
- I6: no node is over its allocatable.
- I7: the counts of every group equal a recount.
- I8: when everything has calmed down, no gang waits that would fit.

With priorities there are single pods too, and gangs preempt. Checked when an eviction begins:

- I3: with the victims gone all members that the gang needs fit on the nodes they are nominated to.
- I4: a gang evicts again only after all its earlier victims have ended, but for those on nodes that
  a more important preemptor was nominated to meanwhile: their room is its own now. Under another
  leader those on the nodes that its members were nominated to, if the nominations were written.
- No gang is left with a part of its minimum by an eviction.
- Every victim is less important than every member.

And after every step:

- I9: nobody was placed in room that is reserved for a pod of the same or a higher priority.

I8 then holds for gangs that would fit at the expense of less important pods.

With racks most gangs must stay in one, and I5 is checked after every step: their members are in one
rack. I8 then holds for gangs that would fit in a rack.

With take-overs leaders are killed, also between two binds of a gang and between two evictions for
one. I8 holds for what is missing of a gang that was cut so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.status_errors import GroupResource, conflict
from ksched.cache.pod_info import PodInfo
from ksched.scheduling.preemption_executor import Preemptor
from ksched.testing import Checkers, Cluster, NodeBuilder, make_node, make_pod
from lab.gangs import Gang, priority_class
from lab.replicas import USER, Replicas

CALM_SECONDS = 200.0
REFUSED = conflict(GroupResource("", "pods"), "gang", "refused")


class GangSimulation:
    """Drives a cluster whose scheduler reads one dialect of groups."""

    def __init__(
        self,
        c: Cluster,
        dialect: str,
        seed: int,
        *,
        faults: bool = True,
        priorities: Sequence[int] = (),
        racks: int = 0,
    ) -> None:
        self._racks = racks
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
        self._priorities = priorities
        self._nominated: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        """By node, nominated pods and pods there at the last step."""
        if priorities:
            self._actions |= {self.single_arrives: 4, self.single_ends: 2}
            self.evictions = EvictionChecks(self)
        if faults:
            self._actions |= {self.bind_is_refused: 3, self.watches_break: 2}
        self._replicas: Replicas | None = None

    def add_take_overs(self, replicas: Replicas) -> None:
        """Let leaders be killed."""
        self._replicas = replicas
        self._actions[self.leader_is_killed] = 4

    async def run(self, steps: int) -> None:
        """Live through some steps, then calm down; raises ``AssertionError`` with the seed."""
        try:
            if self._priorities:
                await self._cluster.create(*map(priority_class, sorted({*self._priorities})))
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
        if self._racks and self._rng.random() < 0.7:
            gang.topology = "rack"
        pods = gang.pods()
        if self._priorities:
            gang.priority = self._rng.choice(self._priorities)
            gang.minimum = self._rng.randint(2, size)
            pods = [pod.merge(self._grace()) for pod in gang.pods()]
        objects: list[Any] = [*gang.objects(), *pods]
        self._rng.shuffle(objects)
        for one in objects:
            await self._cluster.create(one)
            if self._rng.random() < 0.3:
                await self._cluster.settle()
                self.check()

    def _grace(self) -> dict[str, Any]:
        return {"spec": {"terminationGracePeriodSeconds": self._rng.choice((0, 0, 5, 40))}}

    async def single_arrives(self) -> None:
        pod = make_pod(f"s{self.happened['single_arrives']}-0")
        pod = pod.req(cpu=str(self._rng.choice((1, 1, 2, 4)))).merge(self._grace())
        priority = self._rng.choice(self._priorities)
        await self._cluster.create(pod.merge({"spec": {"priorityClassName": f"p{priority}"}}))

    async def single_ends(self) -> None:
        names = [pod["metadata"]["name"] for pod in self._cluster.pods()]
        singles = sorted(name for name in names if name.startswith("s"))
        if singles:
            await self._cluster.delete(self._rng.choice(singles), grace_seconds=0)

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
            await self._cluster.add_nodes([racked_node(len(names) + 1, self._racks)])

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

    async def leader_is_killed(self) -> None:
        """Kill the leader in the middle of what it sends, and let another one lead after a while.

        Requests from some number on are lost, or performed without a response.
        """
        assert self._replicas is not None
        c, rng = self._cluster, self._rng
        fault = Fault(hang=True) if rng.random() < 0.7 else Fault(lose_response=True)
        verb, resource = rng.choice(
            (("create", "pods/binding"), ("create", "pods/binding"), ("delete", "pods"))
        )
        cut = Rule(fault, verb, resource, USER, skip=rng.randint(0, 5), times=None)
        c.faults.rules.insert(0, cut)
        self.happened["gang_arrives"] += 1
        await self.gang_arrives()
        if rng.random() < 0.5:
            await c.settle()
        self._replicas.kill()
        await c.settle()
        c.faults.rules.remove(cut)
        # Nobody leads until the lease has expired.
        await c.advance(rng.choice((0.0, 0.0, 5.0, 30.0)))
        if self._priorities:
            self.evictions.leader_is_gone()
        self._replicas.take_over(is_warm=rng.random() < 0.5)
        await c.scheduler.wait_synced()
        self._nominated = {}
        if self._priorities:
            self.evictions.follow()

    # -- invariants -----------------------------------------------------------------------------

    def check(self) -> None:
        """I1, I2, I6 (the ledger's problems) and I7 at this instant."""
        c = self._cluster
        cache = c.scheduler.cache
        problems = list(self._checkers.ledger.problems)
        if self._priorities:
            problems += self.evictions.problems + self._check_reserved_room()
        placed = Counter(pod.key.rpartition("-")[0].partition("/")[2] for pod in cache.pods())
        for name, gang in self.gangs.items():
            bound = gang.bound(c)
            if len(racks := self._racks_of(gang)) > 1 and gang.topology:
                problems.append(f"I5: {name} is in {sorted(racks)}")
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

    def _racks_of(self, gang: Gang) -> set[str]:
        cache, prefix = self._cluster.scheduler.cache, f"{gang.namespace}/{gang.name}-"
        infos = [
            cache.get_node(pod.node_name) for pod in cache.pods() if pod.key.startswith(prefix)
        ]
        return {info.labels.get("rack", "") for info in infos if info is not None}

    def _check_reserved_room(self) -> list[str]:
        """I9, for nodes whose nominated pods are those of the last step.

        A nomination may have ended and come back meanwhile, where a bind was refused: only those
        count that took the room while it was there.
        """
        scheduler, problems = self._cluster.scheduler, []
        before, self._nominated = self._nominated, {}
        for name, nominated in scheduler.nominator.by_node().items():
            info = scheduler.cache.get_node(name)
            if info is None:
                continue
            uids = frozenset(pod.uid for pod in nominated)
            self._nominated[name] = (uids, frozenset(info.pods))
            if name not in before or before[name][0] != uids:
                continue
            takers = self.evictions.takers.difference(before[name][1])
            for pod in [info.pods[uid] for uid in takers.intersection(info.pods)]:
                kept = [one for one in nominated if one.priority >= pod.priority]
                used = [one.template.requests["cpu"] for one in (*info.pods.values(), *kept)]
                if kept and sum(used) > 4000:
                    problems.append(f"I9: {pod.key} took room on {name} kept for {kept[0].key}")
        return problems

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
        scheduler = self._cluster.scheduler
        if not scheduler.groups.protection.after_seconds:
            assert not scheduler.nominator.by_node(), "room is reserved though nothing is going on"
        for name, gang in self.gangs.items():
            need = gang.least - gang.bound(self._cluster)
            if need <= 0 or not all(map(self._cluster.exists, gang.names)):
                continue
            own_racks = self._racks_of(gang) if gang.topology else set()
            by_rack: Counter[str] = Counter()
            for rack, room in self._room(gang):
                if rack in own_racks or not own_racks:
                    by_rack[rack if gang.topology else ""] += room // (1000 * int(gang.cpu))
            slots = max(by_rack.values(), default=0)
            assert slots < need, f"I8: {name} waits for {need} of {gang.least} though {slots} fit"

    def _room(self, gang: Gang) -> list[tuple[str, int]]:
        """What a gang could have of each node, with its rack.

        With priorities less important pods do not count, and room reserved for others does.
        """
        scheduler, room = self._cluster.scheduler, []
        for name in scheduler.cache.node_names():
            info = scheduler.cache.get_node(name)
            assert info is not None
            kept = [
                pod
                for pod in scheduler.nominator.nominated_pods_for_node(name)
                if pod.key not in gang.names
            ]
            used = sum(
                pod.template.requests["cpu"]
                for pod in (*info.pods.values(), *kept)
                if gang.priority is None or pod.priority >= gang.priority
            )
            room.append((info.labels.get("rack", ""), 4000 - used))
        return room


def racked_node(number: int, racks: int) -> NodeBuilder:
    """A node in one of some racks, if there are any."""
    node = make_node(f"n{number}")
    return node.label(rack=f"r{number % racks}") if racks else node


class EvictionChecks:
    """Looks at every eviction when it starts, with nothing but the cache and the gangs' sizes."""

    def __init__(self, simulation: GangSimulation) -> None:
        self._simulation = simulation
        self._cluster = simulation._cluster
        self.problems: list[str] = []
        self.waves: Counter[str] = Counter()
        self._victims: dict[str, set[str]] = {}
        self.takers: set[str] = set()
        """Pods that were placed where nominated pods as important have no room then."""
        self.follow()

    def follow(self) -> None:
        """Look at the evictions and placements of the scheduler that leads now."""
        scheduler = self._cluster.scheduler
        self._start, self._assume = scheduler.preemption.start, scheduler.cache.assume_pod
        scheduler.preemption.start = self.start  # type: ignore[method-assign, assignment]
        scheduler.cache.assume_pod = self.assume  # type: ignore[method-assign]

    def assume(self, pod: PodInfo) -> None:
        scheduler = self._cluster.scheduler
        self._assume(pod)
        info = scheduler.cache.get_node(pod.node_name)
        others = scheduler.nominator.nominated_pods_for_node(pod.node_name)
        kept = [one for one in others if one.priority >= pod.priority and one.uid != pod.uid]
        there = [] if info is None else info.pods.values()
        if kept and sum(one.template.requests["cpu"] for one in (*there, *kept)) > 4000:
            self.takers.add(pod.uid)

    def leader_is_gone(self) -> None:
        """Keep what another leader can know.

        For whom pods were evicted is told only by the nominations in the status of members: killed
        before they were written, a leader leaves pods that terminate and no trace of why.
        """
        self._victims = {who: self._told(who, uids) for who, uids in self._victims.items()}

    def _told(self, who: str, victims: set[str]) -> set[str]:
        """Those of some victims that are on nodes to which members are nominated."""
        c, gang = self._cluster, self._simulation.gangs.get(who.partition("/")[2])
        names = [name for name in gang.names if c.exists(name)] if gang else []
        nominated = {c.pod(name)["status"].get("nominatedNodeName", "") for name in names}
        return {
            pod["metadata"]["uid"]
            for pod in c.pods()
            if pod["metadata"]["uid"] in victims and pod["spec"].get("nodeName") in nominated
        }

    def start(self, preemptor: Preemptor, victims: Sequence[PodInfo], *more: Any) -> None:
        running = [pod for pod in victims if not pod.is_terminating]
        if running:
            who = preemptor.group or preemptor.pod.key
            self.waves["gang" if preemptor.group else "pod"] += 1
            self._check_wholeness(who, running)
            least = min(pod.priority for pod in preemptor.pods)
            if any(pod.priority >= least for pod in running):
                self.problems.append(f"{who} evicts what is as important")
            if preemptor.group:
                self._check_fit(who, preemptor, {pod.uid for pod in victims})
                self._check_waves(who, running)
        self._forget_displaced(preemptor)
        self._start(preemptor, victims, *more)

    def _forget_displaced(self, preemptor: Preemptor) -> None:
        """Nominations of lower priority to its nodes end: those gangs have to look elsewhere."""
        cache, least = self._cluster.scheduler.cache, min(pod.priority for pod in preemptor.pods)
        for who, victims in self._victims.items():
            gang = self._simulation.gangs.get(who.partition("/")[2])
            if gang is not None and gang.priority is not None and gang.priority < least:
                there = [pod for uid in victims if (pod := cache.get_pod(uid))]
                victims -= {pod.uid for pod in there if pod.node_name in preemptor.node_names}

    def _check_fit(self, who: str, preemptor: Preemptor, going: set[str]) -> None:
        gang = self._simulation.gangs[who.partition("/")[2]]
        cache, asked = self._cluster.scheduler.cache, Counter(preemptor.node_names)
        bound = gang.bound(self._cluster)
        if len(preemptor.pods) < gang.least - bound:
            self.problems.append(f"I3: {who} evicts for {len(preemptor.pods)} of {gang.least}")
        for name, number in asked.items():
            info = cache.get_node(name)
            if info is None:
                self.problems.append(f"I3: {who} is nominated to {name}, which is gone")
                continue
            staying = [pod for pod in info.pods.values() if pod.uid not in going]
            used = sum(pod.template.requests["cpu"] for pod in staying)
            if used + number * 1000 * int(gang.cpu) > 4000:
                self.problems.append(f"I3: {who} evicts though {number} do not fit on {name}")

    def _check_waves(self, who: str, running: Sequence[PodInfo]) -> None:
        cache = self._cluster.scheduler.cache
        earlier = self._victims.get(who, set())
        left = [
            pod
            for uid in earlier
            if (pod := cache.get_pod(uid))
            and pod.is_terminating
            # Nobody ends those on nodes that are gone.
            and cache.get_node(pod.node_name)
        ]
        if left:
            self.problems.append(f"I4: {who} evicts again while {len(left)} victims terminate")
        self._victims[who] = {pod.uid for pod in running}

    def _check_wholeness(self, who: str, running: Sequence[PodInfo]) -> None:
        cache, going = self._cluster.scheduler.cache, {pod.uid for pod in running}
        for name, gang in self._simulation.gangs.items():
            prefix = f"{gang.namespace}/{name}-"
            there = [pod for pod in cache.pods() if pod.key.startswith(prefix)]
            there = [pod for pod in there if not pod.is_terminating]
            left = [pod for pod in there if pod.uid not in going]
            if len(left) < len(there) and 0 < len(left) < gang.least:
                self.problems.append(
                    f"{who} leaves {len(left)} of {name}, which needs {gang.least}"
                )

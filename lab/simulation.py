"""A stretch of cluster life from a seed: arrivals, completions, failures and a bad network.

    async with cluster(nodes=0, kubelet=True, seed=7) as c:
        await Simulation(c, seed=7).run(hours=24)

Everything random comes from the seed, so a run that found something can be repeated. The checkers
look after every step; when the time is up the weather clears and everything must come to rest.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import chain

from ksched.apiserver.faults import Fault, Rule, StreamEnd
from ksched.apiserver.kubelet import RUN_SECONDS_ANNOTATION
from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import StatusError
from ksched.errors import ApiError
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.checkers import PATIENCE_SECONDS, Checkers
from ksched.testing.harness import Cluster
from lab.elected_replicas import ElectedReplicas
from lab.reference import would_take

log = logging.getLogger(__name__)

ZONE = "topology.kubernetes.io/zone"
ZONES = ("a", "b", "c")
STORM_SECONDS = 240.0
"""How long a stretch of bad weather lasts at most."""

BAD_WEATHER_PATIENCE_SECONDS = PATIENCE_SECONDS + STORM_SECONDS + 600.0
"""A silent watch is noticed after two minutes, and lists are retried at most a minute apart."""

BAD_WEATHER_CALM_SECONDS = 300.0
"""In which a watch that has been silent since the bad weather is opened again."""

LOOK_AGAIN_SECONDS = 30.0


class Simulation:
    """Drives a cluster that has kubelets and nothing else in it."""

    def __init__(
        self,
        c: Cluster,
        seed: int,
        *,
        nodes: int = 6,
        seconds_between_events: float = 90.0,
        bad_weather: bool = True,
        lag_seconds: float = 0.05,
        good_weather_patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._cluster, self.seed = c, seed
        self._rng = random.Random(seed)
        self._nodes_wanted = nodes
        self._seconds_between_events = seconds_between_events
        patience = BAD_WEATHER_PATIENCE_SECONDS if bad_weather else good_weather_patience_seconds
        self._calm_seconds = BAD_WEATHER_CALM_SECONDS if bad_weather else patience
        self.checkers = Checkers(c, patience, would_take)
        self.happened: Counter[str] = Counter()
        """How often each kind of event took place."""
        self._numbers: Counter[str] = Counter()
        self._replicas: ElectedReplicas | None = None
        self._actions: dict[Callable[[], Awaitable[None]], int] = {
            self.service: 20,
            self.batch: 20,
            self.scale_down: 20,
            self.giant: 2,
            self.gated: 4,
            self.ungate: 6,
            self.node_joins: 4,
            self.node_fails: 3,
            self.cordon: 3,
            self.uncordon: 5,
            self.taint: 3,
            self.untaint: 5,
            self.relabel: 3,
            self.grow: 1,
        }
        if bad_weather:
            # What the scheduler hears is a little out of date.
            lag = Rule(Fault(event_delay_seconds=lag_seconds), "watch", times=None)
            c.faults.rules.append(lag)
            c.server.drop_watches()
            self._actions |= {self.storm: 2, self.hiccup: 8, self.lose_watches: 3, self.compact: 1}

    def add_take_overs(self, replicas: ElectedReplicas) -> None:
        """Let leaders be killed, frozen, cut off and stopped, and renewals go wrong."""
        self._replicas = replicas
        self._actions |= {
            self.leader_is_killed: 5,
            self.leader_is_frozen: 5,
            self.leader_is_cut_off: 4,
            self.leader_is_stopped: 2,
            self.lease_hiccup: 4,
            self.clock_is_set: 2,
        }

    async def run(self, hours: float) -> None:
        """Live through some hours, then calm down; raises ``AssertionError`` with the seed."""
        log.info("simulation begins", extra={"seed": self.seed, "hours": hours})
        c = self._cluster
        try:
            for _ in range(self._nodes_wanted):
                await self.node_joins()
            end = c.clock.now() + hours * 3600
            while c.clock.now() < end:
                await c.advance(self._rng.expovariate(1 / self._seconds_between_events))
                self._clear_up()
                await self._step()
                await c.settle()
                self.checkers.check()
            await self._calm_down()
        except AssertionError as problem:
            raise AssertionError(f"seed {self.seed}, {problem}") from problem

    async def _step(self) -> None:
        [action] = self._rng.choices(list(self._actions), list(self._actions.values()))
        self.happened[action.__name__] += 1
        await action()

    async def _calm_down(self) -> None:
        """Take away every obstacle: what a node would take must be bound, and the books agree."""
        c = self._cluster
        c.faults.rules.clear()
        for node in c.nodes():
            await c.patch_node(_name(node), {"spec": {"unschedulable": None, "taints": None}})
        for name in self._gated():
            await c.patch(name, {"spec": {"schedulingGates": None}})
        end = c.clock.now() + BAD_WEATHER_PATIENCE_SECONDS
        await c.advance(self._calm_seconds)
        while left := self._problems():
            if c.clock.now() >= end:
                raise AssertionError("\n".join(["after everything calmed down:", *left]))
            await c.advance(LOOK_AGAIN_SECONDS)

    def _problems(self) -> list[str]:
        """All problems, also those that may be gone in a moment."""
        checkers = self.checkers
        passing = (checkers.wrong_books(), checkers.unaccounted(), checkers.left_behind())
        return [*checkers.ledger.problems, *chain.from_iterable(passing)]

    # -- pods -----------------------------------------------------------------------------------

    def _pod(self, kind: str) -> PodBuilder:
        self._numbers[kind] += 1
        rng = self._rng
        pod = make_pod(f"{kind}-{self._numbers[kind]}").label(app=kind)
        pod = pod.req(cpu=f"{rng.choice((100, 250, 500, 1000, 2000))}m")
        if rng.random() < 0.7:
            pod = pod.req(memory=f"{rng.choice((128, 512, 2048, 8192))}Mi")
        if rng.random() < 0.2:
            pod = pod.node_selector({ZONE: rng.choice(ZONES)})
        if rng.random() < 0.2:
            pod = pod.toleration("maintenance", operator="Exists")
        if rng.random() < 0.1:
            pod = pod.host_port(rng.choice((8080, 9090)))
        return pod

    async def _create_some(self, template: PodBuilder, kind: str, count: int) -> None:
        """Create pods that no plugin can tell apart."""
        for _ in range(count):
            self._numbers[kind] += 1
            name = f"{kind}-{self._numbers[kind]}"
            await self._cluster.create(template.merge({"metadata": {"name": name}}))

    async def service(self) -> None:
        """Pods that run until they are deleted."""
        await self._create_some(self._pod("service"), "service", self._rng.randint(1, 8))

    async def batch(self) -> None:
        """Pods that end by themselves."""
        seconds = str(self._rng.choice((30, 300, 1800, 7200)))
        template = self._pod("batch").annotation({RUN_SECONDS_ANNOTATION: seconds})
        await self._create_some(template, "batch", self._rng.randint(1, 12))

    async def giant(self) -> None:
        """A pod that fits nowhere."""
        await self._create_some(self._pod("giant").req(cpu="1000"), "giant", 1)

    async def gated(self) -> None:
        await self._create_some(self._pod("gated").gate("example.com/wait"), "gated", 2)

    def _gated(self) -> list[str]:
        pods = self.checkers.ledger.pods.values()
        return [pod.metadata.key for pod in pods if pod.spec.scheduling_gates]

    async def ungate(self) -> None:
        names = self._gated()
        if names:
            name = self._rng.choice(names)
            await self._try(self._cluster.patch(name, {"spec": {"schedulingGates": None}}))

    async def scale_down(self) -> None:
        """Delete some pods, whatever their state; many where many wait, so that there is room."""
        names = self._cluster.pod_names()
        most = max(min(len(names), 10), len(names) // 2)
        for name in self._rng.sample(names, self._rng.randint(min(len(names), 1), most)):
            await self._try(self._cluster.delete(name))

    # -- nodes ----------------------------------------------------------------------------------

    def _node(self) -> NodeBuilder:
        self._numbers["node"] += 1
        size = self._rng.choice((2, 4, 8))
        node = make_node(f"node-{self._numbers['node']}").label({ZONE: self._rng.choice(ZONES)})
        return node.capacity(cpu=str(size), memory=f"{4 * size}Gi", pods="20")

    async def node_joins(self) -> None:
        if len(self._cluster.nodes()) < 2 * self._nodes_wanted:
            await self._cluster.create(self._node())

    async def node_fails(self) -> None:
        """A node goes and, after a while, the pods on it, as controllers would see to."""
        c = self._cluster
        nodes = c.nodes()
        if len(nodes) <= self._nodes_wanted // 2:
            return
        name = _name(self._rng.choice(nodes))
        await c.delete_node(name)
        await c.advance(self._rng.choice((0, 1, 40)))
        for pod in self.checkers.ledger.pods_on(name):
            await self._try(c.delete(pod.metadata.key, grace_seconds=0))

    async def _patch_a_node(self, patch: JsonObject, subresource: str = "") -> None:
        nodes = self._cluster.nodes()
        if nodes:
            name = _name(self._rng.choice(nodes))
            await self._cluster.patch_node(name, patch, subresource=subresource)

    async def cordon(self) -> None:
        await self._patch_a_node({"spec": {"unschedulable": True}})

    async def uncordon(self) -> None:
        await self._patch_a_node({"spec": {"unschedulable": None}})

    async def taint(self) -> None:
        taint = {"key": "maintenance", "effect": "NoSchedule"}
        await self._patch_a_node({"spec": {"taints": [taint]}})

    async def untaint(self) -> None:
        await self._patch_a_node({"spec": {"taints": None}})

    async def relabel(self) -> None:
        await self._patch_a_node({"metadata": {"labels": {ZONE: self._rng.choice(ZONES)}}})

    async def grow(self) -> None:
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "30"}
        await self._patch_a_node(
            {"status": {"allocatable": amounts, "capacity": amounts}}, "status"
        )

    # -- replicas -------------------------------------------------------------------------------

    async def _make_leader_busy(self) -> ElectedReplicas:
        """Let the leader be somewhere between its first and last write about some new pods."""
        assert self._replicas is not None
        rng = self._rng
        written = self._replicas.leader.wire.after_writes(rng.randint(1, 8))
        template = make_pod("burst").req(cpu="100m").annotation({RUN_SECONDS_ANNOTATION: "30"})
        await self._create_some(template, "burst", rng.randint(4, 12))
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await written
        for _ in range(rng.randint(0, 4)):
            await asyncio.sleep(0)
        return self._replicas

    async def leader_is_killed(self) -> None:
        """The other one takes over, or all are killed and new ones have to list everything."""
        replicas = await self._make_leader_busy()
        if self._rng.random() < 0.7:
            replicas.kill(replicas.leader)
        else:
            replicas.kill_all()

    async def leader_is_frozen(self) -> None:
        """After more than the lease duration it finds another one leading when it goes on."""
        replicas = await self._make_leader_busy()
        replicas.freeze(replicas.leader, self._rng.choice((3.0, 12.0, 18.0, 30.0)))

    async def leader_is_cut_off(self) -> None:
        """For a while no request comes through, or no answer, or it cannot renew its lease."""
        replicas = await self._make_leader_busy()
        rng = self._rng
        fault = rng.choice((Fault(hang=True), Fault(lose_response=True), Fault(delay_seconds=3.0)))
        resource = rng.choice(("", "leases"))
        replicas.cut_off(replicas.leader, fault, resource, rng.choice((5.0, 12.0, 18.0, 40.0)))

    async def leader_is_stopped(self) -> None:
        """SIGTERM: bindings that were sent may finish, then the lease is released."""
        replicas = await self._make_leader_busy()
        replicas.leader.stop()

    async def lease_hiccup(self) -> None:
        """Some requests for the lease go wrong, whoever sent them."""
        fault = self._rng.choice(
            (
                Fault(lose_response=True),
                Fault(hang=True),
                Fault(delay_seconds=4.0),
                Fault(answer=StatusError(409, "Conflict", "try")),
                Fault(answer=StatusError(500, "InternalError", "no")),
            )
        )
        rule = Rule(fault, resource="leases", times=self._rng.randint(1, 3))
        self._cluster.faults.rules.insert(0, rule)

    async def clock_is_set(self) -> None:
        """The leader's time of day jumps."""
        assert self._replicas is not None
        self._replicas.leader.clock.offset_seconds += self._rng.choice((-86400.0, -30.0, 30.0, 1e6))

    # -- weather --------------------------------------------------------------------------------

    async def storm(self) -> None:
        """For some minutes nothing the scheduler asks is answered as it should be."""
        fault = self._rng.choice(
            (
                Fault(answer=StatusError(503, "ServiceUnavailable", "storm")),
                Fault(
                    answer=StatusError(429, "TooManyRequests", "storm", {"retryAfterSeconds": 2})
                ),
                Fault(lose_response=True),
                Fault(hang=True),
            )
        )
        rules, rule = self._cluster.faults.rules, Rule(fault, times=None, chance=0.7)
        rules.insert(0, rule)

        def end() -> None:
            rules[:] = [other for other in rules if other is not rule]

        asyncio.get_running_loop().call_later(self._rng.uniform(5, STORM_SECONDS), end)

    async def hiccup(self) -> None:
        """One or two requests go wrong."""
        rng = self._rng
        # A leader gives up a bind when its lease may end, and the room is given back. One that is
        # performed after that overcommits a node, as it would with kube-scheduler.
        late_seconds = 20.0 if self._replicas is None else 1.5
        rule = rng.choice(
            (
                Rule(Fault(lose_response=True), "create", "pods/binding"),
                Rule(Fault(hang=True), "create", "pods/binding"),
                Rule(Fault(delay_seconds=late_seconds), "create", "pods/binding"),
                Rule(Fault(answer=StatusError(409, "Conflict", "try")), "create", "pods/binding"),
                Rule(
                    Fault(answer=StatusError(500, "InternalError", "no")), "create", "pods/binding"
                ),
                Rule(Fault(answer=StatusError(404, "NotFound", "gone")), "create", "pods/binding"),
                Rule(Fault(lose_response=True), "patch", "pods/status"),
                Rule(Fault(answer=StatusError(500, "InternalError", "no")), "create", "events"),
                Rule(Fault(stream_end=StreamEnd.RESET, stream_events=3), "watch", "pods"),
                Rule(Fault(stream_end=StreamEnd.EXPIRED, stream_events=5), "watch", "pods"),
                Rule(Fault(stream_end=StreamEnd.SILENT, stream_events=9), "watch", "pods"),
                Rule(Fault(stream_end=StreamEnd.CLOSED, stream_events=1), "watch", "nodes"),
                Rule(Fault(duplicate_events=True), "watch", "pods"),
                Rule(Fault(event_delay_seconds=1.5), "watch", "pods"),
            )
        )
        rule.times = rng.randint(1, 3)
        self._cluster.faults.rules.insert(0, rule)

    async def lose_watches(self) -> None:
        self._cluster.server.drop_watches()

    async def compact(self) -> None:
        """The server forgets its history: a watch that resumes is told to list again."""
        self._cluster.server.store.compact()
        self._cluster.server.drop_watches()

    def _clear_up(self) -> None:
        rules = self._cluster.faults.rules
        rules[:] = [rule for rule in rules if rule.times != 0]

    async def _try(self, request: Awaitable[None]) -> None:
        """The pod may have gone or been bound a moment ago."""
        try:
            await request
        except ApiError as error:
            log.debug("simulated user was refused", extra={"err": str(error)})


def _name(obj: JsonObject) -> str:
    name: str = obj["metadata"]["name"]
    return name

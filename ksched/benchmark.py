"""Scheduling throughput without a network: queue, cycle, assume and confirm in one process.

The pods of a workload are queued; each is popped, scheduled and assumed, and the watch event that
confirms it goes through the event handler, as in the daemon. A popped member of a gang brings the
others along, victims of preemption end at once, and pods held at Permit are allowed when all are
held; resource claims are confirmed like pods.
Nothing is decoded, bound or recorded: this measures the core. Against a real control plane:
``python -m bench`` and ``python -m bench.gangs``.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NoReturn

from msgspec import Struct, json
from msgspec.structs import replace

from ksched.api.devices import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceSlice,
)
from ksched.api.objects import Node, Pod
from ksched.cache.pod_info import PodInfo
from ksched.clock import stopwatch
from ksched.configuration.gated_plugins import (
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
    enable_gated_plugins,
)
from ksched.configuration.loading import load_config
from ksched.configuration.model import SchedulerConfiguration
from ksched.daemon.garbage_collection import freeze_existing_objects
from ksched.devices.claim_store import ClaimStore
from ksched.framework import Resource
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.handle import EventRecorder
from ksched.framework.plugins import names
from ksched.framework.plugins.dynamic_resources.attempt import Attempt
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.groups.group import Group
from ksched.metrics import Metrics
from ksched.scheduling.assembly import make_group_cycle
from ksched.scheduling.event_handlers import ListerHandler
from ksched.scheduling.group_cycle import GroupCycle
from ksched.scheduling.preemption_executor import Preemptor
from ksched.scheduling.scheduler import Scheduler
from ksched.scheduling.scheduling_cycle import Placed, Rejected, SchedulingCycle
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.device_builders import ResourceClaimBuilder
from ksched.testing.device_workloads import DEVICE_WORKLOADS
from ksched.testing.gang_workloads import GANGS, HOLDING, RACK, Gangs, Hold

HOSTNAME: Final = "kubernetes.io/hostname"
NODES_PER_RACK: Final = 50
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
ZONES: Final = 10
ANTI_AFFINITY_GROUP: Final = 200
SLICE: Final = 1000
"""Size of the slices of decisions at the beginning and at the end that are compared."""

_IN_ZONES: Final = (ZONE, "In", ("zone-1", "zone-2", "zone-3"))

Shape = Callable[[PodBuilder, int, dict[str, str]], PodBuilder]


class Figures(Struct, frozen=True):
    """The measurements of one workload."""

    workload: str
    nodes: int
    pods: int
    wanted: int
    """How many of them fit."""
    placed: int
    decisions_per_second: float
    cpu_micros_per_decision: float
    rows_per_decision: float
    """Nodes passed to plugins, all plugins together."""
    first_micros: float
    """CPU per decision in the first slice, which fills the caches, ..."""
    last_micros: float
    """... and in the last, which shows growth."""
    longest_ms: float
    """The longest time that a gang's decision did not yield to the event loop; 0 without gangs."""
    undone: int
    """Placements of members that were undone because their gang did not fit."""
    peak_rss_mb: float


def _spread(when_unsatisfiable: str) -> Shape:
    return lambda pod, number, app: pod.spread(
        ZONE, app, max_skew=5, when_unsatisfiable=when_unsatisfiable
    )


def _anti_affinity(pod: PodBuilder, number: int, app: dict[str, str]) -> PodBuilder:
    group = {"grp": f"g{number // ANTI_AFFINITY_GROUP}"}
    return pod.label(group).pod_anti_affinity(HOSTNAME, group)


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "basic": lambda pod, number, app: pod,
        "spread": _spread("DoNotSchedule"),
        "prefspread": _spread("ScheduleAnyway"),
        "affinity": lambda pod, number, app: pod.pod_affinity(REGION, app),
        "prefaffinity": lambda pod, number, app: pod.pod_affinity(ZONE, app, weight=10),
        "antiaffinity": _anti_affinity,
        "nodeaffinity": lambda pod, number, app: pod.required_node_affinity(_IN_ZONES),
    }
)
MIXED: Final = ("basic", "spread", "affinity", "nodeaffinity", "prefaffinity")


WORKLOADS: Final = (*SHAPES, "mixed", *GANGS, *DEVICE_WORKLOADS)


def make_workload_pod(number: int, workload: str) -> PodBuilder:
    """Build pod ``number`` of a workload: 100m and 500Mi, and what the workload is about."""
    shape = MIXED[number % len(MIXED)] if workload == "mixed" else workload
    pod = make_pod(f"p-{shape}-{number:06d}").req(cpu="100m", memory="500Mi")
    pod = pod.label(app=shape, color=f"c{number % 5}")
    if shape in DEVICE_WORKLOADS:
        body = pod.to_dict()
        DEVICE_WORKLOADS[shape].add_to_pod(body, number)
        return PodBuilder({**body, "status": DEVICE_WORKLOADS[shape].pod_status(body)})
    return SHAPES[shape](pod, number, {"app": shape})


def make_workload_node(number: int, *, is_racked: bool = False) -> Node:
    """Build node ``number``: 32 cores; every second has an SSD, every third some images."""
    node = make_node(f"node-{number:05d}").capacity(cpu="32", memory="256Gi", pods="110")
    labels = {ZONE: f"zone-{number % ZONES}", REGION: "r0", "disk": ("hdd", "ssd")[number % 2]}
    node = node.label(labels)
    node = node.label({RACK: f"rack-{number // NODES_PER_RACK}"}) if is_racked else node
    if number % 3 == 0:
        for image in range(3):
            node = node.image(f"bench.example/img-{image}:v1", 50_000_000 * (image + 1))
    return node.obj()


async def measure(workload: str, nodes: int, pods: int, seed: int = 0) -> Figures:
    """Schedule a workload on a cluster of its own."""
    gangs = GANGS.get(workload)
    bench = _bench(workload, nodes, pods, seed)
    await bench.begin()
    for number in range(pods):
        if gangs is None:
            pod = make_workload_pod(number, workload).obj()
        elif gangs.are_singles_beside:
            pod = make_workload_pod(number, "basic").obj()
        else:
            pod = gangs.pod(number, pods)
        bench.scheduler.pods.added(pod)
    # As in the daemon: existing objects are frozen, so that collections skip them.
    before = gc.get_threshold()
    freeze_existing_objects()
    part = min(SLICE, max(1, pods // 2))
    began, marks, done = stopwatch(), {0: time.process_time()}, 0
    while done < pods:
        before_it, done = done, done + await bench.schedule_one()
        for mark in (part, pods - part, pods):
            if before_it < mark <= done:
                marks[mark] = time.process_time()
    seconds = stopwatch() - began
    gc.unfreeze()
    gc.set_threshold(*before)
    return Figures(
        workload=workload,
        nodes=nodes,
        pods=pods,
        wanted=pods if gangs is None or gangs.fits else 0,
        placed=bench.placed,
        decisions_per_second=pods / seconds,
        cpu_micros_per_decision=(marks[pods] - marks[0]) / pods * 1e6,
        rows_per_decision=bench.rows_asked() / pods,
        first_micros=(marks[part] - marks[0]) / part * 1e6,
        last_micros=(marks[pods] - marks[pods - part]) / part * 1e6,
        longest_ms=1000 * bench.longest_seconds,
        undone=int(bench.metrics.group_undone_placements.value()),
        peak_rss_mb=_peak_rss_mb(),
    )


class CoreBench:
    """A scheduler for which the benchmark itself plays the API server."""

    def __init__(
        self,
        nodes: int,
        seed: int,
        configuration: SchedulerConfiguration | None = None,
        *,
        is_racked: bool = False,
    ) -> None:
        self.scheduler = Scheduler(
            _NoTransport(), configuration, registry={Hold.name: Hold}, seed=seed
        )
        self.metrics = Metrics()
        self.placed = 0
        self.longest_seconds = 0.0
        self._cycle = SchedulingCycle(
            cache=self.scheduler.cache,
            profiles=self.scheduler.profiles,
            nominator=self.scheduler.nominator,
            waiting=self.scheduler.waiting,
            permit_calls=self.scheduler.permit_calls,
            rng=random.Random(seed),
            unexpected_errors=self.scheduler.unexpected_errors,
        )
        for number in range(nodes):
            self.scheduler.nodes.added(make_workload_node(number, is_racked=is_racked))
        self.scheduler.cache.update_snapshot()

    async def begin(self) -> None:
        """Do what happens before the pods come."""

    async def schedule_one(self) -> int:
        """Run one attempt; return for how many pods."""
        queued = await self.scheduler.queue.pop()
        assert queued is not None
        return await self._attempt(queued)

    async def _attempt(self, queued: QueuedPodInfo) -> int:
        self._end(await self._cycle.run(queued))
        return 1

    def _end(self, outcome: Placed | Rejected) -> None:
        queue, queued = self.scheduler.queue, outcome.queued
        if isinstance(outcome, Placed):
            self.placed += 1
            queue.done(queued.uid)
            before = queued.pod.pod
            self.scheduler.pods.modified(before, _bound(before, outcome.node_name))
        else:
            diagnosis = outcome.diagnosis or Diagnosis(0)
            queue.add_unschedulable_if_not_present(
                queued,
                diagnosis.unschedulable_plugins,
                shared_wait=diagnosis.shared_wait,
                is_judged_alike=diagnosis.holds_for_template,
            )

    def rows_asked(self) -> int:
        return sum(profile.pipeline.work.rows for profile in self.scheduler.profiles.values())


def _bench(workload: str, nodes: int, pods: int, seed: int) -> CoreBench:
    if workload in GANGS:
        return _GangBench(nodes, pods, seed, GANGS[workload])
    if workload in DEVICE_WORKLOADS:
        return _DeviceBench(nodes, seed, workload, pods)
    return CoreBench(nodes, seed)


class _DeviceBench(CoreBench):
    """The same for pods with devices; also plays who writes their claims."""

    def __init__(self, nodes: int, seed: int, workload: str, pods: int) -> None:
        shape = self._shape = DEVICE_WORKLOADS[workload]
        super().__init__(nodes, seed, load_config(json.encode(shape.configuration).decode()))
        listers = self.scheduler.listers
        for one in shape.classes:
            listers.require(DeviceClass).put(one.obj())
        names_of_nodes = [f"node-{number:05d}" for number in range(nodes)]
        self._slices = [each.obj() for each in shape.slices(names_of_nodes, pods)]
        for published in self._slices:
            listers.require(ResourceSlice).put(published)
        claims = listers.require(ResourceClaim)
        for claim in shape.claims(names_of_nodes, pods):
            claims.put(claim.obj())
        for number in range(pods):
            own = shape.own_claim(make_workload_pod(number, workload).to_dict())
            if own is not None:
                claims.put(ResourceClaimBuilder(own).obj())
        self._claims = listers.view(ClaimStore)
        queue = self.scheduler.queue
        self._claim_events = ListerHandler(
            lister=claims, queue=queue, resource=Resource.RESOURCE_CLAIM
        )
        self._slice_events = ListerHandler(
            lister=listers.require(ResourceSlice), queue=queue, resource=Resource.RESOURCE_SLICE
        )
        self._running: deque[tuple[Pod, list[ResourceClaim]]] = deque()
        """In a steady cluster, pods that will be deleted and their claims."""

    async def _attempt(self, queued: QueuedPodInfo) -> int:
        if self._shape.republished_per_second:
            self._republish()
        return await super()._attempt(queued)

    def _end(self, outcome: Placed | Rejected) -> None:
        if isinstance(outcome, Placed):
            self._confirm_claims(outcome)
        super()._end(outcome)
        if self._shape.at_once and len(self._running) > self._shape.at_once:
            self._delete_oldest()

    def _republish(self) -> None:
        """A driver publishes the next slice anew."""
        at = self.placed % len(self._slices)
        before = self._slices[at]
        pool = replace(before.spec.pool, generation=before.spec.pool.generation + 1)
        self._slices[at] = replace(before, spec=replace(before.spec, pool=pool))
        self._slice_events.modified(before, self._slices[at])

    def _delete_oldest(self) -> None:
        pod, claims = self._running.popleft()
        self.scheduler.pods.deleted(pod)
        for claim in claims:
            self._claim_events.deleted(claim)

    def _confirm_claims(self, placed: Placed) -> None:
        """Deliver the claims as PreBind would have written them."""
        attempt, pod = placed.state.read(names.DYNAMIC_RESOURCES, Attempt), placed.pod
        consumer = ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
        written: list[ResourceClaim] = []
        for position, claim in enumerate(attempt.claims):
            status, meta = claim.status, claim.metadata
            allocation = attempt.allocations.get(position, status.allocation)
            users = [*status.reserved_for, consumer]
            status = replace(status, allocation=allocation, reserved_for=users)
            if self._claims.get(meta.name, meta.namespace) is claim:
                written.append(replace(claim, status=status))
                self._claim_events.modified(claim, written[-1])
            else:
                named = replace(meta, name=f"{pod.name}-extended-resources")
                self._claim_events.added(replace(claim, metadata=named, status=status))
            self._claims.remove_in_flight(meta.uid)
        if self._shape.at_once:
            self._running.append((_bound(pod.pod, placed.node_name), written))


class _GangBench(CoreBench):
    """The same for gangs; also plays whoever ends the victims."""

    def __init__(self, nodes: int, pods: int, seed: int, gangs: Gangs) -> None:
        gates = {GENERIC_WORKLOAD: True, GANG_SCHEDULING: True}
        configuration = load_config(HOLDING) if gangs.is_held else SchedulerConfiguration()
        configuration = enable_gated_plugins(configuration, gates)
        super().__init__(nodes, seed, configuration, is_racked=gangs.in_rack)
        self._gangs, self._pods = gangs, pods
        self._victims: list[PodInfo] = []
        self._held: list[Placed] = []
        scheduler = self.scheduler
        for pod in gangs.running(nodes):
            scheduler.pods.added(pod)
        scheduler.cache.update_snapshot()
        self._group_cycle: GroupCycle = make_group_cycle(
            cache=scheduler.cache,
            cycle=self._cycle,
            groups=scheduler.groups,
            pending=scheduler.pending,
            nominator=scheduler.nominator,
            waiting=scheduler.waiting,
            executor=self,
            status=scheduler.pod_status,
            clock=scheduler.clock,
            unexpected_errors=scheduler.unexpected_errors,
            metrics=self.metrics,
        )

    async def begin(self) -> None:
        refused = list(self._gangs.refused(self._pods))
        for pod in refused:
            self.scheduler.pods.added(pod)
        for _ in range(len(refused) // self._gangs.size if refused else 0):
            await self.schedule_one()

    async def _attempt(self, queued: QueuedPodInfo) -> int:
        scheduler, leader = self.scheduler, queued
        group = scheduler.groups.to_decide(leader.uid)
        if group is None:
            return await super()._attempt(queued)
        async with asyncio.TaskGroup() as tasks:
            probing = tasks.create_task(self._probe())
            await asyncio.sleep(0)
            decided = await self._decide(group, leader)
            probing.cancel()
        for victim in self._victims:
            scheduler.pods.deleted(victim.pod)
        is_repeated = bool(self._victims) or self._gangs.are_singles_beside
        self._victims = []
        return 0 if is_repeated else decided

    async def _decide(self, group: Group, leader: QueuedPodInfo) -> int:
        siblings = [member.pod.uid for member in group.available()]
        members = [leader, *self.scheduler.queue.take(leader, siblings)]
        decision = await self._group_cycle.run(group, members)
        await asyncio.sleep(0)
        for rejected in decision.rejected:
            self.scheduler.nominator.add(rejected.queued.pod, rejected.nominated_node_name or "")
            self._end(rejected)
        if self._gangs.is_held:
            self._held += decision.placed
        placed = self._allowed() if self._gangs.is_held else decision.placed
        for one in placed:
            self._end(one)
        return len(members)

    def _allowed(self) -> Sequence[Placed]:
        """Allow the pods that are held, once all are."""
        if len(self._held) < self._pods:
            return ()
        waiting = self.scheduler.waiting
        for one in self._held:
            held = waiting.get(one.pod.uid)
            assert held is not None
            held.allow(Hold.name)
            waiting.discard(one.pod.uid)
        return self._held

    async def _probe(self) -> None:
        while True:
            began = stopwatch()
            await asyncio.sleep(0)
            self.longest_seconds = max(self.longest_seconds, stopwatch() - began)

    # -- evictions --------------------------------------------------------------------------------

    def is_preempting(self, uid: str) -> bool:
        return False

    def start(
        self,
        preemptor: Preemptor,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None:
        self._victims += victims


class _NoTransport:
    """There is no API server."""

    telemetry = None

    def __getattr__(self, name: str) -> NoReturn:
        raise NotImplementedError(f"the benchmark has no API server to {name}")


def _bound(pod: Pod, node_name: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node_name))


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / (1 << 10)

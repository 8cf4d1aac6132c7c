"""The composition root: builds the parts, owns the tasks, and defines the order of shutdown.

::

    async with Scheduler(transport) as scheduler:
        ...                       # pods are being scheduled

``watch`` fills the cache and may run on every replica; ``schedule`` runs only on the leader.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from ksched.api.decoding import decode_pod_in_steps
from ksched.api.resources import NODES, PODS
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.client.rate_limit import RateLimiter
from ksched.client.recorder import ProfileRecorder
from ksched.client.rest import ApiClient, Selection
from ksched.clock import Clock, LoopClock
from ksched.configuration.expansion import ignore_extender_resources
from ksched.configuration.model import SchedulerConfiguration
from ksched.election.fence import WriteFence
from ksched.extenders.chain import build_extenders
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.runtime import registry as registries
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.pipeline import Pipeline
from ksched.framework.runtime.plugin_tasks import PluginLives
from ksched.framework.runtime.pre_binding import PreBindingPods
from ksched.framework.runtime.profiles import MakePipeline
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.groups.registry import Groups
from ksched.metrics import Metrics
from ksched.queue.activations import Activations
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.queue.places import Observer
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.assembly import (
    BuildProfiles,
    MakeTables,
    forget_answers,
    make_group_cycle,
    make_queue,
    make_recorder,
    plugins_with_handles,
    pods_are_listed,
    profile_builder,
    queue_tables,
    read_pod,
    read_preemptor,
    server_is_busy,
    watch_listers,
)
from ksched.scheduling.attempts import Attempts
from ksched.scheduling.binding_cycle import MAX_CONCURRENT_BINDS, BindingCycle
from ksched.scheduling.binding_tasks import BindingTasks
from ksched.scheduling.decisions import DecisionLog
from ksched.scheduling.event_handlers import NodeHandler, PodHandler
from ksched.scheduling.failure_handler import FailureHandler
from ksched.scheduling.finished_members import FinishedMembers
from ksched.scheduling.flushing import Flusher
from ksched.scheduling.gate_reports import GateReports
from ksched.scheduling.group_admission import GroupAdmission
from ksched.scheduling.group_cycle import GroupCycle
from ksched.scheduling.group_status import GroupStatusUpdater
from ksched.scheduling.pod_status import PodStatusUpdater
from ksched.scheduling.preemption_executor import PreemptionExecutor, Preemptors
from ksched.scheduling.reloading import Reload, Reloading
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.scheduling.sweeping import Sweeper
from ksched.scheduling.watches import Watches
from ksched.transport import Guard, Transport
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

NOT_TERMINAL = Selection(field_selector="status.phase!=Succeeded,status.phase!=Failed")
DRAIN_SECONDS = 10.0


class Scheduler:
    """A kube-scheduler on one API server.

    ``registry`` adds out-of-tree plugins to the in-tree ones and those of installed packages. The
    same ``seed`` with the same events gives the same choices. A ``fence`` blocks writes that only a
    leader may do; Events are not fenced. ``make_pipeline`` may provide a pipeline that verifies the
    plugins' declarations (``framework.runtime.declaration_checks``).
    """

    def __init__(
        self,
        transport: Transport,
        configuration: SchedulerConfiguration | None = None,
        *,
        registry: registries.Registry | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        pod_max_in_unschedulable_seconds: float = 60.0,
        assume_ttl_seconds: float = 0.0,
        observer: Observer | None = None,
        metrics: Metrics | None = None,
        fence: WriteFence | None = None,
        make_pipeline: MakePipeline = Pipeline,
    ) -> None:
        configuration = ignore_extender_resources(configuration or SchedulerConfiguration())
        self.clock = clock or LoopClock()
        self.metrics = metrics or Metrics()
        self.unexpected_errors = UnexpectedErrors(self.metrics)
        # Two generators: timing of the network must not change the choices.
        network, choices = random.Random(seed), random.Random(seed)
        self.cache = SchedulerCache(self.clock.now, assume_ttl_seconds)
        self.listers = Listers()
        self.pending = PendingPods()
        self.nominator = Nominator()
        self.waiting = WaitingPods()
        self.decisions = DecisionLog()
        activations, pre_binding = Activations(), PreBindingPods()
        bind_slots = asyncio.Semaphore(MAX_CONCURRENT_BINDS)
        guard: Guard = fence.guard if fence else lambda transport: transport
        connection = configuration.client_connection
        limiter = RateLimiter(connection.qps, connection.burst, self.clock)
        self.client = ApiClient(guard(transport), self.clock, limiter, network)
        is_busy = server_is_busy(self.client, limiter, bind_slots)
        self.recorder = make_recorder(
            transport=transport,
            connection=connection,
            clock=self.clock,
            rng=network,
            gives_way=is_busy,
        )
        self.extenders = build_extenders(configuration.extenders, self.clock, guard)
        self.pod_status = PodStatusUpdater(self.client, self.clock, self.unexpected_errors, is_busy)
        self.permit_calls = PermitCalls(activations.activate)
        self.groups = self._make_groups(activations)
        self.preemption = self._make_preemption(configuration, pre_binding, activations)
        self.registry: registries.Registry
        self.registry = registries.merge(IN_TREE, registries.installed(), registry or {})
        build = profile_builder(self, connection, choices, activations, make_pipeline)
        self.profiles = build(configuration)
        self.plugin_lives = PluginLives(plugins_with_handles(self.profiles))
        tables = self._queue_tables()
        self.queue = self._make_queue(
            configuration, tables, activations, pod_max_in_unschedulable_seconds, observer
        )
        self.nodes = NodeHandler(cache=self.cache, queue=self.queue)
        self.pods = self._make_pod_handler()
        self.watches = self._make_watches(network)
        self._profile_recorder = ProfileRecorder(self.recorder)
        self._failures = self._make_failure_handler()
        self.cycle = self._make_cycle(choices)
        group_cycle = self._make_group_cycle()
        binding = self._make_binding(pre_binding, bind_slots)
        self._attempts = self._make_attempts(binding, group_cycle)
        self.reloading = self._make_reloading(configuration, build, tables, group_cycle)
        self._expires_assumed = assume_ttl_seconds > 0
        self._drain = anyio.CancelScope()
        self._is_draining = False
        self._end_of_holds: asyncio.TimerHandle | None = None
        self._tasks: anyio.abc.TaskGroup | None = None

    # Each part is built after those it depends on: ``__init__`` calls these in that order.

    def _make_preemption(
        self,
        configuration: SchedulerConfiguration,
        pre_binding: PreBindingPods,
        activations: Activations,
    ) -> PreemptionExecutor:
        read = partial(read_preemptor, self.client, self.pod_status)
        preemptors = Preemptors(pending=self.pending, read_pod=read)
        return PreemptionExecutor(
            client=self.client,
            cache=self.cache,
            nominator=self.nominator,
            waiting=self.waiting,
            pre_binding=pre_binding,
            status=self.pod_status,
            clock=self.clock,
            metrics=self.metrics,
            activate=activations.activate,
            preemptors=preemptors,
            unexpected_errors=self.unexpected_errors,
            parallelism=configuration.parallelism,
        )

    def _make_queue(
        self,
        configuration: SchedulerConfiguration,
        tables: MakeTables,
        activations: Activations,
        pod_max_in_unschedulable_seconds: float,
        observer: Observer | None,
    ) -> SchedulingQueue:
        return make_queue(
            configuration=configuration,
            profiles=self.profiles,
            tables=tables(self.profiles),
            clock=self.clock,
            pending=self.pending,
            nominator=self.nominator,
            activations=activations,
            status=self.pod_status,
            pod_max_in_unschedulable_seconds=pod_max_in_unschedulable_seconds,
            observer=observer,
            metrics=self.metrics,
        )

    def _queue_tables(self) -> MakeTables:
        shared = (self.listers, self.pod_status, self.gate_reports, self.extenders)
        return partial(queue_tables, *shared)

    def _make_groups(self, activations: Activations) -> Groups:
        groups = self.listers.view(Groups)
        groups.wake, groups.wall = activations.activate, self.clock.wall
        shared = (groups, self.clock, self.unexpected_errors)
        self.group_status = GroupStatusUpdater(self.client, *shared)
        self.finished_members = FinishedMembers(self.client, *shared)
        self._group_admission = GroupAdmission(self.cache, *shared)
        self.gate_reports = GateReports(self.pod_status, groups, self.pending, self.clock)
        groups.regated = self.gate_reports.changed
        groups.changed, groups.ends_unknown = self.group_status.changed, self.finished_members.need
        return groups

    def _make_pod_handler(self) -> PodHandler:
        # All plugins are built: those that read groups have registered their dialects.
        groups = self.groups if self.groups.is_on else None
        self.groups.scheduler_names = frozenset(self.profiles)
        self.cache.listener = groups
        return PodHandler(
            cache=self.cache,
            pending=self.pending,
            queue=self.queue,
            waiting=self.waiting,
            status=self.pod_status,
            scheduler_names=self.profiles,
            clock=self.clock,
            groups=groups,
        )

    def _make_watches(self, rng: random.Random) -> Watches:
        """kube-scheduler: addAllEventHandlers."""
        watches = Watches(
            client=self.client,
            clock=self.clock,
            rng=rng,
            unexpected_errors=self.unexpected_errors,
            on_history_lost=partial(
                forget_answers, self.pod_status, self.group_status, self.listers
            ),
        )
        watches.add(NODES, self.extenders.node_decoder(), self.nodes)
        decode_pod = self.extenders.pod_decoder(self.profiles)
        self.pod_reflector = watches.add(
            PODS,
            decode_pod,
            self.pods,
            NOT_TERMINAL,
            partial(pods_are_listed, self.cache, self.pods, self.preemption),
            decode_in_steps=partial(decode_pod_in_steps, decode_pod),
        )
        watch_listers(watches, self.listers, self.queue)
        return watches

    def _make_cycle(self, choices: random.Random) -> SchedulingCycle:
        return SchedulingCycle(
            cache=self.cache,
            profiles=self.profiles,
            nominator=self.nominator,
            waiting=self.waiting,
            permit_calls=self.permit_calls,
            rng=choices,
            unexpected_errors=self.unexpected_errors,
            extenders=self.extenders,
        )

    def _make_binding(
        self, pre_binding: PreBindingPods, bind_slots: asyncio.Semaphore
    ) -> BindingCycle:
        return BindingCycle(
            cache=self.cache,
            queue=self.queue,
            waiting=self.waiting,
            pre_binding=pre_binding,
            failures=self._failures,
            recorder=self._profile_recorder,
            status=self.pod_status,
            clock=self.clock,
            read_pod=partial(read_pod, self.client),
            slots=bind_slots,
            unexpected_errors=self.unexpected_errors,
            extenders=self.extenders,
        )

    def _make_failure_handler(self) -> FailureHandler:
        return FailureHandler(
            queue=self.queue,
            pending=self.pending,
            recorder=self._profile_recorder,
            status=self.pod_status,
            unexpected_errors=self.unexpected_errors,
        )

    def _make_group_cycle(self) -> GroupCycle:
        return make_group_cycle(
            cache=self.cache,
            cycle=self.cycle,
            groups=self.groups,
            pending=self.pending,
            nominator=self.nominator,
            waiting=self.waiting,
            executor=self.preemption,
            status=self.pod_status,
            clock=self.clock,
            unexpected_errors=self.unexpected_errors,
            metrics=self.metrics,
        )

    def _make_attempts(self, binding: BindingCycle, group_cycle: GroupCycle) -> Attempts:
        return Attempts(
            cache=self.cache,
            queue=self.queue,
            pending=self.pending,
            waiting=self.waiting,
            groups=self.groups,
            cycle=self.cycle,
            group_cycle=group_cycle,
            binding=binding,
            failures=self._failures,
            decisions=self.decisions,
            recorder=self._profile_recorder,
            clock=self.clock,
            metrics=self.metrics,
        )

    def _make_reloading(
        self,
        configuration: SchedulerConfiguration,
        build: BuildProfiles,
        tables: MakeTables,
        group_cycle: GroupCycle,
    ) -> Reloading:
        return Reloading(
            configuration=configuration,
            profiles=self.profiles,
            build=build,
            tables=tables,
            lives=self.plugin_lives,
            permit_calls=self.permit_calls,
            queue=self.queue,
            pending=self.pending,
            cache=self.cache,
            listers=self.listers,
            cycle=self.cycle,
            group_cycle=group_cycle,
            clock=self.clock,
            metrics=self.metrics,
        )

    # -- running --------------------------------------------------------------------------------

    @property
    def configuration(self) -> SchedulerConfiguration:
        """What decides now."""
        return self.reloading.configuration

    async def watch(self) -> None:
        """Keep cache and queue up to date with the API server until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.recorder.run, name="record events")
            await self.watches.run()

    @property
    def is_synced(self) -> bool:
        """Whether every watch has delivered a complete list."""
        return self.watches.is_synced

    async def wait_synced(self) -> None:
        """Wait until every watch has delivered a complete list (WaitForHandlersSync)."""
        await self.watches.wait_synced()

    async def schedule(self) -> None:
        """Schedule pods until cancelled, or until a ``drain`` has finished."""
        await self.wait_synced()
        self.decisions.open()
        try:
            async with anyio.create_task_group() as tasks:
                flusher = Flusher(
                    queue=self.queue,
                    pods=self.pods,
                    pending=self.pending,
                    cache=self.cache,
                    clock=self.clock,
                    expires_assumed=self._expires_assumed,
                )
                tasks.start_soon(flusher.run, name="flush")
                tasks.start_soon(self.pod_status.run, name="update pod status")
                tasks.start_soon(self.preemption.run, name="preempt")
                tasks.start_soon(self.reloading.run, name="stop replaced plugins")
                if self.groups.is_on:
                    tasks.start_soon(self.group_status.run, name="update group status")
                    tasks.start_soon(self.finished_members.run, name="count finished members")
                    tasks.start_soon(self.gate_reports.run, name="report gates")
                if self.groups.admits:
                    tasks.start_soon(self._group_admission.run, name="admit groups")
                sweeper = Sweeper(
                    cache=self.cache,
                    cycle=self.cycle,
                    profiles=self.profiles.values(),
                    clock=self.clock,
                )
                tasks.start_soon(sweeper.run, name="sweep")
                with anyio.CancelScope() as self._drain:
                    await self.plugin_lives.start()
                    async with BindingTasks() as bindings:
                        while (queued := await self.queue.pop()) is not None:
                            await self._attempts.schedule_one(queued, bindings)
                            # While there is no next pod, the last one would stay in memory.
                            del queued
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.permit_calls.aclose()
                await self.plugin_lives.stop()
                await self.extenders.aclose()
            self.decisions.close()
            if self._end_of_holds is not None:
                self._end_of_holds.cancel()

    async def reload(self, configuration: SchedulerConfiguration) -> Reload:
        """Let another configuration decide from the next attempt on.

        Raises ``ConfigError`` and changes nothing if it is wrong, or needs a restart.
        """
        return await self.reloading.reload(configuration)

    async def run(self) -> None:
        """Watch and schedule until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch, name="watch")
            await self.schedule()
            await self.recorder.flush(timeout=2.0)
            tasks.cancel_scope.cancel()

    def drain(self, deadline_seconds: float = DRAIN_SECONDS, *, held_seconds: float = 0.0) -> None:
        """Start no new attempts, let running bindings finish by a deadline, then end ``schedule``.

        Pods held at Permit get at most ``held_seconds``: what they wait for may never come, or may
        depend on pods that are no longer scheduled.
        """
        self._is_draining = True
        self.queue.close()
        if held_seconds > 0:
            loop = asyncio.get_running_loop()
            self._end_of_holds = loop.call_later(held_seconds, self.waiting.close)
        else:
            self.waiting.close()
        self._drain.deadline = anyio.current_time() + held_seconds + deadline_seconds

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self.run, name="scheduler")
        try:
            await self.wait_synced()
        except BaseException as problem:
            await self.__aexit__(type(problem), problem, problem.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain, unless the block did so; after an exception in the block, do not wait.

        The exception propagates unchanged.
        """
        assert self._tasks is not None
        if not self._is_draining:
            self.drain()
        if error is None or isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)

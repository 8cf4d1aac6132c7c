"""The composition root: builds the parts, owns the tasks, and knows in which order to stop.

::

    async with Scheduler(transport) as scheduler:
        ...                       # pods are being scheduled

``watch`` keeps the cache warm and may run on every replica; ``schedule`` is the leader's work.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from socket import gethostname
from types import TracebackType
from typing import Self

import anyio
from msgspec import Raw

from ksched.api.decoding import decode_pod, decoder
from ksched.api.objects import Pod
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.cache.storage.volumes import Volumes
from ksched.client.rate_limit import RateLimiter
from ksched.client.recorder import EventRecorder, ProfileRecorder
from ksched.client.rest import ApiClient, Selection
from ksched.client.watched_resources import NODES, PODS, RESOURCES
from ksched.clock import Clock, LoopClock, stopwatch
from ksched.configuration.merging import ignore_extender_resources
from ksched.configuration.model import SchedulerConfiguration
from ksched.election.fence import WriteFence
from ksched.extenders.chain import build_extenders
from ksched.extenders.extender import EXTENDER
from ksched.extenders.http_client import Guard
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime import registry as registries
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.pre_binding import PreBindingPods
from ksched.framework.runtime.profiles import (
    FrameworkHandle,
    Profile,
    Surroundings,
    build_profiles,
)
from ksched.framework.runtime.queue_sort import rank, sort_key
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import Status
from ksched.metrics import Metrics
from ksched.queue.hints import Registration, registrations, registrations_without_hints
from ksched.queue.nominator import Nominator
from ksched.queue.places import Observer
from ksched.queue.scheduling_queue import (
    BACKOFF_FLUSH_SECONDS,
    UNSCHEDULABLE_FLUSH_SECONDS,
    SchedulingQueue,
)
from ksched.scheduling.binding_cycle import BindingCycle
from ksched.scheduling.binding_tasks import BindingTasks
from ksched.scheduling.decisions import Decision, DecisionLog, Result
from ksched.scheduling.event_handlers import (
    EVENT_RESOURCES,
    REMOVED,
    ListerHandler,
    NodeHandler,
    PodHandler,
)
from ksched.scheduling.failure_handler import SCHEDULER_ERROR, FailureHandler
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.scheduling.preemption_executor import PreemptionExecutor, Preemptors
from ksched.scheduling.scheduling_cycle import Placed, Rejected, SchedulingCycle
from ksched.scheduling.sweeping import Sweeper
from ksched.scheduling.watches import Watches
from ksched.transport import Transport
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

NOT_TERMINAL = Selection(field_selector="status.phase!=Succeeded,status.phase!=Failed")
EXPIRY_CHECK_SECONDS = 1.0
DRAIN_SECONDS = 10.0


class Scheduler:
    """A kube-scheduler on one API server.

    ``registry`` adds out-of-tree plugins to the in-tree ones and to those of installed packages.
    The same ``seed`` on the same events makes the same choices. A ``fence`` keeps back what only
    a leader may write; Events are no decisions and pass.
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
    ) -> None:
        configuration = ignore_extender_resources(configuration or SchedulerConfiguration())
        self.configuration = configuration
        self.clock = clock or LoopClock()
        rng = random.Random(seed)
        connection = configuration.client_connection
        limiter = RateLimiter(connection.qps, connection.burst, self.clock)
        guard: Guard = fence.guard if fence else lambda transport: transport
        self.client = ApiClient(guard(transport), self.clock, limiter, rng)
        self.recorder = self._make_recorder(transport, limiter, rng)
        self.cache = SchedulerCache(self.clock.now, assume_ttl_seconds)
        self.listers = Listers()
        self.waiting = WaitingPods()
        self.permit_calls = PermitCalls(self._activate)
        self.nominator = Nominator()
        self.decisions = DecisionLog()
        self.extenders = build_extenders(configuration.extenders, self.clock, guard)
        metrics = metrics or Metrics()
        self.unexpected_errors = UnexpectedErrors(metrics)
        self.pod_status = PodStatusUpdater(self.client, self.clock, self.unexpected_errors)
        pre_binding = PreBindingPods()
        self.preemption = self._make_preemption(pre_binding, metrics)
        # Its own generator: what the network did must not change the choices.
        choices = random.Random(seed)
        self.profiles = self._make_profiles(registry or {}, choices, metrics)
        self.queue = self._make_queue(pod_max_in_unschedulable_seconds, observer)
        recorder = ProfileRecorder(self.recorder)
        books = self.cache, self.queue, self.waiting, self.pod_status
        self.pods = PodHandler(*books, self.profiles, self.clock)
        self.nodes = NodeHandler(self.cache, self.queue)
        self.watches = self._make_watches(rng)
        failures = FailureHandler(
            self.queue, self.pods.latest, recorder, self.pod_status, self.unexpected_errors
        )
        self._failures, self._profile_recorder = failures, recorder
        self._cycle = self._make_cycle(choices)
        self._binding = BindingCycle(
            self.cache,
            self.queue,
            self.waiting,
            pre_binding,
            failures,
            recorder,
            self.pod_status,
            self.clock,
            self._read_pod,
            self.unexpected_errors,
            self.extenders,
        )
        self._expires_assumed = assume_ttl_seconds > 0
        self._drain = anyio.CancelScope()
        self._tasks: anyio.abc.TaskGroup | None = None

    def _make_recorder(
        self, transport: Transport, limiter: RateLimiter, rng: random.Random
    ) -> EventRecorder:
        connection = self.configuration.client_connection
        own_limiter = RateLimiter(connection.qps, connection.burst, self.clock)
        return EventRecorder(
            ApiClient(transport, self.clock, own_limiter, rng),
            self.clock,
            hostname=gethostname(),
            rng=rng,
            # Binds that only wait for our own rate limit keep nobody busy.
            gives_way=lambda: self._binding.is_busy and not limiter.waiting,
        )

    def _make_cycle(self, choices: random.Random) -> SchedulingCycle:
        return SchedulingCycle(
            self.cache,
            self.profiles,
            self.nominator,
            self.waiting,
            self.permit_calls,
            choices,
            self.unexpected_errors,
            self.extenders,
        )

    def _make_preemption(self, pre_binding: PreBindingPods, metrics: Metrics) -> PreemptionExecutor:
        return PreemptionExecutor(
            self.client,
            self.cache,
            self.nominator,
            self.waiting,
            pre_binding,
            self.pod_status,
            self.clock,
            metrics,
            self._activate,
            Preemptors(self._latest, self._read_pod),
            self.unexpected_errors,
            self.configuration.parallelism,
        )

    def _make_profiles(
        self, registry: registries.Registry, rng: random.Random, metrics: Metrics
    ) -> dict[str, Profile]:
        surroundings = Surroundings(
            self.clock,
            self.client,
            self.listers,
            self.cache,
            self.waiting,
            self.nominator,
            rng,
            metrics,
            self.preemption,
            self._activate,
            self.extenders,
        )
        return build_profiles(
            self.configuration,
            registries.merge(IN_TREE, registries.installed(), registry),
            lambda name: FrameworkHandle(name, ProfileRecorder(self.recorder, name), surroundings),
            surroundings,
        )

    def _make_watches(self, rng: random.Random) -> Watches:
        watches = Watches(
            self.client, self.clock, rng, self.unexpected_errors, self._history_was_lost
        )
        watches.add(NODES, self.extenders.node_decoder(), self.nodes)
        self.pod_reflector = watches.add(
            PODS,
            self.extenders.pod_decoder(self.profiles),
            self.pods,
            NOT_TERMINAL,
            self._pods_are_listed,
        )
        for kind, lister in self.listers.required().items():
            handler = ListerHandler(lister, self.queue, EVENT_RESOURCES.get(kind))
            watches.add(RESOURCES[kind], decoder(kind), handler)
        return watches

    def _history_was_lost(self) -> None:
        """What the API server answered may be untrue by now."""
        self.pod_status.forget_sent()
        self.listers.view(Volumes).break_promises()

    def _pods_are_listed(self) -> Callable[[], None]:
        """A list shows what is left of the binds and deletions that were answered before it."""
        bound, finished = self.cache.bound_assumed(), self.preemption.finished()

        def complete() -> None:
            self.pods.give_up(bound)
            self.preemption.give_up(finished)

        return complete

    async def _read_pod(self, pod: PodInfo) -> Pod:
        return decode_pod(Raw(await self.client.get(PODS, pod.namespace, pod.name)))

    # Queue and handlers are built from the plugins and do not exist yet when those get handles.

    def _latest(self, uid: str) -> PodInfo | None:
        return self.pods.latest(uid)

    def _activate(self, pods: Iterable[PodInfo]) -> None:
        self.queue.activate(pods)

    def _make_queue(
        self, pod_max_in_unschedulable_seconds: float, observer: Observer | None
    ) -> SchedulingQueue:
        frameworks = {name: profile.framework for name, profile in self.profiles.items()}
        first = next(iter(frameworks.values()))
        return SchedulingQueue(
            self.clock.now,
            sort_key(first.queue_sort),
            {
                name: [(hook.plugin, self._pre_enqueue(hook)) for hook in framework.pre_enqueue]
                for name, framework in frameworks.items()
            },
            {name: self._registrations(one) for name, one in frameworks.items()},
            pod_initial_backoff_seconds=self.configuration.pod_initial_backoff_seconds,
            pod_max_backoff_seconds=self.configuration.pod_max_backoff_seconds,
            pod_max_in_unschedulable_seconds=pod_max_in_unschedulable_seconds,
            observer=observer,
            nominator=self.nominator,
            is_own_update=self.pod_status.is_own_update,
            rank=rank(first.queue_rank) if first.queue_rank else None,
        )

    def _registrations(self, framework: Framework) -> list[Registration]:
        registered = registrations(framework.plugins.values())
        # Nobody knows what would change an extender's mind.
        return registered + (registrations_without_hints(EXTENDER) if self.extenders else [])

    def _pre_enqueue(self, hook: Hook) -> Callable[[PodInfo], Status]:
        """A PreEnqueue method whose faults gate its pod and are told like those of an attempt."""

        def ask(pod: PodInfo) -> Status:
            try:
                return hook.status(hook.call(pod))
            except PluginFailure as failed:
                self.pod_status.set(pod, DesiredStatus(SCHEDULER_ERROR, failed.status.message))
                return failed.status

        return ask

    # -- running --------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Keep cache and queue up to date with the API server until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.recorder.run, name="record events")
            await self.watches.run()

    @property
    def is_synced(self) -> bool:
        """Whether every watch has handed over a complete list."""
        return self.watches.is_synced

    async def wait_synced(self) -> None:
        """Wait until every watch has handed over a complete list."""
        await self.watches.wait_synced()

    async def schedule(self) -> None:
        """Schedule pods until cancelled, or until ``drain`` was asked for and has finished."""
        await self.wait_synced()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._flush_backoff, name="flush backoff")
                tasks.start_soon(self._flush_unschedulable, name="flush unschedulable")
                if self._expires_assumed:
                    tasks.start_soon(self._expire_assumed, name="expire assumed")
                tasks.start_soon(self.pod_status.run, name="update pod status")
                tasks.start_soon(self.preemption.run, name="preempt")
                sweeper = Sweeper(self.cache, self._cycle, self.profiles.values(), self.clock)
                tasks.start_soon(sweeper.run, name="sweep")
                with anyio.CancelScope() as self._drain:
                    async with BindingTasks() as bindings:
                        while (queued := await self.queue.pop()) is not None:
                            await self._schedule_one(queued, bindings)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.permit_calls.aclose()
                await self.extenders.aclose()

    async def run(self) -> None:
        """Watch and schedule until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch, name="watch")
            await self.schedule()
            await self.recorder.flush(timeout=2.0)
            tasks.cancel_scope.cancel()

    def drain(self, deadline_seconds: float = DRAIN_SECONDS) -> None:
        """Start no new attempt, give running bindings a deadline, then let ``schedule`` end.

        Pods held at Permit are not waited for: what they wait for may never come.
        """
        self.queue.close()
        self.waiting.close()
        self._drain.deadline = anyio.current_time() + deadline_seconds

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
        """Drain; a block that failed does not wait. Its own exception comes out as it is."""
        assert self._tasks is not None
        self.drain()
        if error is None or isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)

    # -- one pod --------------------------------------------------------------------------------

    async def _schedule_one(self, queued: QueuedPodInfo, bindings: asyncio.TaskGroup) -> None:
        pod = queued.pod
        if pod.is_terminating:
            note = f"skip schedule deleting pod: {pod.key}"
            self._profile_recorder.event(pod, "Warning", "FailedScheduling", "Scheduling", note)
            self.queue.done(pod.uid)
            return
        if self.cache.is_assumed(pod.uid):
            self.queue.done(pod.uid)
            return
        started, began = self.clock.now(), stopwatch()
        try:
            outcome = await self._cycle.run(queued)
        except asyncio.CancelledError:
            self._failures.put_back(queued)
            raise
        algorithm_seconds = stopwatch() - began
        if isinstance(outcome, Rejected):
            self._decided(outcome, started, algorithm_seconds)
            self._failures.handle_scheduling_failure(outcome)
            return
        waiting, latest = self.waiting.get(pod.uid), self.pods.latest(pod.uid)
        if waiting is not None and (latest is None or latest.is_terminating):
            # Deleted while an async plugin was asked, before there was a waiting pod to reject.
            waiting.reject("", REMOVED)
        if outcome.state.pods_to_activate:
            self.queue.activate(outcome.state.pods_to_activate.values())
            outcome.state.pods_to_activate.clear()
        bindings.create_task(self._bind(outcome, started, algorithm_seconds), name="bind")

    async def _bind(self, placed: Placed, started: float, algorithm_seconds: float) -> None:
        rejected = await self._binding.run(placed)
        self._decided(rejected or placed, started, algorithm_seconds)

    def _decided(
        self, outcome: Placed | Rejected, started: float, algorithm_seconds: float
    ) -> None:
        queued, now = outcome.queued, self.clock.now()
        first = queued.initial_attempt_timestamp
        if isinstance(outcome, Placed):
            result, node_name, message = Result.SCHEDULED, outcome.node_name, ""
            evaluated, feasible = outcome.evaluated_nodes, outcome.feasible_nodes
        else:
            rejected = outcome.status.is_rejected
            result = Result.UNSCHEDULABLE if rejected else Result.ERROR
            node_name, message = "", outcome.message
            evaluated, feasible = len(self.cache.snapshot), 0
        self.decisions.record(
            Decision(
                at=self.clock.wall(),
                pod=queued.key,
                uid=queued.uid,
                profile=outcome.profile.name,
                result=result,
                node_name=node_name,
                message=message,
                attempts=queued.attempts,
                evaluated_nodes=evaluated,
                feasible_nodes=feasible,
                duration_seconds=max(now - started, algorithm_seconds),
                algorithm_seconds=algorithm_seconds,
                waited_seconds=now - (started if first is None else first),
            )
        )

    # -- periodic -------------------------------------------------------------------------------

    async def _flush_backoff(self) -> None:
        while True:
            await self.clock.sleep(BACKOFF_FLUSH_SECONDS)
            await self._in_slices(self.queue.flush_backoff_completed)
            self.pods.end_quarantines()

    async def _flush_unschedulable(self) -> None:
        while True:
            await self.clock.sleep(UNSCHEDULABLE_FLUSH_SECONDS)
            await self._in_slices(self.queue.flush_unschedulable_leftover)

    async def _in_slices(self, flush: Callable[[], bool]) -> None:
        is_more = flush()
        while is_more:
            await asyncio.sleep(0)
            is_more = flush()

    async def _expire_assumed(self) -> None:
        while True:
            await self.clock.sleep(EXPIRY_CHECK_SECONDS)
            for pod in self.cache.expire_assumed():
                latest = self.pods.latest(pod.uid)
                if latest is not None:
                    self.queue.add(latest)

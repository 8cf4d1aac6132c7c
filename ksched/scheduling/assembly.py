"""Constructors of the larger parts of a scheduler.

Each takes only parts that exist already. Where two parts depend on each other, the shared state is
a third object, built before both: ``PendingPods``, ``Activations``, the semaphore of bind calls.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from socket import gethostname
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Raw

from ksched.api.decoding import decode_pod, decoder_of
from ksched.api.devices import ResourceClaim
from ksched.api.objects import Pod
from ksched.api.resources import PODS
from ksched.api.watched_kinds import watched_kind
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.cache.storage.volumes import Volumes
from ksched.client.rate_limit import RateLimiter
from ksched.client.recorder import EventRecorder, ProfileRecorder
from ksched.client.rest import ApiClient
from ksched.clock import Clock
from ksched.configuration.extension_points import PRE_ENQUEUE
from ksched.configuration.model import ClientConnection, SchedulerConfiguration
from ksched.devices.claim_store import ClaimStore
from ksched.extenders.chain import Extenders
from ksched.extenders.extender import EXTENDER
from ksched.framework.cluster_events import Resource
from ksched.framework.runtime import registry as registries
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.runtime.profiles import (
    NO_PROFILES,
    FrameworkHandle,
    MakePipeline,
    Profile,
    build_profiles,
)
from ksched.framework.runtime.queue_sort import rank, sort_key
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import SUCCESS, Status
from ksched.groups.group import Group
from ksched.groups.registry import Groups
from ksched.metrics import Metrics
from ksched.queue.activations import Activations
from ksched.queue.hints import Registration, registrations, registrations_without_hints
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.queue.places import Observer
from ksched.queue.pre_enqueue import PreEnqueue
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.binding_cycle import MAX_CONCURRENT_BINDS
from ksched.scheduling.event_handlers import ListerHandler, PodHandler
from ksched.scheduling.failure_handler import SCHEDULER_ERROR
from ksched.scheduling.gate_reports import GateReports
from ksched.scheduling.group_cycle import GroupCycle
from ksched.scheduling.group_preemption import GroupPreemption
from ksched.scheduling.group_protection import GroupProtection
from ksched.scheduling.group_status import GroupStatusUpdater
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.scheduling.preemption_executor import Evictions, PreemptionExecutor
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.scheduling.watches import Watches
from ksched.transport import Transport
from ksched.unexpected_errors import UnexpectedErrors

MANY_REQUESTS = MAX_CONCURRENT_BINDS // 2


def server_is_busy(
    client: ApiClient, limiter: RateLimiter, bind_slots: asyncio.Semaphore
) -> Callable[[], bool]:
    """Returns whether the API server has many requests of binding cycles to answer.

    Those that only wait for our own rate limit are no load on it.
    """

    def is_busy() -> bool:
        has_many_binds = bind_slots.locked() and not limiter.waiting
        return has_many_binds or client.in_flight >= MANY_REQUESTS

    return is_busy


class BuildProfiles(Protocol):
    """Builds the profiles of a configuration; of ``previous`` it keeps what did not change."""

    def __call__(
        self, configuration: SchedulerConfiguration, previous: Mapping[str, Profile] = NO_PROFILES
    ) -> dict[str, Profile]: ...


def make_recorder(
    *,
    transport: Transport,
    connection: ClientConnection,
    clock: Clock,
    rng: random.Random,
    gives_way: Callable[[], bool],
) -> EventRecorder:
    """Build the writer of Events; it has its own rate limit and yields to binding cycles."""
    limiter = RateLimiter(connection.qps, connection.burst, clock)
    return EventRecorder(
        ApiClient(transport, clock, limiter, rng),
        clock,
        hostname=gethostname(),
        rng=rng,
        gives_way=gives_way,
    )


def lazy_api_client(
    client: ApiClient, connection: ClientConnection, clock: Clock
) -> Callable[[], Any]:
    """Makes the client that plugins have for requests of their own, on first use.

    It has a rate limit of its own: what a plugin reads never takes a token from a bind.
    """

    @functools.cache
    def make() -> Any:
        from ksched.client.typed_client import TypedClient

        limiter = RateLimiter(connection.qps, connection.burst, clock)
        return TypedClient(client.with_limiter(limiter))

    return make


class HandleParts(Protocol):
    """The parts of a scheduler that plugins get by their handle."""

    client: ApiClient
    clock: Clock
    recorder: EventRecorder
    registry: registries.Registry
    listers: Listers
    cache: SchedulerCache
    waiting: WaitingPods
    nominator: Nominator
    pending: PendingPods
    preemption: PreemptionExecutor
    extenders: Extenders
    metrics: Metrics


def profile_builder(
    parts: HandleParts,
    connection: ClientConnection,
    rng: random.Random,
    activations: Activations,
    make_pipeline: MakePipeline,
) -> BuildProfiles:
    """Makes what builds the profiles, at the start and for every later configuration."""
    clock, cache = parts.clock, parts.cache
    make_api_client = lazy_api_client(parts.client, connection, clock)

    def make_handle(profile_name: str, profiles: Mapping[str, Profile]) -> FrameworkHandle:
        return FrameworkHandle(
            profile_name=profile_name,
            profiles=profiles,
            recorder=ProfileRecorder(parts.recorder, profile_name),
            clock=clock,
            client=parts.client,
            listers=parts.listers,
            cache=cache,
            waiting=parts.waiting,
            nominator=parts.nominator,
            rng=rng,
            metrics=parts.metrics,
            preemptor=parts.preemption,
            activate=activations.activate,
            pending_pods=parts.pending.__iter__,
            make_api_client=make_api_client,
            extenders=parts.extenders,
        )

    def build(
        configuration: SchedulerConfiguration, previous: Mapping[str, Profile] = NO_PROFILES
    ) -> dict[str, Profile]:
        return build_profiles(
            configuration,
            registry=parts.registry,
            make_handle=make_handle,
            snapshot=cache.snapshot,
            now=clock.now,
            metrics=parts.metrics,
            make_pipeline=make_pipeline,
            previous=previous,
        )

    return build


def plugins_with_handles(profiles: Mapping[str, Profile]) -> Iterator[tuple[Any, FrameworkHandle]]:
    """The plugins of all profiles in the order in which they were built."""
    for profile in profiles.values():
        for plugin in profile.framework.plugins.values():
            yield plugin, profile.handle


async def read_pod(client: ApiClient, pod: PodInfo) -> Pod:
    """Read a pod from the API server; raises ``ApiError`` or ``InvalidObject``."""
    return decode_pod(Raw(await client.get(PODS, pod.namespace, pod.name)))


async def read_preemptor(
    client: ApiClient, status: PodStatusUpdater, pod: PodInfo, since: float
) -> Pod:
    """Return a pod as the API server has it ``since`` then, like ``read_pod``.

    It is read unless its status is just being written: the answer to that has the whole pod.
    """
    stored = await status.answer(pod.uid, since)
    return await read_pod(client, pod) if stored is None else decode_pod(Raw(stored))


class QueueTables(NamedTuple):
    """What the queue has of the plugins, by profile."""

    pre_enqueue: Mapping[str, Sequence[tuple[str, PreEnqueue]]]
    hints: Mapping[str, Sequence[Registration]]


MakeTables: TypeAlias = Callable[[Mapping[str, Profile]], QueueTables]


def queue_tables(
    listers: Listers,
    status: PodStatusUpdater,
    gate_reports: GateReports,
    extenders: Extenders,
    profiles: Mapping[str, Profile],
) -> QueueTables:
    """Collect the PreEnqueue plugins and the event registrations; raises ``ConfigError``."""
    frameworks = {name: profile.framework for name, profile in profiles.items()}
    required = frozenset(kind.event_resource for kind in listers.required()) - {"", *Resource}
    gated = gate_reports.gated
    return QueueTables(
        pre_enqueue={
            name: [
                (hook.plugin, _pre_enqueue(hook, framework.plugins[hook.plugin], status, gated))
                for hook in framework.hooks[PRE_ENQUEUE]
            ]
            for name, framework in frameworks.items()
        },
        hints={
            name: _registrations(framework, required, len(extenders) > 0)
            for name, framework in frameworks.items()
        },
    )


def make_queue(
    *,
    configuration: SchedulerConfiguration,
    profiles: Mapping[str, Profile],
    tables: QueueTables,
    clock: Clock,
    pending: PendingPods,
    nominator: Nominator,
    activations: Activations,
    status: PodStatusUpdater,
    pod_max_in_unschedulable_seconds: float,
    observer: Observer | None,
    metrics: Metrics,
) -> SchedulingQueue:
    """Build the queue from the QueueSort, PreEnqueue and event registrations of the profiles."""
    first = next(iter(profiles.values())).framework
    return SchedulingQueue(
        now=clock.now,
        sort_key=sort_key(first.queue_sort),
        rank=rank(first.queue_rank) if first.queue_rank else None,
        pre_enqueue=tables.pre_enqueue,
        hints=tables.hints,
        pending=pending,
        nominator=nominator,
        activations=activations,
        pod_initial_backoff_seconds=configuration.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=configuration.pod_max_backoff_seconds,
        pod_max_in_unschedulable_seconds=pod_max_in_unschedulable_seconds,
        observer=observer,
        is_own_update=status.is_own_update,
        hint_durations=metrics.queueing_hint_execution_duration,
    )


def _registrations(
    framework: Framework, required_resources: frozenset[str], has_extenders: bool
) -> list[Registration]:
    registered = registrations(framework.plugins.values(), required_resources)
    # Which events would change an extender's result is unknown.
    return registered + (registrations_without_hints(EXTENDER) if has_extenders else [])


def _pre_enqueue(
    hook: Hook, plugin: Any, status: PodStatusUpdater, gated: Callable[[PodInfo], None]
) -> Callable[[PodInfo], Status]:
    """Wrap a PreEnqueue method: a failure gates the pod and is reported in its condition.

    So is the reason of a plugin with ``reports_gated_pods``, a while later.
    """
    is_reported = getattr(plugin, "reports_gated_pods", False)

    def run(pod: PodInfo) -> Status:
        try:
            got: object = hook.call(pod)
            if got is SUCCESS:
                return SUCCESS
            answer = hook.status(got)
            if is_reported and not answer.is_success:
                gated(pod)
            return answer
        except PluginFailure as failed:
            status.set(pod, DesiredStatus(SCHEDULER_ERROR, failed.status.message))
            return failed.status

    return run


def make_group_cycle(
    *,
    cache: SchedulerCache,
    cycle: SchedulingCycle,
    groups: Groups,
    pending: PendingPods,
    nominator: Nominator,
    waiting: WaitingPods,
    executor: Evictions,
    status: PodStatusUpdater,
    clock: Clock,
    unexpected_errors: UnexpectedErrors,
    metrics: Metrics,
) -> GroupCycle:
    """Build the group cycle with preemption and protection of groups."""
    preemption = GroupPreemption(
        cache=cache,
        cycle=cycle,
        nominator=nominator,
        executor=executor,
        status=status,
        now=clock.now,
        wall=clock.wall,
        metrics=metrics,
    )
    protection = GroupProtection(
        cache=cache,
        cycle=cycle,
        nominator=nominator,
        groups=groups,
        now=clock.now,
        wall=clock.wall,
    )

    def give_up(group: Group) -> None:
        preemption.give_up(group)
        protection.forget(group)

    groups.stalled = give_up
    return GroupCycle(
        preemption=preemption,
        protection=protection,
        cache=cache,
        cycle=cycle,
        groups=groups,
        pending=pending,
        nominator=nominator,
        waiting=waiting,
        now=clock.now,
        unexpected_errors=unexpected_errors,
        metrics=metrics,
    )


def watch_listers(watches: Watches, listers: Listers, queue: SchedulingQueue) -> None:
    """Watch every kind that a plugin required.

    kube-scheduler: unionedGVKs.
    """
    listers.complete()
    for kind, lister in listers.required().items():
        handler: ListerHandler[Any] = ListerHandler(
            lister=lister, queue=queue, resource=kind.event_resource
        )
        watches.add(kind.resource, decoder_of(kind), handler, may_be_absent=not kind.must_be_served)


def forget_answers(
    status: PodStatusUpdater, group_status: GroupStatusUpdater, listers: Listers
) -> None:
    """Drop state derived from responses of an API server whose history was lost."""
    status.forget_sent()
    group_status.forget_sent()
    listers.view(Volumes).forget_assumed()
    if watched_kind(ResourceClaim) in listers.required():
        listers.view(ClaimStore).forget_assumed()


def pods_are_listed(
    cache: SchedulerCache, pods: PodHandler, preemption: PreemptionExecutor
) -> Callable[[], None]:
    """Prepare the check of a relist against earlier responses; call the result when it is done.

    A pod list reflects every bind and deletion that was confirmed before the list began.
    """
    bound, finished = cache.bound_assumed(), preemption.finished()

    def complete() -> None:
        pods.give_up(bound)
        preemption.give_up(finished)

    return complete

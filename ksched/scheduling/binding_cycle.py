"""The binding cycle: wait on Permit, PreBind, Bind and PostBind of a placed pod.

Binding cycles run concurrently with each other and with the next scheduling cycle. A failure is
undone in reverse order: unreserve, forget the assumed pod, wake pods that may use the space,
requeue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ksched.api.objects import Pod
from ksched.cache.cache import SchedulerCache
from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock, stopwatch
from ksched.configuration.extension_points import BIND, POST_BIND, PRE_BIND
from ksched.errors import ApiError, InvalidObject, NotFound
from ksched.extenders.chain import NO_EXTENDERS, Extenders
from ksched.framework.cluster_events import ASSUMED_POD_FORGOTTEN
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.handle import EventRecorder
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.pre_binding import PreBindingPods
from ksched.framework.runtime.reserve_to_post_bind import (
    run_bind,
    run_post_bind,
    run_pre_bind,
    run_pre_bind_pre_flight,
)
from ksched.framework.runtime.waiting_pods import WaitingPod, WaitingPods
from ksched.framework.status import SUCCESS, Status, error
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.failure_handler import FailureHandler
from ksched.scheduling.permit_waits import PermitWaits
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.scheduling.scheduling_cycle import (
    Placed,
    Rejected,
    one_node_diagnosis,
    unreserve_and_forget,
)
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

MAX_CONCURRENT_BINDS = 32
"""Concurrent bind calls; pods waiting on permit or for volumes do not count."""

LOOK_AGAIN_SECONDS = 5.0
REFUSED_LOOKS = 10
"""Attempts to read a pod after 403 responses; a server that just started has no roles yet."""
REFUSED_LOOK_SECONDS = 1.0

ReadPod = Callable[[PodInfo], Awaitable[Pod]]
"""Reads a pod's current state from the API server; raises ``ApiError``."""


class BindingCycle:
    """Binds placed pods; ``slots`` limits the concurrent bind calls."""

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        pre_binding: PreBindingPods,
        failures: FailureHandler,
        recorder: EventRecorder,
        status: PodStatusUpdater,
        clock: Clock,
        read_pod: ReadPod,
        slots: asyncio.Semaphore,
        unexpected_errors: UnexpectedErrors,
        extenders: Extenders = NO_EXTENDERS,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._waiting = waiting
        self._pre_binding = pre_binding
        self._failures = failures
        self._recorder = recorder
        self._status = status
        self._clock = clock
        self._read_pod = read_pod
        self._unexpected_errors = unexpected_errors
        self._extenders = extenders
        self._slots = slots
        self._waits = PermitWaits(recorder, self._announce, unexpected_errors)

    async def run(self, placed: Placed) -> Rejected | None:
        """Bind a placed pod; on failure, undo everything and return the outcome.

        kube-scheduler: bindingCycle, runBindingCycle.
        """
        status, diagnosis = await self._try_to_bind(placed)
        if not status.is_success:
            return self._undo(placed, status, diagnosis)
        try:
            await self._bound(placed)
        except Exception as problem:  # noqa: BLE001 - reported
            self._unexpected_errors.report("binding", placed.pod.key, problem)
        return None

    async def _try_to_bind(self, placed: Placed) -> tuple[Status, Diagnosis | None]:
        try:
            status = await self._prepare(placed)
            waiting = self._waiting.get(placed.pod.uid)
            if waiting is not None and status.is_success:
                began = self._clock.now()
                self._waits.begin(waiting)
                try:
                    # Thousands may wait here: another coroutine frame would cost memory.
                    status = await self._waiting.wait(placed.pod.uid)
                finally:
                    self._waits.end(waiting)
                placed.profile.metrics.permit_waited(status.code, self._clock.now() - began)
            if not status.is_success:
                return status, one_node_diagnosis(status)
            self._queue.done(placed.pod.uid)
            return await self._bind(placed), None
        except PluginFailure as failed:
            return failed.status, None
        except asyncio.CancelledError:
            # Shutdown or a lost lease. If the bind took effect, the watch will show it.
            self._give_back(placed)
            self._failures.put_back(placed.queued)
            raise
        except Exception as problem:  # noqa: BLE001 - reported
            return error(self._unexpected_errors.report("binding", placed.pod.key, problem)), None

    async def _prepare(self, placed: Placed) -> Status:
        """Run PreBindPreFlight and publish the nominated node if the bind will take time."""
        framework, state, pod = placed.profile.framework, placed.state, placed.pod
        if not framework.hooks[PRE_BIND] and self._waiting.get(pod.uid) is None:
            return SUCCESS
        work = await run_pre_bind_pre_flight(framework, state, pod, placed.node_name)
        if not (work.is_success or work.is_skip):
            return work
        waiting = self._waiting.get(pod.uid)
        if waiting is not None and waiting.pending_plugins:
            self._announce(placed)
        elif work.is_success:
            self._status.set_unless_bound_soon(pod, _nomination(placed))
        return SUCCESS

    def _announce(self, placed: Placed | WaitingPod) -> None:
        """Nominate the node, for autoscalers and a restarted scheduler."""
        self._status.set(placed.pod, _nomination(placed), can_wait=True)

    async def _bind(self, placed: Placed) -> Status:
        framework, state, pod = placed.profile.framework, placed.state, placed.pod
        metrics = placed.profile.metrics
        if framework.hooks[PRE_BIND]:
            began, status = stopwatch(), SUCCESS
            # Without PreBind work the bind follows at once: too late to cancel.
            if len(state.skip_pre_bind) < len(framework.hooks[PRE_BIND]):
                work = run_pre_bind(framework, state, pod, placed.node_name)
                status = await self._pre_binding.run(pod.uid, work)
            metrics.record(PRE_BIND, status.code, began)
            if not status.is_success:
                return status
        lost = self._lost_node(placed)
        if lost is not None:
            return lost
        if placed.gate is not None:
            status = await self._pre_binding.run(pod.uid, placed.gate.passed(pod.uid))
            if not status.is_success:
                return status
        async with self._slots:
            # Others were bound meanwhile.
            lost = self._lost_node(placed)
            if lost is not None:
                return lost
            status = await self._run_bind(placed)
        if status.is_success or not await self._is_bound_anyway(placed):
            return status
        log.info("bind took effect though it failed", extra={"pod": pod.key})
        return SUCCESS

    def _lost_node(self, placed: Placed) -> Status | None:
        """Return an error if the pod's node is gone: the API server would bind it nevertheless."""
        if self._cache.get_node(placed.node_name) is not None:
            return None
        return error(f'node "{placed.node_name}" was removed before the pod was bound')

    async def _run_bind(self, placed: Placed) -> Status:
        """Bind by an extender if there is one for this pod, otherwise by plugins.

        kube-scheduler: bind, extendersBinding.
        """
        # An exception may come after the call took effect: handled like an error response.
        try:
            status = await self._extenders.bind(placed.pod, placed.node_name)
            return await self._run_bind_plugins(placed) if status is None else status
        except Exception as problem:  # noqa: BLE001 - reported
            return error(self._unexpected_errors.report("binding", placed.pod.key, problem))

    async def _run_bind_plugins(self, placed: Placed) -> Status:
        profile, began = placed.profile, stopwatch()
        try:
            status = await run_bind(profile.framework, placed.state, placed.pod, placed.node_name)
        except PluginFailure as failed:
            status = failed.status
        profile.metrics.record(BIND, status.code, began)
        return status

    async def _is_bound_anyway(self, placed: Placed) -> bool:
        """Whether a bind without a success response took effect nevertheless.

        The pod stays assumed until that is known: otherwise its space could be given to a second
        pod while the first is bound after all.
        """
        pod, refused = placed.pod, 0
        while self._cache.is_assumed(pod.uid):
            try:
                bound = await self._read_pod(pod)
            except (ApiError, InvalidObject) as problem:
                is_refusal = isinstance(problem, ApiError) and problem.is_final
                refused += is_refusal
                if isinstance(problem, NotFound) or refused == REFUSED_LOOKS:
                    return False
                log.warning(
                    "cannot find out whether pod was bound, trying again",
                    extra={"pod": pod.key, "err": str(problem)},
                )
                pause = REFUSED_LOOK_SECONDS if is_refusal else LOOK_AGAIN_SECONDS
                await self._clock.sleep(pause)
                continue
            return bound.metadata.uid == pod.uid and bound.spec.node_name == placed.node_name
        known = self._cache.get_pod(pod.uid)
        return known is not None and known.node_name == placed.node_name

    async def _bound(self, placed: Placed) -> None:
        pod = placed.pod
        self._cache.finish_binding(pod.uid)
        self._status.forget(pod.uid)
        note = f"Successfully assigned {pod.key} to {placed.node_name}"
        self._recorder.event(pod, "Normal", "Scheduled", "Binding", note)
        if placed.profile.framework.hooks[POST_BIND]:
            began = stopwatch()
            await run_post_bind(placed.profile.framework, placed.state, pod, placed.node_name)
            placed.profile.metrics.record(POST_BIND, SUCCESS.code, began)
        if placed.state.pods_to_activate:
            self._queue.activate(placed.state.pods_to_activate.values())

    def _undo(self, placed: Placed, status: Status, diagnosis: Diagnosis | None = None) -> Rejected:
        """Unreserve and forget; wakes other pods and returns the outcome for the requeue.

        Only a rejection at Permit has a ``diagnosis`` and waits for an event of the plugin; a
        failed bind is an error, whatever status code the plugin returned.

        kube-scheduler: handleBindingCycleError.
        """
        pod = placed.pod
        nominated = ""
        if placed.gate is not None:
            # The other members are being bound: it stays nominated to its node.
            nominated = placed.node_name if placed.gate.is_open else ""
            placed.gate.leave(pod.uid, status)
            if not placed.gate.is_open:
                # The group backs off: the event of a member that is undone must not wake it.
                diagnosis = None
        self._give_back(placed)
        rejected = Rejected(placed.queued, placed.profile, status, diagnosis, nominated)
        # A rejected pod returns first and is excluded from its own event; after an error the event
        # goes first, as in kube-scheduler.
        if diagnosis is None:
            self._queue.move_all_to_active_or_backoff_queue(ASSUMED_POD_FORGOTTEN, pod.pod, None)
            self._failures.handle_scheduling_failure(rejected)
        else:
            self._failures.handle_scheduling_failure(rejected)
            self._queue.move_all_to_active_or_backoff_queue(
                ASSUMED_POD_FORGOTTEN, pod.pod, None, lambda other: other.uid != pod.uid
            )
        return rejected

    def _give_back(self, placed: Placed) -> None:
        self._waiting.discard(placed.pod.uid)
        unreserve_and_forget(self._cache, placed)


def _nomination(placed: Placed | WaitingPod) -> DesiredStatus:
    return DesiredStatus(nominated_node_name=placed.node_name)

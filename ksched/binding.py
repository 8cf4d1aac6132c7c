"""The binding cycle: a placed pod waits for permission, is prepared, and is bound.

Binding cycles run beside each other and beside the next pod's scheduling cycle. Whatever fails
here is undone in reverse: unreserve, forget, wake those who may use the room, requeue.
"""

from __future__ import annotations

import asyncio
import logging

from ksched.cache.cache import SchedulerCache
from ksched.cycle import Placed, Rejected, one_node_diagnosis
from ksched.failures import FailureHandler
from ksched.framework.cluster_events import ASSIGNED_POD_DELETE
from ksched.framework.handle import EventRecorder
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.lifecycle import (
    run_bind,
    run_post_bind,
    run_pre_bind,
    run_pre_bind_pre_flight,
    run_unreserve,
)
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import SUCCESS, Status, error
from ksched.pod_status import PodStatusUpdater, Wish
from ksched.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)

MAX_CONCURRENT_BINDS = 128
"""Bind calls on their way at once; pods waiting for permission or volumes do not count."""


class BindingCycle:
    """Takes placed pods to their node."""

    def __init__(
        self,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        failures: FailureHandler,
        recorder: EventRecorder,
        status: PodStatusUpdater,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._waiting = waiting
        self._failures = failures
        self._recorder = recorder
        self._status = status
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_BINDS)

    async def run(self, placed: Placed) -> Rejected | None:
        """Bind a placed pod; on failure everything is undone and the outcome returned."""
        try:
            status = await self._wait_on_permit(placed)
            if not status.is_success:
                return self._undo(placed, status, one_node_diagnosis_of=status)
            self._queue.done(placed.pod.uid)
            status = await self._bind(placed)
        except PluginFailure as failed:
            status = failed.status
        except asyncio.CancelledError:
            # Shutdown or a lost lease: nobody will requeue, but the plugins' books must be right.
            run_unreserve(placed.profile.framework, placed.state, placed.pod, placed.node_name)
            raise
        if not status.is_success and not self._is_bound_anyway(placed):
            return self._undo(placed, status)
        await self._bound(placed)
        return None

    def _is_bound_anyway(self, placed: Placed) -> bool:
        """Whether the watch says that a bind without an answer went through."""
        known = self._cache.get_pod(placed.pod.uid)
        return (
            known is not None
            and known.node_name == placed.node_name
            and not self._cache.is_assumed(placed.pod.uid)
        )

    async def _wait_on_permit(self, placed: Placed) -> Status:
        framework, state, pod = placed.profile.framework, placed.state, placed.pod
        if not framework.pre_bind and self._waiting.get(pod.uid) is None:
            return SUCCESS
        work = await run_pre_bind_pre_flight(framework, state, pod, placed.node_name)
        if not (work.is_success or work.is_skip):
            return work
        if work.is_success or self._waiting.get(pod.uid) is not None:
            # Tells autoscalers and restarted schedulers where the pod is about to go.
            self._status.set(placed.queued.pod, Wish(nominated_node_name=placed.node_name))
        return await self._waiting.wait(pod.uid)

    async def _bind(self, placed: Placed) -> Status:
        framework, state, pod = placed.profile.framework, placed.state, placed.pod
        if framework.pre_bind:
            status = await run_pre_bind(framework, state, pod, placed.node_name)
            if not status.is_success:
                return status
        if self._cache.get_node(placed.node_name) is None:
            return error(f'node "{placed.node_name}" was removed before the pod was bound')
        async with self._slots:
            return await run_bind(framework, state, pod, placed.node_name)

    async def _bound(self, placed: Placed) -> None:
        pod = placed.pod
        self._cache.finish_binding(pod.uid)
        self._status.forget(pod.uid)
        note = f"Successfully assigned {pod.key} to {placed.node_name}"
        self._recorder.event(pod, "Normal", "Scheduled", "Binding", note)
        if placed.profile.framework.post_bind:
            await run_post_bind(placed.profile.framework, placed.state, pod, placed.node_name)
        if placed.state.pods_to_activate:
            self._queue.activate(placed.state.pods_to_activate.values())

    def _undo(
        self, placed: Placed, status: Status, one_node_diagnosis_of: Status | None = None
    ) -> Rejected:
        """Give the place back; others may use it, and the pod tries again later.

        Only a rejection at Permit waits for an event of the plugin; a failed bind is an error,
        whatever the plugin called it.
        """
        pod = placed.pod
        run_unreserve(placed.profile.framework, placed.state, pod, placed.node_name)
        if self._cache.is_assumed(pod.uid):
            self._cache.forget_pod(pod)
        diagnosis = one_node_diagnosis(one_node_diagnosis_of) if one_node_diagnosis_of else None
        rejected = Rejected(placed.queued, placed.profile, status, diagnosis)
        if diagnosis is None:
            self._queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, pod.pod, None)
            self._failures.handle_scheduling_failure(rejected)
        else:
            self._failures.handle_scheduling_failure(rejected)
            self._queue.move_all_to_active_or_backoff(
                ASSIGNED_POD_DELETE, pod.pod, None, lambda other: other.uid != pod.uid
            )
        return rejected

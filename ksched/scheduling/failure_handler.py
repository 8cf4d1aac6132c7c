"""What follows a failed attempt: requeue, Event, PodScheduled condition."""

from __future__ import annotations

import logging
from functools import partial

from ksched.cache.pod_info import PodInfo
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.handle import EventRecorder
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.pending_pods import PendingPods
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.scheduling.scheduling_cycle import Rejected
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"

_NO_REJECTION = Diagnosis(0)


class FailureHandler:
    """Handles every attempt that did not end in a bind."""

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        pending: PendingPods,
        recorder: EventRecorder,
        status: PodStatusUpdater,
        unexpected_errors: UnexpectedErrors,
    ) -> None:
        self._queue = queue
        self._pending = pending
        self._recorder = recorder
        self._status = status
        self._unexpected_errors = unexpected_errors

    def handle_scheduling_failure(self, rejected: Rejected, *, is_news: bool = True) -> None:
        """Requeue the pod unless it is deleted or bound, and publish the reason.

        Without ``is_news`` no Event repeats the reason.
        """
        queued, diagnosis = rejected.queued, rejected.diagnosis
        reason = UNSCHEDULABLE if rejected.status.is_rejected else SCHEDULER_ERROR
        level = logging.INFO if rejected.status.is_rejected else logging.ERROR
        log.log(
            level,
            "unable to schedule pod",
            extra={"pod": queued.key, "reason": reason, "err": rejected.message},
        )
        pod = self.put_back(queued, diagnosis)
        if pod is None:
            return
        nominated = rejected.nominated_node_name
        if nominated is not None:
            self._queue.nominator.add(pod, nominated)
        desired = DesiredStatus(reason, rejected.message, nominated)
        if is_news and not nominated and diagnosis is not None and diagnosis.is_momentary:
            publish = partial(self._publish, pod, rejected.message)
            self._status.set_unless_bound_soon(pod, desired, publish)
            return
        if is_news:
            self._publish(pod, rejected.message)
        self._status.set(pod, desired)

    def _publish(self, pod: PodInfo, note: str) -> None:
        with self._unexpected_errors.contain("event", pod):
            self._recorder.event(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def put_back(self, queued: QueuedPodInfo, diagnosis: Diagnosis | None = None) -> PodInfo | None:
        """Requeue a pod in its newest version; ``None`` if it is gone or bound."""
        pod = self._pending.get(queued.uid)
        if pod is None:
            self._queue.done(queued.uid)
            return None
        diagnosis = diagnosis or _NO_REJECTION
        queued.completes_group = diagnosis.completes_group
        self._queue.add_unschedulable_if_not_present(
            queued,
            diagnosis.unschedulable_plugins,
            diagnosis.pending_plugins,
            diagnosis.shared_wait,
            diagnosis.holds_for_template,
        )
        return pod

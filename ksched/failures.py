"""What happens to a pod whose attempt failed: back to the queue, an event, a condition."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ksched.cache.pod_info import PodInfo
from ksched.cycle import Rejected
from ksched.framework.handle import EventRecorder
from ksched.pod_status import PodStatusUpdater, Wish
from ksched.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"

MAX_NOTE_BYTES = 1024


class FailureHandler:
    """The end of every attempt that did not bind."""

    def __init__(
        self,
        queue: SchedulingQueue,
        latest: Callable[[str], PodInfo | None],
        recorder: EventRecorder,
        status: PodStatusUpdater,
    ) -> None:
        self._queue = queue
        self._latest = latest
        self._recorder = recorder
        self._status = status

    def handle_scheduling_failure(self, rejected: Rejected) -> None:
        """Requeue the pod unless it is gone or bound, and tell the user why it waits.

        ``latest`` gives the newest version of a pending pod; an older one must not come back.
        """
        queued = rejected.queued
        reason = UNSCHEDULABLE if rejected.status.is_rejected else SCHEDULER_ERROR
        level = logging.INFO if rejected.status.is_rejected else logging.ERROR
        log.log(
            level,
            "unable to schedule pod",
            extra={"pod": queued.key, "reason": reason, "err": rejected.message},
        )
        pod = self._latest(queued.uid)
        if pod is None:
            self._queue.done(queued.uid)
            return
        queued.pod = pod
        diagnosis = rejected.diagnosis
        if diagnosis is None:
            self._queue.add_unschedulable(queued)
        else:
            self._queue.add_unschedulable(
                queued, diagnosis.unschedulable_plugins, diagnosis.pending_plugins
            )
        nominated = rejected.nominated_node_name
        if nominated is not None:
            self._queue.nominator.add(pod, nominated)
        note = truncate(rejected.message)
        self._recorder.event(pod, "Warning", "FailedScheduling", "Scheduling", note)
        self._status.set(pod, Wish(reason, rejected.message, nominated))


def truncate(message: str) -> str:
    """Cut a note to what an Event may carry, as upstream does."""
    encoded = message.encode()
    if len(encoded) <= MAX_NOTE_BYTES:
        return message
    return encoded[: MAX_NOTE_BYTES - 4].decode(errors="ignore") + " ..."

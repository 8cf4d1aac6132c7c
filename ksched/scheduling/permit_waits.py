"""Reports pods held at Permit: a log line at once, nomination and Event after a delay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ksched.framework.handle import EventRecorder
from ksched.framework.runtime.deadlines import Deadlines
from ksched.framework.runtime.waiting_pods import Hold, Holding, WaitingPod, go_duration
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

NOMINATE_AFTER_SECONDS: Final = 5.0
"""How long a pod is held by async calls alone before it is nominated to its node: the patch is one
more write for the pod, which a short call does not need."""

EVENT_AFTER_SECONDS: Final = 10.0
"""How long a pod is held before it gets an Event that names the plugins."""

REASON: Final = "WaitingOnPermit"

_SHOWN: Final = {
    Holding.WAITING: "waits",
    Holding.ASKED: "is still to answer",
    Holding.QUEUED: "has as many calls under way as it may",
}


class PermitWaits:
    """The current waits of placed pods; ``nominate`` publishes a pod's node.

    One Event per wait, subject to the recorder's rate limit like any other.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        nominate: Callable[[WaitingPod], None],
        unexpected_errors: UnexpectedErrors,
    ) -> None:
        self._recorder = recorder
        self._unexpected_errors = unexpected_errors
        self._without_node = Deadlines(NOMINATE_AFTER_SECONDS, nominate)
        self._without_event: Deadlines[WaitingPod] = Deadlines(EVENT_AFTER_SECONDS, self._report)

    def begin(self, waiting: WaitingPod) -> None:
        self._without_node.add(waiting)
        self._without_event.add(waiting)
        self._log("pod waits on permit", waiting)

    def end(self, waiting: WaitingPod) -> None:
        self._without_node.remove(waiting)
        self._without_event.remove(waiting)

    def _report(self, waiting: WaitingPod) -> None:
        pod, holds = waiting.pod, waiting.holds()
        if not holds:
            return
        with self._unexpected_errors.contain("event", pod):
            now = asyncio.get_running_loop().time()
            note = describe(waiting.node_name, holds, now)
            self._recorder.event(pod, "Normal", REASON, "Scheduling", note)
        self._log("pod still waits on permit", waiting)

    def _log(self, message: str, waiting: WaitingPod) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        holds, now = waiting.holds(), asyncio.get_running_loop().time()
        if holds:
            fields = {
                "pod": waiting.pod.key,
                "node": waiting.node_name,
                "plugins": ",".join(hold.plugin for hold in holds),
                "since_seconds": round(now - min(hold.since for hold in holds), 3),
                "at_most_seconds": round(min(hold.until for hold in holds) - now, 3),
            }
            log.info(message, extra=fields)


def describe(node_name: str, holds: Sequence[Hold], now: float) -> str:
    """Describe what a pod waits for, in one sentence."""
    plugins = "; ".join(
        f"{hold.plugin} {_SHOWN[hold.holding]}, since {_rounded(now - hold.since)}, "
        f"for {_rounded(hold.until - now)} more at most"
        for hold in holds
    )
    return f"Waiting on permit to go to {node_name}: {plugins}"


def _rounded(seconds: float) -> str:
    return go_duration(round(max(seconds, 0.0)))

"""Detects from a second thread that the event loop hangs, reports where, and ends the process.

A synchronous plugin that does not return blocks everything: renewals, signals, the web server. Only
another thread still runs. It checks whether the loop still feeds it, and after a time of silence

1. logs the plugin, the pod and the stack of the loop's thread,
2. quarantines the pod, if this process leads: the next leader must not hang on it too,
3. ends the process with 1, when the lease can no longer have been renewed.

The loop's activity is read from its stack instead of being recorded, so it costs the loop nothing.
Silence is counted in checks: a process that was frozen was not hanging, and its watchdog was frozen
with it. Code that holds the interpreter lock, for instance in a C extension, blocks the watchdog
too; then the liveness probe must end the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final, NamedTuple

from ksched import __version__
from ksched.cache.pod_info import PodInfo
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.rest import ApiClient
from ksched.clock import Clock, LoopClock, stopwatch
from ksched.errors import KschedError
from ksched.framework.runtime.guard import Hook
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.queue.hints import HintTable
from ksched.scheduling.quarantine import marking_patch
from ksched.scheduling.scheduling_cycle import SchedulingCycle

log = logging.getLogger(__name__)

USER_AGENT: Final = f"ksched/{__version__} watchdog"
EXIT_CODE: Final = 1
LOOKS: Final = 40
"""Number of checks before the process is ended."""
REPORT_SHARE: Final = 0.3
QUARANTINE_SHARE: Final = 0.5
LAST_WORDS_SECONDS: Final = 2.0
"""Time limit of the last log lines: the reader of the log may hang as well."""

_CYCLE: Final = SchedulingCycle.run.__code__
_HINT: Final = HintTable._hint.__code__
_PERMIT_CALL: Final = PermitCalls._await_result.__code__
_ITSELF: Final = "scheduling the pod"


class Whereabouts(NamedTuple):
    """The innermost plugin call of a thread, and the pod it is about."""

    activity: str = ""
    plugin: str = ""
    pod: PodInfo | None = None


def whereabouts(frame: FrameType | None) -> Whereabouts:
    """Read from a stack which plugin is running, and for which pod.

    Without a plugin the pod is that of the scheduling cycle, if there is one.
    """
    activity = plugin = ""
    while frame is not None:
        names = frame.f_locals
        owner = names.get("self")
        if frame.f_code is _PERMIT_CALL:
            owner = names["hook"]
        if not activity and isinstance(owner, Hook):
            activity, plugin = owner.activity, owner.plugin
        elif not activity and frame.f_code is _HINT:
            plugin = names["plugin"]
            activity = f'running a queueing hint of plugin "{plugin}"'
        if activity or frame.f_code is _CYCLE:
            for value in (*names.get("args", ()), *map(names.get, ("pod", "queued", "waiting"))):
                pod = value if isinstance(value, PodInfo) else getattr(value, "pod", None)
                if isinstance(pod, PodInfo):
                    return Whereabouts(activity or _ITSELF, plugin, pod)
        frame = frame.f_back
    return Whereabouts(activity, plugin)


class Watchdog:
    """Watches one event loop from its own thread.

    ``limit_seconds`` is the silence after which the process ends, the renew deadline of the lease.
    ``remaining`` returns the seconds for which this process may write; ``quarantine`` is called
    with pod, activity, seconds of silence so far, and a time limit. Both run in other threads.
    """

    def __init__(
        self,
        limit_seconds: float,
        remaining: Callable[[], float],
        quarantine: Callable[[PodInfo, str, float, float], None],
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._remaining, self._quarantine, self._end = remaining, quarantine, end
        self._look_seconds = limit_seconds / LOOKS
        self._fed = self._seen = 0
        self._silent_seconds = 0.0
        self._is_reported = self._is_quarantined = False
        self._stopped = threading.Event()
        self._watched = 0

    async def feed(self, clock: Clock) -> None:
        """Signal, until cancelled, that the event loop is alive; starts watching its thread."""
        self._watched = threading.get_ident()
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            while True:
                self._fed += 1
                await clock.sleep(self._look_seconds)
        finally:
            self._stopped.set()

    def _watch(self) -> None:
        before = stopwatch()
        while not self._stopped.wait(self._look_seconds):
            now = stopwatch()
            self.look(now - before)
            before = now

    def look(self, elapsed_seconds: float) -> None:
        """Check once, ``elapsed_seconds`` after the last check."""
        if self._fed != self._seen:
            self._seen = self._fed
            if self._is_reported:
                seconds = round(self._silent_seconds, 1)
                log.warning("event loop runs again", extra={"hung_seconds": seconds})
            self._silent_seconds, self._is_reported, self._is_quarantined = 0.0, False, False
            return
        self._silent_seconds += min(elapsed_seconds, 2 * self._look_seconds)
        silent, limit = self._silent_seconds, self._limit_seconds
        if silent >= limit:
            _bounded(lambda: self._tell("event loop hangs, ending the process", last=True))
            self._end(EXIT_CODE)
        elif silent >= QUARANTINE_SHARE * limit and not self._is_quarantined:
            self._is_quarantined = True
            self._set_apart()
        elif silent >= REPORT_SHARE * limit and not self._is_reported:
            self._is_reported = True
            _bounded(lambda: self._tell("event loop hangs"))

    def _set_apart(self) -> None:
        at, remaining = self._whereabouts(), self._remaining()
        if at.pod is None or remaining <= 0:
            return
        pod, silent = at.pod, self._silent_seconds
        # The response may come after the end of the lease, but is not awaited beyond it.
        seconds = min(remaining, self._limit_seconds - silent)
        _bounded(lambda: self._quarantine(pod, at.activity, silent, seconds), seconds)

    def _whereabouts(self) -> Whereabouts:
        return whereabouts(sys._current_frames().get(self._watched))

    def _tell(self, sentence: str, *, last: bool = False) -> None:
        frame = sys._current_frames().get(self._watched)
        at = whereabouts(frame)
        extra = {
            "hung_seconds": round(self._silent_seconds, 1),
            "plugin": at.plugin,
            "activity": at.activity,
            "pod": at.pod.key if at.pod else "",
        }
        stack = "".join(traceback.format_stack(frame)).rstrip()
        level = logging.CRITICAL if last else logging.ERROR
        place = ("watchdog.py", 0, sentence, (), None)
        log.handle(log.makeRecord(log.name, level, *place, None, extra, stack))
        if last:
            for handler in logging.getLogger().handlers:
                handler.flush()


def quarantine_by(config: ClientConfig) -> Callable[[PodInfo, str, float, float], None]:
    """Return a function that quarantines a pod while the event loop hangs, on its own loop.

    Same credentials, separate connections: those of the other loop are stuck.
    """

    async def patch(pod: PodInfo, body: bytes, seconds: float) -> None:
        clock = LoopClock()
        transport = HttpTransport(config, clock, user_agent=USER_AGENT)
        try:
            async with asyncio.timeout(seconds):
                await ApiClient(transport, clock).patch_pod_status(pod.namespace, pod.name, body)
        finally:
            await transport.aclose()

    def quarantine(pod: PodInfo, activity: str, hung_seconds: float, seconds: float) -> None:
        body = marking_patch(pod, activity, hung_seconds, LoopClock().wall())
        try:
            asyncio.run(patch(pod, body, seconds))
        except (KschedError, OSError) as error:
            problem = str(error) or type(error).__name__
            log.error("pod not quarantined", extra={"pod": pod.key, "err": problem})
        else:
            log.error("pod quarantined", extra={"pod": pod.key, "activity": activity})

    return quarantine


def _bounded(work: Callable[[], None], seconds: float = LAST_WORDS_SECONDS) -> None:
    """Run something that may hang, and wait for it at most so many seconds."""
    thread = threading.Thread(target=work, name="watchdog at work", daemon=True)
    thread.start()
    thread.join(seconds)

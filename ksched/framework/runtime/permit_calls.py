"""Async Permit calls: each holds its own pod, never the scheduling cycle.

To other plugins an async ``permit`` looks like one that returned WAIT and allows or rejects later:
after a WAIT kube-scheduler continues with the remaining plugins too, and every waiting plugin has
to allow in the end. So the synchronous Permit plugins of a pod run first, in order, inside the
cycle; if none rejects, the async calls of the pod start in order and run concurrently. The first
rejection cancels the others.

A plugin has at most ``permit_concurrency`` running calls; further pods queue for a slot in the
order in which they were placed. A call's deadline (``timeout_seconds``) counts from its start. A
pod that gets no slot for ``MAX_WAIT_SECONDS`` is rejected like one that waited that long.

The tasks are owned here rather than by a task group, because a group waits without limit for a
plugin that swallows its cancellation. Here the pod goes on after ``CANCEL_SECONDS``; the straggler
occupies its slot until it ends, and is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.deadlines import Deadlines
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.runtime.profile_metrics import ProfileMetrics
from ksched.framework.runtime.reserve_to_post_bind import close, permit_answer
from ksched.framework.runtime.waiting_pods import (
    CANCEL_SECONDS,
    MAX_WAIT_SECONDS,
    Hold,
    Holding,
    WaitingPod,
)
from ksched.framework.status import Code


class PermitCall:
    """One plugin's Permit for one pod: queued for a slot, running, or finished."""

    __slots__ = ("_calls", "answer", "hook", "metrics", "state", "straggling", "task", "waiting")

    def __init__(
        self,
        calls: PermitCalls,
        hook: Hook,
        answer: Awaitable[Any] | None,
        state: CycleState,
        waiting: WaitingPod,
        metrics: ProfileMetrics,
    ) -> None:
        self._calls = calls
        self.hook, self.answer = hook, answer
        self.state, self.waiting, self.metrics = state, waiting, metrics
        self.task: asyncio.Task[None] | None = None
        self.straggling: asyncio.TimerHandle | None = None
        """Started when the call is cancelled; logs the plugin if the call does not end."""

    @property
    def plugin(self) -> str:
        return self.hook.plugin

    def hold(self) -> Hold:
        return self._calls.hold(self)

    def cancel(self) -> asyncio.Task[None] | None:
        """End the call without a result; returns the task that may still be cleaning up."""
        return self._calls.cancel(self)


class _Line:
    """The calls of one plugin: the number running, and those queued for a slot."""

    __slots__ = ("asked", "queued", "running")

    def __init__(self, hook: Hook) -> None:
        self.running = 0
        """Tasks that have not ended, cancelled ones included."""
        self.asked = Deadlines(hook.timeout_seconds, _late)
        self.queued = Deadlines(MAX_WAIT_SECONDS, _never_asked)


class PermitCalls:
    """Starts the async Permit calls of all profiles and owns their tasks.

    ``activate`` receives the pods that a plugin requests to be retried.
    """

    def __init__(self, activate: Callable[[Iterable[PodInfo]], None]) -> None:
        self._activate = activate
        self._lines: dict[Hook, _Line] = {}
        self._tasks: dict[asyncio.Task[None], PermitCall] = {}

    def start(
        self,
        hook: Hook,
        answer: Awaitable[Any] | None,
        state: CycleState,
        waiting: WaitingPod,
        metrics: ProfileMetrics,
    ) -> None:
        """Call one plugin for a held pod; the result settles the pod's wait, or prolongs it.

        ``answer`` is the awaitable that a synchronous method returned.
        """
        call = PermitCall(self, hook, answer, state, waiting, metrics)
        waiting.await_answer(call)
        line = self._lines.get(hook)
        if line is None:
            line = self._lines[hook] = _Line(hook)
        if line.running < hook.permit_concurrency:
            self._run(call, line)
        else:
            line.queued.add(call)

    def hold(self, call: PermitCall) -> Hold:
        """Describe how a call holds its pod; times count from its start, or from queueing."""
        line = self._lines[call.hook]
        deadlines, holding = (
            (line.queued, Holding.QUEUED) if call.task is None else (line.asked, Holding.ASKED)
        )
        return Hold(call.plugin, holding, *deadlines.span(call))

    def cancel(self, call: PermitCall) -> asyncio.Task[None] | None:
        """See ``PermitCall.cancel``."""
        line, task = self._lines[call.hook], call.task
        if task is None:
            line.queued.remove(call)
            close(call.answer)
            return None
        line.asked.remove(call)
        if not task.cancel():
            return None
        loop = asyncio.get_running_loop()
        call.straggling = loop.call_later(CANCEL_SECONDS, self._look_again, call)
        return task

    async def aclose(self) -> None:
        """Cancel running calls and wait for their end, ``CANCEL_SECONDS`` at most."""
        for task, call in list(self._tasks.items()):
            if not task.cancelling():
                self.cancel(call)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=CANCEL_SECONDS)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By plugin, the number of running calls and of calls queued for a slot."""
        sizes: dict[str, tuple[int, int]] = {}
        for hook, line in self._lines.items():
            running, queued = sizes.get(hook.plugin, (0, 0))
            sizes[hook.plugin] = (running + line.running, queued + len(line.queued))
        return sizes

    def forget_idle(self) -> None:
        """Drop the lines without a call; those of plugins that are gone would stay otherwise."""
        for hook, line in list(self._lines.items()):
            if not line.running and not len(line.queued):
                del self._lines[hook]

    # -- one call -------------------------------------------------------------------------------

    def _run(self, call: PermitCall, line: _Line) -> None:
        line.running += 1
        line.asked.add(call)
        loop = asyncio.get_running_loop()
        call.task = task = loop.create_task(
            self._await_result(call, line, loop.time()), name="permit"
        )
        self._tasks[task] = call
        task.add_done_callback(self._ended)

    async def _await_result(self, call: PermitCall, line: _Line, began: float) -> None:
        hook, state, waiting = call.hook, call.state, call.waiting
        code = Code.ERROR
        try:
            answer = call.answer
            if answer is None:
                answer = hook.call(state, waiting.pod, waiting.node_name)
            with hook:
                answer = await answer
            status, seconds = permit_answer(hook, answer)
            code = status.code
        except PluginFailure as failed:
            status, seconds = failed.status, 0.0
        finally:
            took = asyncio.get_running_loop().time() - began
            call.metrics.permit_called(hook.plugin, code, took)
        if not waiting.awaits(call):
            # Cancelled, but it returned a result all the same.
            return
        line.asked.remove(call)
        waiting.answer(call, hook.plugin, status, seconds)
        if state.pods_to_activate:
            self._activate(state.pods_to_activate.values())
            state.pods_to_activate.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Pass the slot to the next pod in line."""
        call = self._tasks.pop(task)
        if call.straggling is not None:
            call.straggling.cancel()
        line = self._lines[call.hook]
        line.running -= 1
        while line.running < call.hook.permit_concurrency:
            first = line.queued.pop_first()
            if first is None:
                return
            self._run(first, line)

    def _look_again(self, call: PermitCall) -> None:
        # The second may have passed in one iteration of a busy loop, before the task could end.
        loop = asyncio.get_running_loop()
        call.straggling = loop.call_later(CANCEL_SECONDS, _log_once, call)


def _late(call: PermitCall) -> None:
    call.waiting.settle(call.hook.late().status)


def _never_asked(call: PermitCall) -> None:
    call.waiting.time_out(call.hook.plugin, MAX_WAIT_SECONDS)


def _log_once(call: PermitCall) -> None:
    call.hook.log_once(f"went on for {CANCEL_SECONDS:g}s after its call was cancelled")

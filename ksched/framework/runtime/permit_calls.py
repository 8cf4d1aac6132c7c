"""Async Permit calls: each holds its own pod, never the scheduling cycle.

To the other plugins an async ``permit`` is one that answered WAIT and allows or rejects later:
after a WAIT kube-scheduler goes on with the remaining plugins too, and every plugin that waits must
allow in the end. So the synchronous Permit plugins of a pod run first, in order, inside the cycle;
if none rejects, the async calls of the pod start in order and run beside each other. The first
rejection cancels the others.

A plugin has at most ``permit_concurrency`` calls under way; further pods wait for a slot in the
order in which they were placed. A call's deadline (``timeout_seconds``) counts from its start. A
pod that gets no slot for ``MAX_WAIT_SECONDS`` is rejected like one that waited that long.

The tasks are owned here rather than by a task group, because a group waits without limit for a
plugin that swallows its cancellation. Here the pod goes on after ``CANCEL_SECONDS``; the straggler
keeps its slot until it ends, and is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.runtime.lifecycle import close, permit_answer
from ksched.framework.runtime.profile_metrics import ProfileMetrics
from ksched.framework.runtime.waiting_pods import CANCEL_SECONDS, MAX_WAIT_SECONDS, WaitingPod
from ksched.framework.status import Code


class PermitCall:
    """One plugin's Permit for one pod: in line for a slot, under way, or over."""

    __slots__ = ("_calls", "answer", "hook", "metrics", "state", "task", "timer", "waiting")

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
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self) -> asyncio.Task[None] | None:
        """End the call without its answer; returns the task that may still be cleaning up."""
        return self._calls.cancel(self)


class _Line:
    """The calls of one plugin: how many are under way, and which are in line for a slot."""

    __slots__ = ("queued", "running")

    def __init__(self) -> None:
        self.running = 0
        self.queued: dict[PermitCall, None] = {}


class PermitCalls:
    """Starts the async Permit calls of all profiles and owns their tasks.

    ``activate`` takes the pods that a plugin asked to be tried again.
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
        """Ask one plugin about a held pod; its answer settles the pod's wait, or prolongs it.

        ``answer`` is what a synchronous method returned to be awaited.
        """
        call = PermitCall(self, hook, answer, state, waiting, metrics)
        waiting.await_answer(hook.plugin, call)
        line = self._lines.get(hook)
        if line is None:
            line = self._lines[hook] = _Line()
        if line.running < hook.permit_concurrency:
            self._run(call, line)
            return
        line.queued[call] = None
        loop = asyncio.get_running_loop()
        call.timer = loop.call_later(
            MAX_WAIT_SECONDS, waiting.time_out, hook.plugin, MAX_WAIT_SECONDS
        )

    def cancel(self, call: PermitCall) -> asyncio.Task[None] | None:
        """See ``PermitCall.cancel``."""
        task = call.task
        if call.timer is not None:
            call.timer.cancel()
        if task is None:
            self._lines[call.hook].queued.pop(call, None)
            close(call.answer)
            return None
        if not task.cancel():
            return None
        loop = asyncio.get_running_loop()
        call.timer = loop.call_later(CANCEL_SECONDS, self._complain, call)
        return task

    async def aclose(self) -> None:
        """Cancel what is under way and wait for its end, ``CANCEL_SECONDS`` at most."""
        for task, call in list(self._tasks.items()):
            if not task.cancelling():
                self.cancel(call)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=CANCEL_SECONDS)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By plugin, how many calls are under way and how many wait for a slot."""
        sizes: dict[str, tuple[int, int]] = {}
        for hook, line in self._lines.items():
            running, queued = sizes.get(hook.plugin, (0, 0))
            sizes[hook.plugin] = (running + line.running, queued + len(line.queued))
        return sizes

    # -- one call -------------------------------------------------------------------------------

    def _run(self, call: PermitCall, line: _Line) -> None:
        line.running += 1
        loop = asyncio.get_running_loop()
        if call.timer is not None:
            call.timer.cancel()
        call.timer = loop.call_later(call.hook.timeout_seconds, self._late, call)
        call.task = task = loop.create_task(self._ask(call, loop.time()), name="permit")
        self._tasks[task] = call
        task.add_done_callback(self._ended)

    async def _ask(self, call: PermitCall, began: float) -> None:
        hook, state, waiting = call.hook, call.state, call.waiting
        code = Code.ERROR
        try:
            answer = call.answer
            if answer is None:
                answer = hook.call(state, waiting.pod, waiting.node_name)
            status, seconds = permit_answer(hook, await hook.outcome(answer))
            code = status.code
        except PluginFailure as failed:
            status, seconds = failed.status, 0.0
        finally:
            took = asyncio.get_running_loop().time() - began
            call.metrics.permit_called(hook.plugin, code, took)
        if not waiting.awaits(hook.plugin):
            # Cancelled, but answered all the same.
            return
        if call.timer is not None:
            call.timer.cancel()
        waiting.answer(hook.plugin, status, seconds)
        if state.pods_to_activate:
            self._activate(state.pods_to_activate.values())
            state.pods_to_activate.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Give the slot to the next pod in line."""
        call = self._tasks.pop(task)
        # A plugin that cancelled its own task did not answer: its deadline goes on.
        if call.timer is not None and not call.waiting.awaits(call.hook.plugin):
            call.timer.cancel()
        line = self._lines[call.hook]
        line.running -= 1
        while line.queued and line.running < call.hook.permit_concurrency:
            first = next(iter(line.queued))
            del line.queued[first]
            self._run(first, line)

    def _late(self, call: PermitCall) -> None:
        call.waiting.settle(call.hook.late().status)

    def _complain(self, call: PermitCall) -> None:
        call.hook.complain(f"went on for {CANCEL_SECONDS:g}s after its call was cancelled")

"""Pods held at Permit until every plugin that returned WAIT, or whose async call has not returned
yet, has allowed them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from ksched.cache.pod_info import PodInfo
from ksched.framework.status import SUCCESS, Code, Status, unschedulable
from ksched.framework.untrusted_values import is_text, safe_repr

MAX_WAIT_SECONDS = 15 * 60.0
CANCEL_SECONDS = 1.0
"""How long a pod, and the scheduler at shutdown, waits for a cancelled call to end."""


class Holding(StrEnum):
    """How a plugin holds a pod."""

    WAITING = "waiting"
    """It returned WAIT."""
    ASKED = "asked"
    """Its async Permit call is running."""
    QUEUED = "queued"
    """Its async Permit call is queued for a slot."""


class Hold(NamedTuple):
    """Which plugin holds a pod, since when, and until when at most, on the event loop's clock."""

    plugin: str
    holding: Holding
    since: float
    until: float


class Call(Protocol):
    """An async Permit call that has not returned yet."""

    @property
    def plugin(self) -> str: ...

    def hold(self) -> Hold: ...

    def cancel(self) -> asyncio.Task[None] | None:
        """End it without a result; a returned task may take a moment to end."""
        ...


class WaitingPod:
    """One held pod. The first result that settles it wins; later ones are ignored.

    It is held by plugins that returned WAIT, each with a timer, and by pending calls.
    """

    __slots__ = ("_calls", "_ending", "_held_by", "_timers", "node_name", "pod", "settled")

    def __init__(
        self, pod: PodInfo, node_name: str, timeouts: Mapping[str, float], held_by: Counter[str]
    ) -> None:
        self.pod = pod
        self.node_name = node_name
        self.settled: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._held_by = held_by
        """Number of pods that each plugin holds, over all pods."""
        self._timers: dict[str, _Timer] = {}
        self._calls: list[Call] = []
        self._ending: list[asyncio.Task[None]] | None = None
        for plugin, seconds in timeouts.items():
            self._wait_for(plugin, seconds)

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that returned WAIT and have not allowed the pod since.

        kube-scheduler: GetPendingPlugins.
        """
        return frozenset(self._timers)

    def holds(self) -> list[Hold]:
        """What the pod waits for, in the order in which the plugins returned or were called."""
        waits = [
            Hold(plugin, Holding.WAITING, since, timer.when())
            for plugin, (timer, since) in self._timers.items()
        ]
        return waits + [call.hold() for call in self._calls]

    def allow(self, plugin: str) -> None:
        held = self._timers.pop(plugin, None)
        if held is not None:
            held.timer.cancel()
            self._held_by[plugin] -= 1
        self._go_on()

    def reject(self, plugin: str, message: str) -> None:
        # Plugins call this, also outside of any call that an exception could be attributed to.
        text, name = (one if is_text(one) else safe_repr(one) for one in (message, plugin))
        self.settle(unschedulable(text).by(name))

    def preempt(self, message: str) -> bool:
        """Requeue the pod because its node is needed; an ERROR, so that it only backs off.

        False if it is settled already and about to be bound.
        """
        return self.settle(Status(Code.ERROR, (f"waiting on permit for pod: {message}",)))

    @property
    def is_rejected(self) -> bool:
        """Whether the pod is on its way back to the queue."""
        settled = self.settled
        return settled.done() and not settled.cancelled() and not settled.result().is_success

    def settle(self, status: Status) -> bool:
        """End the wait; False if it had ended already."""
        self._release()
        if self.settled.done():
            return False
        self.settled.set_result(status)
        return True

    def cancel(self) -> None:
        """End the wait without an outcome: the waiting task is cancelled."""
        self._release()
        self.settled.cancel()

    def time_out(self, plugin: str, seconds: float) -> None:
        waited = go_duration(seconds)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    # -- async calls ----------------------------------------------------------------------------

    def await_answer(self, call: Call) -> None:
        """Hold the pod until this call has returned too."""
        self._calls.append(call)
        self._held_by[call.plugin] += 1

    def awaits(self, call: Call) -> bool:
        return call in self._calls

    def answer(self, call: Call, plugin: str, status: Status, timeout_seconds: float) -> None:
        """Apply the result of a plugin's call, which has ended."""
        self._calls.remove(call)
        self._held_by[plugin] -= 1
        if status.is_wait:
            self._wait_for(plugin, timeout_seconds)
        elif status.is_success:
            self._go_on()
        else:
            self.settle(status)

    async def calls_ended(self) -> None:
        """Wait until cancelled calls have ended, or are known to be stragglers."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=CANCEL_SECONDS)

    def _wait_for(self, plugin: str, seconds: float) -> None:
        seconds = min(seconds, MAX_WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self.time_out, plugin, seconds)
        self._timers[plugin] = _Timer(timer, loop.time())
        self._held_by[plugin] += 1

    def _go_on(self) -> None:
        if not (self._timers or self._calls):
            self.settle(SUCCESS)

    def _release(self) -> None:
        """kube-scheduler: stopWithStatus."""
        for plugin, held in self._timers.items():
            held.timer.cancel()
            self._held_by[plugin] -= 1
        self._timers.clear()
        while self._calls:
            call = self._calls.pop()
            self._held_by[call.plugin] -= 1
            task = call.cancel()
            if task is not None:
                self._ending = [*(self._ending or ()), task]


class _Timer(NamedTuple):
    timer: asyncio.TimerHandle
    since: float


class WaitingPods:
    """All held pods by UID; shared by the profiles of a scheduler.

    kube-scheduler: waitingPodsMap.
    """

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}
        self.held_by: Counter[str] = Counter()
        """Number of pods that each plugin holds; a pod counts for each of its plugins."""
        self._is_closed = False

    def hold(self, pod: PodInfo, node_name: str, timeouts: Mapping[str, float]) -> WaitingPod:
        """Hold a pod for at most ``timeouts[plugin]`` seconds per plugin.

        kube-scheduler: AddWaitingPod.
        """
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, timeouts, self.held_by)
        return waiting

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    async def wait(self, uid: str) -> Status:
        """Wait until a pod is allowed or rejected; returns at once if it is not held.

        Cancelled when holding ends (``close``).

        kube-scheduler: WaitOnPermit.
        """
        waiting = self._pods.get(uid)
        if waiting is None:
            return SUCCESS
        if self._is_closed:
            waiting.cancel()
        try:
            status = await waiting.settled
            await waiting.calls_ended()
        finally:
            self.discard(uid)
        return status

    def discard(self, uid: str) -> None:
        """Stop holding a pod whose attempt is over."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.cancel()

    def close(self) -> None:
        """End all holds: the attempts of pods held now or later are cancelled."""
        self._is_closed = True
        for waiting in self:
            waiting.cancel()


def go_duration(seconds: float) -> str:
    """Format a duration as Go prints it: ``1m30s``, ``5m0s``, ``2s``, ``500ms``."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms" if seconds >= 0.001 else f"{seconds * 1e6:g}µs"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{int(minutes)}m{text}"
    return f"{int(hours)}h{text}" if hours else text

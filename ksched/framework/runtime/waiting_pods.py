"""Pods held at Permit until every plugin that asked to wait has allowed them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from ksched.cache.pod_info import PodInfo
from ksched.framework.status import SUCCESS, Code, Status, unschedulable

MAX_WAIT_SECONDS = 15 * 60.0


class WaitingPod:
    """One held pod. The first answer that settles it wins; later ones are ignored."""

    def __init__(self, pod: PodInfo, node_name: str, timeouts: Mapping[str, float]) -> None:
        self.pod = pod
        self.node_name = node_name
        loop = asyncio.get_running_loop()
        self.settled: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(seconds, self._time_out, plugin, seconds)
            for plugin, seconds in timeouts.items()
        }

    @property
    def pending_plugins(self) -> frozenset[str]:
        return frozenset(self._timers)

    def allow(self, plugin: str) -> None:
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._settle(SUCCESS)

    def reject(self, plugin: str, message: str) -> None:
        self._settle(unschedulable(message).by(plugin))

    def preempt(self, message: str) -> bool:
        """Send the pod back because its place is needed; an error, so that it only backs off.

        False if it is settled already and about to go on.
        """
        return self._settle(Status(Code.ERROR, (f"waiting on permit for pod: {message}",)))

    def _time_out(self, plugin: str, seconds: float) -> None:
        waited = go_duration(seconds)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def _settle(self, status: Status) -> bool:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self.settled.done():
            return False
        self.settled.set_result(status)
        return True


class WaitingPods:
    """All held pods by UID; shared by the profiles of a scheduler."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def hold(self, pod: PodInfo, node_name: str, timeouts: Mapping[str, float]) -> WaitingPod:
        """Hold a pod for at most ``timeouts[plugin]`` seconds per plugin."""
        capped = {plugin: min(seconds, MAX_WAIT_SECONDS) for plugin, seconds in timeouts.items()}
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, capped)
        return waiting

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    async def wait(self, uid: str) -> Status:
        """Wait until a pod is allowed or rejected; at once if it is not held."""
        waiting = self._pods.get(uid)
        if waiting is None:
            return SUCCESS
        try:
            return await waiting.settled
        finally:
            self._pods.pop(uid, None)

    def discard(self, uid: str) -> None:
        """Stop holding a pod nobody will wait for."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting._settle(SUCCESS)


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

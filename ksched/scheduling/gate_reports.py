"""Writes to gated pods what their group waits for, once the group has stopped growing.

The pods of a group are usually created within seconds, and then placed: a condition for each that
comes before the last one would double the requests that a group needs. So a group is reported after
``QUIET_SECONDS`` without a new gated pod, and in any case ``LONGEST_SECONDS`` after the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final

from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock
from ksched.groups.registry import Groups
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.tuning import PODS_PER_SLICE

QUIET_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 60.0
SCHEDULING_GATED: Final = "SchedulingGated"
"""Reason of the PodScheduled condition of a pod that is not to be tried yet. Not Unschedulable: an
autoscaler would add nodes for it."""


class _Gated:
    """The pods of a group that were gated since its last report."""

    __slots__ = ("due", "latest", "uids")

    def __init__(self, now: float) -> None:
        self.due = now + QUIET_SECONDS
        self.latest = now + LONGEST_SECONDS
        self.uids: dict[str, None] = {}


class GateReports:
    """Groups with pods to report, the least recently changed first."""

    def __init__(
        self, status: PodStatusUpdater, groups: Groups, pending: PendingPods, clock: Clock
    ) -> None:
        self._status = status
        self._groups = groups
        self._pending = pending
        self._clock = clock
        self._gated: dict[Hashable, _Gated] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._gated)

    def gated(self, pod: PodInfo) -> None:
        """A plugin has gated a pod."""
        group, now = self._groups.of(pod.uid), self._clock.now()
        key: Hashable = pod.uid if group is None else group.key
        gated = self._gated.pop(key, None) or _Gated(now)
        gated.due = min(now + QUIET_SECONDS, gated.latest)
        gated.uids[pod.uid] = None
        self._gated[key] = gated
        self._wake.set()

    async def run(self) -> None:
        """Report groups until cancelled."""
        while True:
            if not self._gated:
                self._wake.clear()
                await self._wake.wait()
            due = min(gated.due for gated in self._gated.values())
            delay = due - self._clock.now()
            # Groups that change meanwhile are due later.
            await self._clock.sleep(max(delay, QUIET_SECONDS / 4))
            now = self._clock.now()
            for key in [key for key, gated in self._gated.items() if gated.due <= now]:
                gated = self._gated.pop(key, None)
                if gated is not None:
                    await self._report(gated)

    async def _report(self, gated: _Gated) -> None:
        for number, uid in enumerate(gated.uids, 1):
            pod, reason = self._pending.get(uid), self._groups.why_gated(uid)
            if pod is not None and reason:
                self._status.set(pod, DesiredStatus(SCHEDULING_GATED, reason))
            if number % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)

"""Writes to gated pods what their group waits for, once the group has stopped growing.

The pods of a group are usually created within seconds, and then placed: a condition for each that
comes before the last one would double the requests that a group needs. So a group is reported after
``QUIET_SECONDS`` without a new gated pod, and in any case ``LONGEST_SECONDS`` after the first.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import Group, GroupKey
from ksched.groups.registry import Groups
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater

QUIET_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 60.0
SCHEDULING_GATED: Final = "SchedulingGated"
"""Reason of the PodScheduled condition of a pod that is not to be tried yet. Not Unschedulable: an
autoscaler would add nodes for it."""


class _Due(NamedTuple):
    """When a group is reported."""

    at: float
    latest: float


class GateReports:
    """Groups with gated pods to report, the least recently changed first."""

    def __init__(
        self, status: PodStatusUpdater, groups: Groups, pending: PendingPods, clock: Clock
    ) -> None:
        self._status = status
        self._groups = groups
        self._pending = pending
        self._clock = clock
        self._due: dict[GroupKey, _Due] = {}
        self._wake = asyncio.Event()
        self._is_running = False

    def __len__(self) -> int:
        return len(self._due)

    def gated(self, pod: PodInfo) -> None:
        """A plugin has gated a pod."""
        group = self._groups.of(pod.uid)
        if group is not None:
            self.changed(group)

    def changed(self, group: Group) -> None:
        """The pods of a group are gated, or for another reason. Standby replicas report nothing."""
        if not self._is_running:
            return
        now = self._clock.now()
        due = self._due.pop(group.key, None)
        latest = now + LONGEST_SECONDS if due is None else due.latest
        self._due[group.key] = _Due(min(now + QUIET_SECONDS, latest), latest)
        self._wake.set()

    async def run(self) -> None:
        """Report groups until cancelled."""
        self._is_running = True
        try:
            for group in self._groups:
                if group.gate_reason:
                    self.changed(group)
            await self._work()
        finally:
            self._is_running = False
            self._due.clear()

    async def _work(self) -> None:
        while True:
            if not self._due:
                self._wake.clear()
                await self._wake.wait()
            delay = min(due.at for due in self._due.values()) - self._clock.now()
            # Groups that change meanwhile are due later.
            await self._clock.sleep(max(delay, QUIET_SECONDS / 4))
            now, turn = self._clock.now(), TimeSlice(self._clock.now)
            for key in [key for key, due in self._due.items() if due.at <= now]:
                if self._due.pop(key, None) is not None:
                    await self._report(key, turn)

    async def _report(self, key: GroupKey, turn: TimeSlice) -> None:
        group = self._groups.get(key)
        for member in [] if group is None else group.available():
            uid = member.pod.uid
            pod, reason = self._pending.get(uid), self._groups.why_gated(uid)
            if pod is not None and reason:
                self._status.set(pod, DesiredStatus(SCHEDULING_GATED, reason))
            await turn.give_way_if_over()

"""Writes the status of group objects: conditions or phases, depending on the dialect.

Never within a cycle: a change of a group marks its key, and half a second later a worker writes the
current state, so that a gang whose members are bound one by one is written once. A status that the
object has, or that was sent already, is not sent again: where a controller of the dialect writes
other values, the two do not alternate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Final

import msgspec

from ksched.client.rate_limit import RateLimiter
from ksched.client.rest import ApiClient
from ksched.client.retry import STATUS_PATCH
from ksched.clock import Clock
from ksched.errors import ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import GroupKey
from ksched.groups.registry import Groups
from ksched.groups.report import Report
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.5
"""Between a change and its report, and before a report that failed is sent again."""
TIMEOUT_SECONDS: Final = 10.0
WORKERS: Final = 2
QPS, BURST = 20.0, 100
"""A separate rate limit: a thousand groups that do not fit take no token from a bind."""


class GroupStatusUpdater:
    """The only writer of the status of group objects."""

    def __init__(
        self,
        client: ApiClient,
        groups: Groups,
        clock: Clock,
        unexpected_errors: UnexpectedErrors,
    ) -> None:
        self._client = client.with_limiter(RateLimiter(QPS, BURST, clock))
        self._groups = groups
        self._clock = clock
        self._unexpected_errors = unexpected_errors
        self._due: dict[GroupKey, float] = {}
        """When each changed group is reported, in this order."""
        self._busy: set[GroupKey] = set()
        self._sent: dict[GroupKey, tuple[str, Hashable]] = {}
        """What was sent last, by the UID of the object: the watch lags behind."""
        self._wake = asyncio.Event()
        self._is_running = False

    def changed(self, key: GroupKey) -> None:
        """Report a group, unless that is due already. Standby replicas report nothing."""
        if self._is_running and key not in self._due:
            self._due[key] = self._clock.now() + PAUSE_SECONDS
            self._wake.set()

    def forget_sent(self) -> None:
        """Assume that nothing was sent: the API server may have lost it."""
        self._sent.clear()

    def __len__(self) -> int:
        return len(self._due) + len(self._busy)

    async def run(self) -> None:
        """Report all groups, then those that change, until cancelled."""
        self._is_running = True
        try:
            for group in self._groups:
                self.changed(group.key)
            async with asyncio.TaskGroup() as workers:
                for number in range(WORKERS):
                    workers.create_task(self._work(), name=f"group status {number}")
        finally:
            self._is_running = False
            self._due.clear()
            self._sent.clear()

    async def _work(self) -> None:
        turn = TimeSlice(self._clock.now)
        while True:
            await turn.give_way_if_over()
            key = next((key for key in self._due if key not in self._busy), None)
            if key is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            delay = self._due[key] - self._clock.now()
            self._busy.add(key)
            try:
                if delay > 0:
                    await self._clock.sleep(delay)
                # A change from here on is a report of its own.
                del self._due[key]
                await self._report(key)
            finally:
                self._busy.discard(key)
                self._wake.set()

    async def _report(self, key: GroupKey) -> None:
        try:
            report = self._groups.report(key)
            if report is None:
                self._sent.pop(key, None)
                return
            uid, known = self._sent.get(key, ("", None))
            if report.wanted == (known if uid == report.uid else report.current):
                return
            await self._send(key, report)
        except Exception as problem:  # noqa: BLE001 - reported
            self._unexpected_errors.report("group status", str(key), problem)

    async def _send(self, key: GroupKey, report: Report) -> None:
        metadata = {"uid": report.uid}
        if report.resource_version:
            metadata["resourceVersion"] = report.resource_version
        body = msgspec.json.encode({"metadata": metadata, "status": report.status})
        self._sent[key] = (report.uid, report.wanted)
        delivered = False
        try:
            await self._client.patch(
                report.resource,
                key.namespace,
                key.name,
                body,
                subresource="status",
                content_type=report.content_type,
                timeout=TIMEOUT_SECONDS,
                retry=STATUS_PATCH,
            )
            delivered = True
        except NotFound:
            log.debug("group is gone, status not updated", extra={"group": str(key)})
        except ApiError as error:
            log.warning("group status not updated", extra={"group": str(key), "err": str(error)})
            if isinstance(error, Conflict | TooManyRequests | Unavailable):
                self.changed(key)
        finally:
            if not delivered:
                self._sent.pop(key, None)

"""Counts the ended pods of groups, which the pod watch excludes.

The replacement of a job's last worker must not wait for workers that have succeeded, and a group
whose members have succeeded is not broken: both are known only by a list. One list of the ended
pods of a namespace serves all its groups, ``PAUSE_SECONDS`` after the first needs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from ksched.api.decoding import decode_items, decode_pod
from ksched.api.resources import PODS
from ksched.client.rest import ApiClient, Selection
from ksched.client.retry import REPEATABLE
from ksched.clock import Clock
from ksched.errors import ApiError
from ksched.groups.group import AVAILABLE, BOUND, Group, GroupKey, run_of
from ksched.groups.registry import Groups
from ksched.groups.states import BROKEN, INCOMPLETE, state_of
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 3.0
"""From a need to the list that serves it; most incomplete groups are complete by then."""
COST_FACTOR: Final = 20.0
"""A slow list is repeated after this many times its duration."""
ENDED = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


class Ended:
    """Ended pods of a group: how many succeeded, by run, and how many failed."""

    def __init__(self) -> None:
        self.succeeded: Counter[str] = Counter()
        self.failed = 0


Counts = dict[GroupKey, Ended]


class FinishedMembers:
    """Lists ended pods by namespace, one list at a time."""

    def __init__(
        self,
        client: ApiClient,
        groups: Groups,
        clock: Clock,
        unexpected_errors: UnexpectedErrors,
    ) -> None:
        self._client = client
        self._groups = groups
        self._clock = clock
        self._unexpected_errors = unexpected_errors
        self._due: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        """Longer pauses of namespaces with slow lists."""
        self._wake = asyncio.Event()
        self._is_running = False

    def need(self, namespace: str, after_seconds: float = PAUSE_SECONDS) -> None:
        """List the ended pods of a namespace after a while, unless that is due before."""
        if self._is_running:
            pause = max(after_seconds, self._pause.get(namespace, PAUSE_SECONDS))
            due = self._clock.now() + pause
            self._due[namespace] = min(due, self._due.get(namespace, due))
            self._wake.set()

    async def run(self) -> None:
        """List what groups need until cancelled."""
        self._is_running = True
        try:
            for group in self._groups:
                if _is_in_doubt(group):
                    self.need(group.key.namespace)
            await self._work()
        finally:
            self._is_running = False
            self._due.clear()

    async def _work(self) -> None:
        while True:
            if not self._due:
                self._wake.clear()
                await self._wake.wait()
                continue
            namespace = min(self._due, key=self._due.__getitem__)
            delay = self._due[namespace] - self._clock.now()
            if delay > 0:
                # Others may be due before it, but no sooner than after this pause.
                await self._clock.sleep(min(delay, PAUSE_SECONDS))
                continue
            # Needs that arise during the list are served by the next one.
            del self._due[namespace]
            try:
                await self._read(namespace)
            except ApiError as error:
                log.warning(
                    "ended pods not read", extra={"namespace": namespace, "err": str(error)}
                )
                self.need(namespace)
            except Exception as problem:  # noqa: BLE001 - reported
                self._unexpected_errors.report("ended pods", namespace, problem)

    async def _read(self, namespace: str) -> None:
        waiting = [
            (group, group.unread_ends, group.is_idle)
            for group in self._groups
            if group.key.namespace == namespace and _is_in_doubt(group)
        ]
        if not waiting:
            return
        began = self._clock.now()
        counts = await self._count(namespace)
        pause = max(PAUSE_SECONDS, COST_FACTOR * (self._clock.now() - began))
        if pause > PAUSE_SECONDS:
            self._pause[namespace] = pause
        else:
            self._pause.pop(namespace, None)
        for group, ends, was_idle in waiting:
            found = counts.get(group.key, Ended())
            self._groups.ends_read(group, found.succeeded, found.failed, ends, was_idle=was_idle)
            if self._groups.may_be_old(group) and group.terms is not None:
                self.need(namespace, group.terms.timeout_seconds)

    async def _count(self, namespace: str) -> Counts:
        """Count the ended pods of each group by phase."""
        counts: Counts = {}
        selection, token = Selection(namespace, ENDED), ""
        while True:
            page = await self._client.list_page(
                PODS, selection, continue_token=token, retry=REPEATABLE
            )
            pods, _ = decode_items(decode_pod, page.items)
            for pod in pods:
                key = self._groups.key_of(pod)
                if key is None:
                    continue
                ended = counts.setdefault(key, Ended())
                if pod.status.phase == "Succeeded":
                    ended.succeeded[run_of(pod)] += 1
                else:
                    ended.failed += 1
            token = page.metadata.continue_token
            if not token:
                return counts


def _is_in_doubt(group: Group) -> bool:
    """Whether the state of a group may depend on ended pods."""
    if group.unread_ends:
        return True
    is_there = group.counts[AVAILABLE] or group.counts[BOUND]
    return bool(is_there) and state_of(group) in (INCOMPLETE, BROKEN)

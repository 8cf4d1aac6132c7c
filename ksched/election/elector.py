"""Acquire, renew, release: work that runs only while a lock is held.

::

    campaign ── acquired ── work ──────────────────────────── returns, fails ── release
       ▲          every retry period: renew                    or is cancelled
       │                                    │
       └── the caller, if desired           └ not renewed for the renew deadline: work is cancelled,
                                              LeaseLost

Two clocks decide, and both are monotonic and local. A candidate considers a record valid until it
has not changed for the record's lease duration since the candidate first saw it. A leader considers
itself valid until the renew deadline after it *sent* its last successful renewal. The candidate
cannot see that renewal before it was sent, so the leader has stopped at least lease duration minus
renew deadline before another takes over, whatever the wall clocks show. This holds as long as the
two clocks run at about the same speed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio
from msgspec import structs

from ksched.client.retry import Backoff
from ksched.client.watch_store import is_older
from ksched.clock import Clock, rfc3339_micro
from ksched.configuration.model import LeaderElection
from ksched.election.locks import ResourceLock
from ksched.election.record import LeaderElectionRecord
from ksched.errors import ApiError, Conflict, InvalidObject, LeaseLost, NotFound, Unavailable

log = logging.getLogger(__name__)

JITTER_FACTOR: Final = 1.2
"""A candidate's pause is extended at random by up to this share, to desynchronize candidates."""
TOLERATED_SECONDS: Final = 20.0
"""How long after its lease expired a leader that does not stop is reported unhealthy."""
EVENT_SECONDS: Final = 1.0
"""Time limit for an Event about the election."""

_MOMENT_SECONDS: Final = 0.01
_RELEASE_TRIES: Final = 3
_HEALTHY_WATCH_SECONDS: Final = 10.0


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Callbacks:
    """Callbacks on transitions; they must neither fail nor wait.

    kube-scheduler: LeaderCallbacks.
    """

    started_leading: Callable[[], None] = _nothing
    stopped_leading: Callable[[], None] = _nothing
    """After the work has ended, before the lock is released."""
    new_leader: Callable[[str], None] = _nothing
    """The lock has a new holder, possibly this process; with the identity."""
    history_lost: Callable[[], None] = _nothing
    """The record is older than one seen before: the API server was restored from a backup."""
    slow_path: Callable[[], None] = _nothing
    """A renewal needed more than one request."""


class _Taken(Exception):
    """Another candidate holds the lock that this one considered its own."""


class Elector:
    """One candidate for a lock. ``run`` may be called again after it has ended.

    kube-scheduler: LeaderElector, LeaderElectionConfig.
    """

    def __init__(
        self,
        lock: ResourceLock,
        config: LeaderElection,
        clock: Clock,
        *,
        callbacks: Callbacks | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._lock, self._config, self._clock = lock, config, clock
        self._callbacks = callbacks or Callbacks()
        self._rng = rng or random.Random()
        # A call that hangs must leave time for another one.
        self._call_seconds = config.renew_deadline_seconds / 2
        self._observed: LeaderElectionRecord | None = None
        self._observed_at = 0.0
        self._observed_version = ""
        # The version of the last record that turned out to be older than the observed one.
        self._older_version = ""
        self._reported = ""
        self._complaint = ""
        self._wake = asyncio.Event()
        self._is_leading = False
        self._renewed_at = -math.inf
        self._may_hold = False
        self._lost = ""

    @property
    def is_leading(self) -> bool:
        """Whether the work runs, or is about to end because the lease was lost.

        kube-scheduler: IsLeader.
        """
        return self._is_leading

    @property
    def leader(self) -> str:
        """The holder of the lock when it was last read; empty if there was none.

        kube-scheduler: GetLeader.
        """
        return self._observed.holder_identity if self._observed else ""

    def remaining(self) -> float:
        """Return the seconds for which the work may still write; 0 when it may not."""
        if not self._is_leading or self._lost:
            return 0.0
        deadline = self._renewed_at + self._config.renew_deadline_seconds
        return max(deadline - self._clock.now(), 0.0)

    def problem(self) -> str:
        """The problem for a health check; empty while another replica leads.

        kube-scheduler: LeaderElector.Check.
        """
        tolerated = self._config.lease_duration_seconds + TOLERATED_SECONDS
        if not self._is_leading or self._clock.now() - self._renewed_at <= tolerated:
            return ""
        return f"failed election to renew leadership on lease {self._lock.describe()}"

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lock, then run ``work`` while it is held.

        Raises ``LeaseLost`` when the work had to be cancelled, and a group with the work's own
        exceptions. When the work ends by itself, or ``run`` is cancelled, the lock is released so
        that the next candidate may take it at once. It is not released when it was lost: requests
        that were sent in time may still be in flight, for the rest of the lease.

        kube-scheduler: RunOrDie.
        """
        try:
            await self._campaign()
            self._callbacks.started_leading()
            async with anyio.create_task_group() as tasks:
                with anyio.CancelScope() as scope:
                    tasks.start_soon(self._keep_renewed, scope, name="renew lease")
                    tasks.start_soon(
                        self._report_transition, "became leader", name="record election"
                    )
                    await work()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._step_down()
        if self._lost:
            raise LeaseLost(self._lock.describe(), self._lost)

    # -- candidate ------------------------------------------------------------------------------

    async def _campaign(self) -> None:
        """Return when the lock is acquired. kube-scheduler: LeaderElector.acquire."""
        self._lost = ""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, name="watch lock")
            while True:
                self._wake.clear()
                if await self._try_acquire_or_renew():
                    break
                with anyio.move_on_after(self._pause()):
                    await self._wake.wait()
            tasks.cancel_scope.cancel()

    def _pause(self) -> float:
        """Time until the next try: a jittered retry period, or the end of the lease if sooner."""
        retry_period = self._config.retry_period_seconds
        pause = retry_period * (1.0 + JITTER_FACTOR * self._rng.random())
        until_expiry = self._expires_at() - self._clock.now()
        # Slightly after the end: timers and clocks round, and the lease would still be valid.
        return min(pause, until_expiry + _MOMENT_SECONDS) if until_expiry > 0 else pause

    async def _follow(self) -> None:
        """Watch the lock: a change is seen when it happens, and a release needs no polling.

        Optional: without it (the watch permission may be missing) a candidate sees the same a
        retry period later.
        """
        backoff = Backoff(self._rng, initial=self._config.retry_period_seconds)
        while True:
            began = self._clock.now()
            try:
                await self._lock.watch(
                    self._changed, idle_timeout=2 * self._config.lease_duration_seconds
                )
            except (ApiError, InvalidObject) as error:
                log.debug("lock is not watched", extra={"err": str(error)})
            if self._clock.now() - began >= _HEALTHY_WATCH_SECONDS:
                backoff.reset()
            await self._clock.sleep(backoff.next())

    def _changed(self, record: LeaderElectionRecord, version: str) -> None:
        if is_older(version, self._observed_version):
            # The next read handles it.
            return
        self._observe(record, version)
        if not record.holder_identity:
            self._wake.set()

    # -- leader ---------------------------------------------------------------------------------

    async def _keep_renewed(self, work: anyio.CancelScope) -> None:
        """Renew until that fails for too long, then cancel the work.

        kube-scheduler: LeaderElector.renew.
        """
        retry_period = pause = self._config.retry_period_seconds
        try:
            while True:
                await self._clock.sleep(min(pause, self.remaining()))
                if self.remaining() < _MOMENT_SECONDS:
                    deadline = self._config.renew_deadline_seconds
                    self._lost = f"not renewed for {deadline:g} seconds"
                    break
                pause = retry_period
                if not await self._try_acquire_or_renew():
                    # More often towards the end: an outage that ends just in time is survived.
                    pause = min(retry_period, max(self.remaining() / 2, retry_period / 8))
        except _Taken as taken:
            self._lost = f"taken by {taken}"
        work.cancel()

    async def _step_down(self) -> None:
        was_leading, self._is_leading = self._is_leading, False
        if was_leading:
            self._callbacks.stopped_leading()
        if self._may_hold and not self._lost:
            try:
                async with asyncio.timeout(self._call_seconds):
                    await self._release()
            except (ApiError, InvalidObject, TimeoutError) as error:
                log.warning(
                    "lock not released, it will expire",
                    extra={"lock": self._lock.describe(), "err": _text(error)},
                )
        if was_leading:
            await self._report_transition("stopped leading")

    async def _release(self) -> None:
        """Release the lock, if it is held. A renewal may still be in flight: try again.

        kube-scheduler: LeaderElector.release.
        """
        for left in reversed(range(_RELEASE_TRIES)):
            record = await self._lock.get(self._call_seconds)
            if record.holder_identity != self._lock.identity:
                return
            now = rfc3339_micro(self._clock.wall())
            released = structs.replace(
                record,
                holder_identity="",
                lease_duration_seconds=1,
                acquire_time=now,
                renew_time=now,
            )
            try:
                await self._lock.update(released, self._call_seconds)
            except Conflict:
                if left:
                    continue
                raise
            self._may_hold = False
            self._observe(released, self._lock.version)
            return

    # -- both -----------------------------------------------------------------------------------

    async def _try_acquire_or_renew(self) -> bool:
        """Write our identity into the record if allowed; True if that succeeded.

        Raises ``_Taken`` if another candidate holds the lock that this one considered its own.

        kube-scheduler: tryAcquireOrRenew.
        """
        try:
            if self._is_leading and await self._renew_at_once():
                return True
            return await self._look_and_write()
        except (ApiError, InvalidObject, TimeoutError) as error:
            self._log_once(error)
            return False

    async def _renew_at_once(self) -> bool:
        """Renew with a single request, which succeeds unless something unusual happened."""
        assert self._observed is not None
        try:
            await self._write(self._lock.update, self._observed)
        except (ApiError, InvalidObject, TimeoutError) as error:
            self._callbacks.slow_path()
            log.debug("renewal failed, looking at the record", extra={"err": _text(error)})
            return False
        return True

    async def _look_and_write(self) -> bool:
        try:
            async with asyncio.timeout(self._patience()):
                record = await self._lock.get(self._patience())
        except NotFound:
            # Deleted is not released: its holder may be alive and about to recreate it.
            if self._is_held_elsewhere():
                return False
            await self._write(self._lock.create, None)
            return True
        if self._went_back():
            # The observed record is newer, and its holder may be alive: a restored backup neither
            # takes a lease away, from another or from us, nor returns one.
            if self._is_held_elsewhere():
                return False
            if self._is_leading:
                await self._write(self._lock.update, record)
                return True
        self._observe(record, self._lock.version)
        if record.holder_identity != self._lock.identity:
            self._may_hold = False
        if self._is_leading and self._is_foreign():
            raise _Taken(self.leader)
        if self._is_held_elsewhere():
            return False
        await self._write(self._lock.update, record)
        return True

    async def _write(
        self,
        write: Callable[[LeaderElectionRecord, float], Awaitable[None]],
        old: LeaderElectionRecord | None,
    ) -> None:
        """Write our record over ``old``. The lease counts from before it was sent."""
        sent_at = self._clock.now()
        record = self._own_record(old)
        self._may_hold = True
        async with asyncio.timeout(self._patience()):
            await write(record, self._patience())
        self._observe(record, self._lock.version)
        self._renewed_at = sent_at
        self._is_leading = True
        self._complaint = ""

    def _own_record(self, old: LeaderElectionRecord | None) -> LeaderElectionRecord:
        acquire_time = now = rfc3339_micro(self._clock.wall())
        transitions = 0
        if old is not None:
            is_ours = old.holder_identity == self._lock.identity
            acquire_time = old.acquire_time if is_ours else now
            transitions = old.leader_transitions + (not is_ours)
        return LeaderElectionRecord(
            holder_identity=self._lock.identity,
            # Whole seconds: rounded down, others would take over too early.
            lease_duration_seconds=math.ceil(self._config.lease_duration_seconds),
            acquire_time=acquire_time,
            renew_time=now,
            leader_transitions=transitions,
        )

    def _patience(self) -> float:
        """Return the time limit of a call: for a leader, until its lease ends."""
        if not self._is_leading:
            return self._call_seconds
        return min(self._call_seconds, self.remaining())

    def _went_back(self) -> bool:
        """Whether the record just read is older than one that was seen before."""
        version = self._lock.version
        if not is_older(version, self._observed_version):
            return False
        if version != self._older_version:
            self._older_version = version
            log.warning(
                "lock went back in time",
                extra={
                    "lock": self._lock.describe(),
                    "seen": self._observed_version,
                    "read": version,
                },
            )
            self._callbacks.history_lost()
        return True

    def _observe(self, record: LeaderElectionRecord, version: str) -> None:
        """kube-scheduler: setObservedRecord."""
        if version:
            self._observed_version = version
        if record == self._observed:
            return
        self._observed, self._observed_at = record, self._clock.now()
        holder = self.leader
        if holder and holder != self._reported:
            self._callbacks.new_leader(holder)
        self._reported = holder

    def _is_foreign(self) -> bool:
        """kube-scheduler: isLeaseValid."""
        return self.leader not in ("", self._lock.identity)

    def _is_held_elsewhere(self) -> bool:
        """Whether another candidate holds the lock as far as is known."""
        return self._is_foreign() and self._clock.now() < self._expires_at()

    def _expires_at(self) -> float:
        """When the record last seen becomes invalid, if it does not change."""
        seconds = self._observed.lease_duration_seconds if self._observed else 0
        return self._observed_at + seconds

    async def _report_transition(self, text: str) -> None:
        """kube-scheduler: maybeReportTransition."""
        try:
            async with asyncio.timeout(EVENT_SECONDS):
                await self._lock.record_event(text, EVENT_SECONDS)
        except (ApiError, TimeoutError) as error:
            log.info("election not recorded", extra={"event": text, "err": _text(error)})

    def _log_once(self, error: Exception) -> None:
        """Log, once, why the lock is not held; outages are logged by the transport already."""
        text = _text(error)
        known = isinstance(error, Conflict | Unavailable | TimeoutError) and not self._is_leading
        log.log(
            logging.DEBUG if known or text == self._complaint else logging.WARNING,
            "lock not acquired or renewed",
            extra={"lock": self._lock.describe(), "err": text},
        )
        self._complaint = text


def _text(error: Exception) -> str:
    return str(error) or "timed out"

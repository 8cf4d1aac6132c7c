"""Events (``events.k8s.io/v1``): our decisions as shown by ``kubectl describe``.

Recording costs the caller a dictionary look-up and never waits. Events are written in the
background, by a client with its own rate limit, so that a bind is never queued behind an Event. For
the server an Event is as much work as a bind: while it is busy, Events wait, ``PATIENCE_SECONDS``
at most. Under pressure they are dropped and counted, never delayed without bound.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ksched.api.objects import Object, Pod
from ksched.api.resources import EVENTS
from ksched.cache.pod_info import PodInfo
from ksched.client.rest import ApiClient
from ksched.clock import Clock, rfc3339_micro
from ksched.errors import ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from ksched.framework.untrusted_values import is_text, safe_repr

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024
QUEUE_LIMIT = 10_000
PATIENCE_SECONDS = 10.0
"""How long an Event waits at most for the API server to be less busy."""
SERIES_REFRESH_SECONDS = 30 * 60.0
SERIES_IDLE_SECONDS = 6 * 60.0

_SERIES_LIMIT = 4096
_SWEEP_SECONDS = 60.0
_WRITE_TRIES = 12
_RETRY_SECONDS = 10.0
_GIVE_WAY_SECONDS = 0.1
_HAPPENS_ONCE = ("Scheduled", "Binding")
"""Reason and action of the Event of every bound pod: no repetition is expected to be counted."""
_VALID_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class ObjectReference(Object, frozen=True):
    """The object of an Event."""

    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


def pod_reference(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(
        kind="Pod",
        api_version="v1",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class _EventMeta(Object, frozen=True):
    name: str
    namespace: str


class _EventSeries(Object, frozen=True):
    count: int
    last_observed_time: str


class _Event(Object, frozen=True):
    metadata: _EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: ObjectReference
    note: str
    type: str
    # No defaults: an Event without these two is rejected, and defaults are not encoded.
    api_version: str
    kind: str
    related: ObjectReference | None = None
    series: _EventSeries | None = None


class _SeriesPatch(Object, frozen=True):
    series: _EventSeries


class _SeriesKey(NamedTuple):
    """Occurrences with equal keys are one Event, counted."""

    type: str
    action: str
    reason: str
    controller: str
    regarding: ObjectReference
    related: ObjectReference | None


class _Series:
    """One Event and its number of occurrences."""

    __slots__ = (
        "at",
        "count",
        "created",
        "event",
        "key",
        "last",
        "queued",
        "queued_at",
        "tries",
        "written",
    )

    def __init__(self, key: _SeriesKey, event: _Event, at: float, wall: float) -> None:
        self.key = key
        self.event = event
        self.count = 1
        self.at = at
        self.last = wall
        self.created = False
        self.written = 0
        self.queued = False
        self.queued_at = 0.0
        self.tries = 0

    @property
    def is_counted(self) -> bool:
        """Whether every occurrence is written."""
        return self.created and self.written >= self.count


_encode = msgspec.json.Encoder().encode


class EventRecorder:
    """Collects Events from anywhere on the loop and writes them from ``run``.

    ``gives_way`` returns whether the API server is busy with more urgent requests. ``dropped``
    counts Events that found the queue full, ``rejected`` those the server rejected or that failed
    twelve times, ``written`` successful requests.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        *,
        hostname: str,
        workers: int = 4,
        queue_limit: int = QUEUE_LIMIT,
        rng: random.Random | None = None,
        gives_way: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._hostname = hostname
        self._workers = workers
        self._queue_limit = queue_limit
        self._rng = rng or random.Random()
        self._gives_way = gives_way
        self._series: OrderedDict[_SeriesKey, _Series] = OrderedDict()
        self._queue: deque[_Series] = deque()
        self._in_flight = 0
        self._idle: deque[asyncio.Future[None]] = deque()
        """Workers without work. Only one is woken for an Event: four would look and wait again."""
        self._quiet = asyncio.Event()
        self._last_nanos = 0
        self._refreshed_at: float | None = None
        self.dropped = 0
        self.rejected = 0
        self.written = 0

    def event(
        self,
        regarding: ObjectReference,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Record one occurrence; returns at once and never raises because the queue is full."""
        key = _SeriesKey(event_type, action, reason, controller, regarding, related)
        now, wall = self._clock.now(), self._clock.wall()
        if (reason, action) == _HAPPENS_ONCE:
            self._enqueue(_Series(key, self._new_event(key, note, wall), now, wall))
            return
        series = self._series.get(key)
        if series is not None and now - series.at < SERIES_IDLE_SECONDS:
            series.count += 1
            series.at, series.last = now, wall
            self._series.move_to_end(key)
            # The second occurrence makes it a series and is written; later ones wait for a sweep.
            if series.count == 2:
                self._enqueue(series)
            return
        series = _Series(key, self._new_event(key, note, wall), now, wall)
        if self._enqueue(series):
            self._series[key] = series
            self._series.move_to_end(key)
            self._make_room()

    async def run(self) -> None:
        """Write Events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())
            while True:
                await self._clock.sleep(_SWEEP_SECONDS)
                self._sweep()

    async def flush(self, timeout: float) -> int:
        """Wait until everything recorded is written, at most ``timeout`` seconds.

        ``run`` must be running. Returns how many Events are still unwritten.
        """
        try:
            async with asyncio.timeout(timeout):
                while self._enqueue_uncounted() or self._queue or self._in_flight:
                    while self._queue or self._in_flight:
                        self._quiet.clear()
                        await self._quiet.wait()
        except TimeoutError:
            pass
        return len(self._queue) + self._in_flight

    # -- collecting -----------------------------------------------------------------------------

    def _new_event(self, key: _SeriesKey, note: str, wall: float) -> _Event:
        namespace = key.regarding.namespace or "default"
        return _Event(
            api_version=EVENTS.api_version,
            kind=EVENTS.kind,
            metadata=_EventMeta(name=self._new_name(key.regarding.name, wall), namespace=namespace),
            event_time=rfc3339_micro(wall),
            reporting_controller=key.controller,
            reporting_instance=f"{key.controller}-{self._hostname}",
            action=key.action,
            reason=key.reason,
            regarding=key.regarding,
            related=key.related,
            note=truncate_note(note),
            type=key.type,
        )

    def _new_name(self, name: str, wall: float) -> str:
        # Two Events of one object may fall on the same tick of the clock.
        self._last_nanos = max(self._last_nanos + 1, int(wall * 1e9))
        candidate = f"{name}.{self._last_nanos:x}"
        if len(candidate) <= 253 and _VALID_NAME.fullmatch(candidate):
            return candidate
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _enqueue(self, series: _Series) -> bool:
        if series.queued:
            return True
        if len(self._queue) >= self._queue_limit:
            self.dropped += 1
            return False
        series.queued, series.queued_at = True, self._clock.now()
        self._queue.append(series)
        self._wake_worker()
        return True

    def _wake_worker(self) -> None:
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    def _enqueue_uncounted(self) -> bool:
        """Queue every series with unwritten occurrences; False if none."""
        uncounted = [series for series in self._series.values() if not series.is_counted]
        for series in uncounted:
            self._enqueue(series)
        return bool(uncounted)

    def _make_room(self) -> None:
        """Evict the least recently active series; its last count is written first.

        Those that are queued stay: a repetition must find them.
        """
        while len(self._series) > _SERIES_LIMIT:
            key, series = next(iter(self._series.items()))
            if series.queued:
                return
            del self._series[key]
            if not series.is_counted:
                self._enqueue(series)

    def _sweep(self) -> None:
        """End idle series, and write the counts of active ones."""
        now = self._clock.now()
        for key, series in list(self._series.items()):
            if now - series.at < SERIES_IDLE_SECONDS:
                break
            if not series.is_counted:
                self._enqueue(series)
            del self._series[key]
        if self._refreshed_at is None:
            self._refreshed_at = now
        if now - self._refreshed_at >= SERIES_REFRESH_SECONDS:
            self._refreshed_at = now
            for series in self._series.values():
                if series.count > 1:
                    self._enqueue(series)

    # -- writing --------------------------------------------------------------------------------

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                idle: asyncio.Future[None] = loop.create_future()
                self._idle.append(idle)
                await idle
            waited_seconds = self._clock.now() - self._queue[0].queued_at
            if waited_seconds < PATIENCE_SECONDS and self._gives_way():
                await self._clock.sleep(_GIVE_WAY_SECONDS)
                continue
            series = self._queue.popleft()
            self._in_flight += 1
            try:
                again = await self._write(series)
            finally:
                self._in_flight -= 1
                # Only now: two workers must not write one series at a time.
                series.queued = False
                self._quiet.set()
            if again:
                self._enqueue(series)
            self._make_room()

    async def _write(self, series: _Series) -> bool:
        """Write the unwritten part of one series; True to be called again."""
        try:
            if series.created:
                await self._patch(series)
            else:
                await self._create(series)
        except (TooManyRequests, Unavailable) as error:
            return await self._try_later(series, error)
        except NotFound as error:
            if not series.created:
                self._reject(series, error)
                return False
            # Its TTL on the server has expired: create it again.
            series.created = False
            return True
        except (ApiError, ValueError, TypeError) as error:
            # Rejected, or it cannot be encoded.
            self._reject(series, error)
            return False
        self.written += 1
        series.tries = 0
        # It became a series while its first occurrence was being written.
        return series.count > 1 and series.written < 2

    async def _create(self, series: _Series) -> None:
        count = series.count
        event = series.event
        if count > 1:
            event = msgspec.structs.replace(event, series=_observed(series))
        try:
            await self._client.create_event(event.metadata.namespace, _encode(event))
        except Conflict:
            # A response was lost and the Event exists.
            count = 1
        series.created = True
        series.written = count

    async def _patch(self, series: _Series) -> None:
        count = series.count
        meta = series.event.metadata
        body = _encode(_SeriesPatch(series=_observed(series)))
        await self._client.patch_event(meta.namespace, meta.name, body)
        series.written = count

    async def _try_later(self, series: _Series, error: ApiError) -> bool:
        series.tries += 1
        if series.tries >= _WRITE_TRIES:
            self._reject(series, error)
            return False
        log.warning(
            "event cannot be written, trying again",
            extra={"event": series.event.metadata.name, "err": str(error)},
        )
        await self._clock.sleep(_RETRY_SECONDS * (1.0 + 0.25 * self._rng.random()))
        return True

    def _reject(self, series: _Series, error: Exception) -> None:
        self.rejected += 1
        if self._series.get(series.key) is series:
            del self._series[series.key]
        log.warning(
            "event rejected",
            extra={
                "event": series.event.metadata.name,
                "reason": series.event.reason,
                "err": str(error),
            },
        )


def _observed(series: _Series) -> _EventSeries:
    return _EventSeries(count=series.count, last_observed_time=rfc3339_micro(series.last))


def truncate_note(note: str) -> str:
    """Truncate to 1024 bytes, between characters, and mark as truncated.

    kube-scheduler: truncateMessage.
    """
    encoded = note.encode()
    if len(encoded) <= NOTE_LIMIT:
        return note
    return encoded[: NOTE_LIMIT - 4].decode("utf-8", "ignore") + " ..."


class ProfileRecorder:
    """Writes Events about pods under the name of a profile, by default of each pod's own."""

    def __init__(self, recorder: EventRecorder, profile: str = "") -> None:
        self._recorder = recorder
        self._profile = profile

    def event(
        self,
        pod: PodInfo,
        kind: str,
        reason: str,
        action: str,
        note: str,
        *,
        related: PodInfo | None = None,
    ) -> None:
        if self._profile:
            _check_event(pod, related, kind, reason, action, note)
        name = self._profile or pod.template.spec.scheduler_name
        other = None if related is None else pod_reference(related.pod)
        self._recorder.event(pod_reference(pod.pod), kind, reason, action, note, name, other)


def _check_event(pod: object, related: object, *texts: object) -> None:
    """Raise in the calling plugin what would otherwise fail later in the writer."""
    for one in (pod,) if related is None else (pod, related):
        if not isinstance(one, PodInfo):
            raise TypeError(f"event: got {safe_repr(one)}, wanted a pod")
    for text in texts:
        if not is_text(text):
            raise TypeError(f"event: got {safe_repr(text)}, wanted text")

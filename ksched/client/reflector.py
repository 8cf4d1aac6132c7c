"""A copy of one kind of object, maintained by list and watch.

    list ──────────────► watch ──410 Gone──► list again, as a difference
     ▲ pages or           │
     │ WatchList          ├─ closed, broken, silent, garbled: watch again from the last version,
     └─ failed: wait      │  if the server still has the known history
                          ├─ rejected or garbled repeatedly at one version: list again
                          ├─ older than known: the server lost its data, list again
                          └─ 404 of a kind that may be absent: no objects, list again later

Every change reaches the handler exactly once (see ``watch_store``). After a failure response or an
immediate close the next request follows after 0.8 s, doubling to 30 s, each with a random factor of
up to two; if the server cannot be reached at all, after 10 s at most, since that costs it nothing.

All kinds share one history (see ``history``), therefore ``on_history_lost`` makes the others list
again too when one of them finds that the server's differs.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Generic

import anyio
import msgspec

from ksched.api.decoding import (
    ADDED,
    BOOKMARK,
    DELETED,
    ERROR,
    MODIFIED,
    WatchEvent,
    decode_watch_event,
)
from ksched.api.resources import ApiResource
from ksched.client.api_status import error_from_status, is_connection_lost, is_never_streaming
from ksched.client.history import History, is_history_lost, went_back
from ksched.client.rest import EVERYTHING, PAGE_LIMIT, ApiClient, Selection
from ksched.client.retry import Backoff
from ksched.client.watch_health import STALE_SECONDS, WatchState
from ksched.client.watch_store import Handler, Store, T, identify, is_older
from ksched.clock import Clock
from ksched.errors import ApiError, Gone, InvalidObject, NotFound, TooManyRequests, Unavailable
from ksched.steps import Steps
from ksched.transport import NOT_SENT, SILENT

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005
_LARGE_LINE_BYTES = 65_536
"""Above it, decoding an object and handling it are different steps of the event loop."""
_TRIES_AT_ONE_VERSION = 3
# Longest Retry-After that is respected.
_MAX_PATIENCE = 300.0
# Longest nominal backoff while the server cannot be reached.
_UNREACHABLE_SECONDS = 5.0
# Several kinds may detect the same loss; a list as recent as this already reflects it.
YOUNG_SECONDS = 5.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


OnList = Callable[[], Callable[[], None]]
"""Called when a list begins; the returned function is called when that list is complete."""


class _Garbled(Exception):
    """A line of the watch is not an event; its content is unknown."""


class Reflector(Generic[T]):
    """Lists and watches one resource and passes changes to a handler.

    ``idle_timeout`` is how long a watch may be silent before it is reopened; servers send a
    bookmark every minute or two, and a dead connection is detected by the transport.
    ``healthy_seconds`` is how long a watch must have lived to be reopened without backoff. A kind
    that ``may_be_absent`` counts as listed, and empty, while the server does not serve it.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: ApiResource,
        decode: Callable[[msgspec.Raw], T],
        handler: Handler[T],
        clock: Clock,
        *,
        selection: Selection = EVERYTHING,
        rng: random.Random | None = None,
        use_watch_list: bool = True,
        page_limit: int = PAGE_LIMIT,
        idle_timeout: float = 240.0,
        watch_list_idle_timeout: float = 10.0,
        healthy_seconds: float = 30.0,
        initial_backoff: float = 0.8,
        max_backoff: float = 30.0,
        on_list: OnList | None = None,
        on_history_lost: Callable[[], None] | None = None,
        decode_in_steps: Callable[[msgspec.Raw], Steps[T]] | None = None,
        may_be_absent: bool = False,
    ) -> None:
        self._client = client
        self._resource = resource
        self._store = Store(resource.kind, decode, handler, decode_in_steps)
        self._history = History(client, resource, selection, self._store)
        self._handler = handler
        self._clock = clock
        self._selection = selection
        self._rng = rng or random.Random()
        self._use_watch_list = use_watch_list
        self._page_limit = page_limit
        self._idle_timeout = idle_timeout
        self._watch_list_idle_timeout = watch_list_idle_timeout
        self._healthy_seconds = healthy_seconds
        self._backoff = Backoff(self._rng, initial=initial_backoff, maximum=max_backoff)
        self._version = ""
        self._failures_at_version = 0
        self.known_version = ""
        """Of the last change or list, also while listing again."""
        # Whether the version comes from a list that was just made.
        self._is_fresh = False
        self.listed_at = -math.inf
        self._on_list, self._on_history_lost = on_list, on_history_lost
        self._list_done: Callable[[], None] | None = None
        self._may_be_absent, self._is_absent = may_be_absent, False
        self._round = anyio.CancelScope()
        self._is_pausing = self._is_unreachable = False
        self.state = WatchState()
        # The kind of failure last logged, until something succeeds again.
        self._complaint: tuple[type[Exception], int, str] | None = None
        self._synced = asyncio.Event()
        self._slice_began = 0.0

    @property
    def objects(self) -> Mapping[str, T]:
        """The last known objects by key; read-only."""
        return self._store.objects

    @property
    def synced(self) -> bool:
        """Whether a complete list has been delivered."""
        return self._synced.is_set()

    @property
    def resource(self) -> ApiResource:
        return self._resource

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled. Only a handler's own exception ends it."""
        self.state.contact_at = self._clock.now()
        while True:
            with anyio.CancelScope() as self._round:
                await self._list_or_watch()

    def relist(self) -> None:
        """List again now: the server's history is not the one that was watched."""
        if self._is_pausing and not self._version:
            self._round.cancel()
        elif self._version and self._clock.now() - self.listed_at >= YOUNG_SECONDS:
            self._version = ""
            self._round.cancel()

    async def _list_or_watch(self) -> None:
        opened_at, version = self._clock.now(), self._version
        retry_after = 0.0
        try:
            if version:
                await self._check_history()
                await self._watch()
                self._works()
            else:
                is_listed = self._use_watch_list and await self._watch_list()
                if not is_listed:
                    await self._list()
                    # The watch follows without a pause.
                    return
                # The streaming list went on as the watch, which has ended.
        except (ApiError, _Garbled) as error:
            if self._may_be_absent and isinstance(error, NotFound):
                self._not_served()
            elif getattr(error, "reason", "") == SILENT:
                log.debug("watch is silent, opening again", extra={"resource": str(self._resource)})
            else:
                self._after_failure(version, error)
                retry_after = getattr(error, "retry_after", None) or 0.0
        finally:
            self.state.is_open = False
        progressed = self._version not in ("", version)
        self._is_pausing = True
        try:
            await self._pause(opened_at, retry_after, progressed=progressed)
        finally:
            self._is_pausing = False

    def _works(self) -> None:
        """Reset the failure state: a watch delivered an event or ended properly."""
        self._complaint = None
        self._is_unreachable = False
        since = self.state.failing_since
        if since is not None:
            seconds = self._clock.now() - since
            # At the same level as the lines during the failure.
            log.log(
                logging.WARNING if seconds >= STALE_SECONDS else logging.INFO,
                "watch works again",
                extra={"resource": str(self._resource), "after_seconds": round(seconds, 1)},
            )
            self.state.failing_since = None

    def _after_failure(self, version: str, error: Exception) -> None:
        """Decide between watching on from the last version and listing again."""
        if self._version != version:
            self._failures_at_version = 0
        self.state.fail(self._clock.now(), str(error))
        self._is_unreachable = getattr(error, "reason", "") == NOT_SENT
        # An outage is logged when it begins; further tries only at debug level.
        complaint = (type(error), getattr(error, "code", 0), getattr(error, "reason", ""))
        log.log(
            logging.DEBUG if complaint == self._complaint else logging.WARNING,
            "list or watch failed",
            extra={
                "resource": str(self._resource),
                "resource_version": self._version,
                "err": str(error),
            },
        )
        self._complaint = complaint
        if is_history_lost(error):
            self._history_lost()
        elif isinstance(error, Gone):
            self._version = ""
        elif not (isinstance(error, TooManyRequests) or is_connection_lost(error)):
            # A failure that repeats may be the version's: a restored server does not have it.
            self._failures_at_version += 1
            if self._failures_at_version >= _TRIES_AT_ONE_VERSION:
                self._version = ""
        if not self._version:
            self._failures_at_version = 0

    def _not_served(self) -> None:
        """Treat a kind that is not served as empty; it may be installed any time."""
        if not self._is_absent:
            self._is_absent = True
            log.warning(
                "API server does not serve this kind, it has no objects until it does",
                extra={"resource": str(self._resource), "path": self._resource.path()},
            )
        self._store.begin_list()
        self._store.end_list("")
        self._version = self.known_version = ""
        self._complaint = self.state.failing_since = None
        self._is_unreachable = False
        self._mark_synced()

    def _mark_synced(self) -> None:
        self.listed_at = self.state.contact_at = self._clock.now()
        if not self._synced.is_set():
            self._synced.set()
            self._handler.synced()

    def _history_lost(self) -> None:
        """The server lost its data or was restored from a backup: all kinds list again."""
        self._version = self.known_version = ""
        if self._on_history_lost is not None:
            self._on_history_lost()

    async def _pause(self, opened_at: float, retry_after: float, *, progressed: bool) -> None:
        """Back off before the next request, so that a failing server is not overloaded."""
        if not retry_after and self._clock.now() - opened_at >= self._healthy_seconds:
            self._backoff.reset()
            return
        if progressed:
            self._backoff.reset()
        pause = self._backoff.next()
        if self._is_unreachable:
            pause = min(pause, _UNREACHABLE_SECONDS * (1.0 + self._rng.random()))
        await self._clock.sleep(max(pause, min(retry_after, _MAX_PATIENCE)))

    # -- listing --------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List in pages and deliver the differences."""
        self._begin_list()
        limit, token = self._page_limit, ""
        while True:
            try:
                page = await self._client.list_page(
                    self._resource, self._selection, limit=limit, continue_token=token
                )
            except Gone:
                if not limit:
                    raise
                # The continue token expired; a single response cannot.
                limit, token = 0, ""
                self._begin_list()
                continue
            self.state.contact_at = self._slice_began = self._clock.now()
            for raw in page.items:
                self._store.list_item(raw, await self._decoded(raw))
                await self._yield_if_long()
            token = page.metadata.continue_token
            if not token:
                break
        version = page.metadata.resource_version
        if not version:
            where = self._resource.path()
            raise Unavailable(0, "InvalidAnswer", f"GET {where}: list without a resourceVersion")
        self._finish_list(version)

    async def _watch_list(self) -> bool:
        """Sync by a stream of initial events and continue on it as the watch.

        Returns False if that did not lead to a complete list, for any reason: some servers reject
        it, some respond 200 and then an ERROR event, old ones ignore the parameter and never send
        the end of the initial events.
        """
        self._begin_list()
        is_listed = False
        try:
            async with (
                asyncio.timeout(self._watch_list_idle_timeout) as patience,
                self._client.watch(
                    self._resource,
                    self._selection,
                    resource_version="",
                    send_initial_events=True,
                    timeout_seconds=self._watch_seconds(),
                    idle_timeout=self._idle_timeout,
                ) as lines,
            ):
                version = await self._initial_events(lines, patience)
                patience.reschedule(None)
                self._finish_list(version)
                is_listed = True
                self._works()
                await self._events(lines)
        except (ApiError, _Garbled, TimeoutError) as error:
            if is_listed or (self._may_be_absent and isinstance(error, NotFound)):
                raise
            if is_never_streaming(error):
                self._use_watch_list = False
            log.info(
                "streaming list not available, listing in pages",
                extra={"resource": str(self._resource), "err": str(error) or "timed out"},
            )
        return is_listed

    async def _initial_events(self, lines: AsyncIterator[bytes], patience: asyncio.Timeout) -> str:
        """Apply the existing objects; return the version they correspond to."""
        self._slice_began = extended_at = self._clock.now()
        async for line in lines:
            event = self._event(line)
            if event.type in (ADDED, MODIFIED):
                self._store.list_item(event.object, await self._decoded(event.object))
            elif event.type == DELETED:
                self._store.list_remove(event.object)
            elif event.type == BOOKMARK:
                meta = identify(event.object)
                if meta.annotations.get(_INITIAL_EVENTS_END) and meta.resource_version:
                    return meta.resource_version
            else:
                raise _Garbled(f"event of unknown type {event.type[:40]!r}")
            await self._yield_if_long()
            if self._slice_began > extended_at:
                extended_at = self._slice_began
                loop = asyncio.get_running_loop()
                patience.reschedule(loop.time() + self._watch_list_idle_timeout)
        raise Unavailable(0, "", "stream closed before the end of the initial events")

    def _begin_list(self) -> None:
        self._store.begin_list()
        self._list_done = self._on_list() if self._on_list is not None else None

    def _finish_list(self, version: str) -> None:
        self._store.end_list(version)
        if is_older(version, self.known_version):
            log.warning(
                "listed at an older version than known",
                extra={
                    "resource": str(self._resource),
                    "known": self.known_version,
                    "listed": version,
                },
            )
            self._history_lost()
        self._version = self.known_version = version
        self._is_fresh = True
        if self._list_done is not None:
            self._list_done()
        self._mark_synced()
        if self._is_absent:
            self._is_absent = False
            # At the same level as the line that it was not.
            log.warning("API server serves this kind now", extra={"resource": str(self._resource)})
        log.debug(
            "listed",
            extra={"resource": str(self._resource), "objects": len(self.objects)},
        )

    # -- watching -------------------------------------------------------------------------------

    async def _check_history(self) -> None:
        """Verify, before a watch is reopened, that the server has the known history."""
        if not self._is_fresh:
            await self._history.check(self._version)
            self.state.contact_at = self._clock.now()
        self._is_fresh = False

    async def _watch(self) -> None:
        async with self._client.watch(
            self._resource,
            self._selection,
            resource_version=self._version,
            timeout_seconds=self._watch_seconds(),
            idle_timeout=self._idle_timeout,
        ) as lines:
            await self._events(lines)

    async def _events(self, lines: AsyncIterator[bytes]) -> None:
        """Deliver changes until the server closes the stream."""
        self.state.is_open, self._is_fresh = True, False
        self._slice_began = self._clock.now()
        async for line in lines:
            is_large, kind = len(line) > _LARGE_LINE_BYTES, MODIFIED
            obj = None if is_large else self._store.decoded_at_once(line)
            if obj is not None:
                version = self._store.put(obj)
                del obj
            else:
                if is_large:
                    await self._yield_if_long()
                event = self._event(line)
                kind, version = event.type, await self._apply(event)
            if is_older(version, self._version):
                # A deletion may carry the last stored state, including its version.
                if kind != DELETED:
                    raise went_back(self._resource, self._version, version)
            elif version:
                self._version = self.known_version = version
            if self._complaint is not None:
                self._works()
            self.state.contact_at = now = self._clock.now()
            # As ``_yield_if_long``; a coroutine for every event would be slower.
            if now - self._slice_began >= _SLICE_SECONDS:
                await asyncio.sleep(0)
                self._slice_began = self._clock.now()

    async def _apply(self, event: WatchEvent) -> str:
        """Apply any event; return its version."""
        if event.type == DELETED:
            return self._store.remove(event.object)
        if event.type in (ADDED, MODIFIED):
            obj = await self._decoded(event.object)
            if obj is not None:
                return self._store.put(obj)
        elif event.type != BOOKMARK:
            raise _Garbled(f"event of unknown type {event.type[:40]!r}")
        return identify(event.object).resource_version

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = decode_watch_event(line)
        except (InvalidObject, UnicodeDecodeError) as error:
            raise _Garbled(f"{error} in a line of {len(line)} bytes") from error
        if event.type == ERROR:
            raise error_from_status("WATCH", self._resource.path(), event.object)
        return event

    async def _decoded(self, raw: msgspec.Raw) -> T | None:
        """Decode an object, a large one in time slices; handling it begins with another one."""
        if len(raw) <= _LARGE_LINE_BYTES:
            return self._store.decoded(raw)
        steps = self._store.decoded_in_steps(raw)
        while True:
            await self._yield_if_long()
            try:
                next(steps)
            except StopIteration as end:
                obj: T | None = end.value
                break
        await asyncio.sleep(0)
        self._slice_began = self._clock.now()
        return obj

    def _watch_seconds(self) -> int:
        """Return how long the server may keep a watch open; random, so that not all end at once."""
        return self._rng.randint(300, 600)

    async def _yield_if_long(self) -> None:
        """Yield to the event loop when decoding and handling took a time slice."""
        if self._clock.now() - self._slice_began >= _SLICE_SECONDS:
            await asyncio.sleep(0)
            self.state.contact_at = self._slice_began = self._clock.now()

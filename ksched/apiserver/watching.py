"""Watch streams: a bounded queue between the store and one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

import msgspec

from ksched.apiserver.object_store import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    Collection,
    Entry,
    watch_line,
)
from ksched.apiserver.selection import Predicate
from ksched.apiserver.served_resources import Resource
from ksched.apiserver.status_errors import StatusError
from ksched.clock import Clock

BOOKMARK_SECONDS = 60.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_BATCH = 500


class Selection(NamedTuple):
    """Which objects of a collection a request is about."""

    namespace: str = ""
    labels: Predicate | None = None
    fields: Predicate | None = None

    def matches(self, entry: Entry) -> bool:
        if self.namespace and entry.namespace != self.namespace:
            return False
        if self.labels is not None and not self.labels(entry.labels):
            return False
        return self.fields is None or self.fields(entry.fields)

    @property
    def is_everything(self) -> bool:
        """Whether only the namespace restricts it."""
        return self.labels is None and self.fields is None


class WatchOptions(NamedTuple):
    """The parameters of a watch, except where to begin."""

    resource: Resource
    selection: Selection
    timeout_seconds: float
    bookmarks: bool
    announce_initial_end: bool = False
    render: Callable[[Entry], bytes] | None = None
    """Shape of the objects where it is not the stored one."""
    queue_limit: int = 10_000


class Watch:
    """One watch, subscribed from the moment it is made; ``close`` it or read it to its end.

    A reader that falls ``queue_limit`` changes behind loses the stream, not the server its memory.
    """

    def __init__(self, clock: Clock, version: Callable[[], int], options: WatchOptions) -> None:
        self._options, self._version = options, version
        self._now = clock.now
        self._deadline = clock.now() + options.timeout_seconds
        self._next_bookmark = clock.now() + BOOKMARK_SECONDS
        self._state: deque[Entry] = deque()
        self._queue: deque[Change] = deque()
        self._last_words: list[bytes] = []
        self._is_initial_end_due = False
        self._initial_version = 0
        self._collection: Collection | None = None
        self._wake = asyncio.Event()
        self._ended = False
        self.overflowed = False

    def begin_with_state(self, entries: Iterable[Entry]) -> None:
        """Send the present state first, as if every object had just been added."""
        self._state.extend(filter(self._options.selection.matches, entries))
        self._initial_version = self._version()
        self._is_initial_end_due = self._options.announce_initial_end

    def begin_with_changes(self, changes: Iterable[Change]) -> None:
        """Send what the history remembers first."""
        self._queue.extend(changes)

    def begin_with_error(self, error: StatusError) -> None:
        """Say why there is nothing to watch, and end."""
        self._last_words.append(watch_line("ERROR", msgspec.json.encode(error.status())))
        self._ended = True

    def follow(self, collection: Collection) -> None:
        """Subscribe; call in the same step as ``begin_with_*`` so that nothing falls between."""
        self._collection = collection
        collection.watches[self] = None

    def close(self) -> None:
        """Unsubscribe and end the stream after what is already queued."""
        self._ended = True
        self._wake.set()
        if self._collection is not None:
            self._collection.watches.pop(self, None)
            self._collection = None

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield events, as many at once as are ready, until the watch ends."""
        try:
            while True:
                batch = self._take()
                if batch:
                    yield batch
                elif self._ended:
                    return
                elif self._now() >= self._deadline:
                    if self._options.bookmarks:
                        yield [self._bookmark(self._version())]
                    return
                elif self._options.bookmarks and self._now() >= self._next_bookmark:
                    self._next_bookmark = self._now() + BOOKMARK_SECONDS
                    yield [self._bookmark(self._version())]
                else:
                    await self._wait()
        finally:
            self.close()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield events one by one."""
        batches = self.batches()
        try:
            async for batch in batches:
                for line in batch:
                    yield line
        finally:
            self.close()

    async def _wait(self) -> None:
        until = min(self._deadline, self._next_bookmark) if self._options.bookmarks else None
        self._wake.clear()
        loop = asyncio.get_running_loop()
        timer = loop.call_at(until or self._deadline, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _take(self) -> list[bytes]:
        """Build the next events; lazily, so that a long backlog is stored only once."""
        batch, self._last_words = self._last_words, []
        render = self._options.render
        while self._state and len(batch) < _BATCH:
            entry = self._state.popleft()
            batch.append(watch_line(ADDED, entry.raw if render is None else render(entry)))
        if self._is_initial_end_due and not self._state:
            self._is_initial_end_due = False
            batch.append(self._bookmark(self._initial_version, {INITIAL_EVENTS_END: "true"}))
        while self._queue and len(batch) < _BATCH:
            line = self._line(self._queue.popleft())
            if line is not None:
                batch.append(line)
        return batch

    def offer(self, change: Change) -> None:
        if len(self._queue) >= self._options.queue_limit:
            self.overflowed = True
            self._queue.clear()
            self.close()
            return
        self._queue.append(change)
        self._wake.set()

    def _line(self, change: Change) -> bytes | None:
        selection, resource = self._options.selection, self._options.resource
        before = change.previous is not None and selection.matches(change.previous)
        if change.type == DELETED:
            kind = DELETED if before else None
        elif selection.matches(change.entry):
            kind = MODIFIED if before else ADDED
        else:
            kind = DELETED if before else None
        if kind is None:
            return None
        if self._options.render is None:
            return change.line(kind, resource)
        return watch_line(kind, self._options.render(change.seen_as(kind, resource)))

    def _bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._options.resource
        obj = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}
        return watch_line("BOOKMARK", msgspec.json.encode(obj))

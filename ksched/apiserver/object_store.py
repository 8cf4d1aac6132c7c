"""Versioned objects in memory: the etcd of the embedded server.

An object is kept as its JSON bytes, because bytes are what readers and watchers want and because a
decoded object in two hands gets changed by one of them. One counter numbers every change of the
whole store (``resourceVersion``); each collection remembers its last changes, so that a watch may
begin in the recent past and a list may be read as it was when its first page was.

Everything here is synchronous and therefore atomic with respect to the event loop.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from ksched.apiserver.served_resources import JsonObject, Resource, selectable_fields
from ksched.apiserver.status_errors import StatusError, expired

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Entry:
    """One version of one object; never changes once made."""

    __slots__ = ("_variants", "fields", "key", "labels", "namespace", "raw", "version")

    def __init__(self, resource: Resource, obj: JsonObject, version: int) -> None:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        self.namespace: str = metadata.get("namespace", "")
        self.key = object_key(self.namespace, metadata["name"])
        self.version = version
        self.raw: bytes = _encode(obj)
        self.labels: Mapping[str, str] = metadata.get("labels") or {}
        self.fields: Mapping[str, str] = selectable_fields(resource, obj)
        self._variants: dict[str, bytes] | None = None

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def decode(self) -> JsonObject:
        """Return the object; the caller owns the copy."""
        obj: JsonObject = _decode(self.raw)
        return obj

    def variant(self, name: str, render: Callable[[JsonObject], JsonObject]) -> bytes:
        """Return the object in another shape (say, another API version), rendered once."""
        if self._variants is None:
            self._variants = {}
        if name not in self._variants:
            self._variants[name] = _encode(render(self.decode()))
        return self._variants[name]


class Change:
    """One step in the history of a collection."""

    __slots__ = ("_departed", "_lines", "entry", "previous", "type", "version")

    def __init__(self, kind: str, entry: Entry, previous: Entry | None) -> None:
        self.type, self.entry, self.previous = kind, entry, previous
        self.version = entry.version
        self._departed: Entry | None = None
        self._lines: dict[str, bytes] = {}

    def seen_as(self, kind: str, resource: Resource) -> Entry:
        """Return the object for a watcher to which this change is a ``kind``.

        A watcher whose selector no longer matches sees the object leave: its last matching state,
        under the version of the change.
        """
        if kind != DELETED or self.type == DELETED or self.previous is None:
            return self.entry
        if self._departed is None:
            self._departed = Entry(resource, self.previous.decode(), self.version)
        return self._departed

    def line(self, kind: str, resource: Resource) -> bytes:
        """Return the watch event as bytes, encoded once for all watchers."""
        found = self._lines.get(kind)
        if found is None:
            found = self._lines[kind] = watch_line(kind, self.seen_as(kind, resource).raw)
        return found


def watch_line(kind: str, raw: bytes) -> bytes:
    """Frame an encoded object as one event of a watch stream, without the line end."""
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw)


class ChangeListener(Protocol):
    """A subscriber to every change of a collection."""

    def offer(self, change: Change) -> None: ...

    def close(self) -> None: ...


def object_key(namespace: str, name: str) -> str:
    """Return the key objects are ordered by, as etcd orders them."""
    return f"{namespace}/{name}" if namespace else name


class Collection:
    """All objects of one kind, in key order, with their recent history."""

    def __init__(self, resource: Resource, history: int, forgotten: int = 0) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.watches: dict[ChangeListener, None] = {}
        self.on_change: list[Callable[[Change | None], None]] = []
        """Called before the watchers; with ``None`` if other objects were restored."""
        self._keys: list[str] = []
        self._history: deque[Change] = deque()
        self._history_limit = history
        self._forgotten = forgotten
        """Version of the newest change no longer remembered."""

    def apply(self, change: Change) -> None:
        """Make a change visible to readers, then notify the watchers."""
        key = change.entry.key
        if change.type == ADDED:
            insort(self._keys, key)
        if change.type == DELETED:
            del self._keys[bisect_left(self._keys, key)]
            del self.entries[key]
        else:
            self.entries[key] = change.entry
        self._history.append(change)
        if len(self._history) > self._history_limit:
            self._forgotten = self._history.popleft().version
        for follow in self.on_change:
            follow(change)
        for watch in tuple(self.watches):
            watch.offer(change)

    def forget_history(self, version: int) -> None:
        """Drop the changes up to ``version``, as a compaction does."""
        while self._history and self._history[0].version <= version:
            self._history.popleft()
        self._forgotten = max(self._forgotten, version)

    def restore(self, entries: Mapping[str, Entry], version: int) -> None:
        """Hold other objects from now on, without a history and without watchers."""
        self.entries = dict(entries)
        self._keys = sorted(entries)
        self._history.clear()
        self._forgotten = version
        for follow in self.on_change:
            follow(None)
        for watch in tuple(self.watches):
            watch.close()

    def changes_since(self, version: int) -> list[Change]:
        """Return what happened after ``version``; raises 410 when that is no longer known."""
        if version < self._forgotten:
            raise expired(f"too old resource version: {version} ({self._forgotten + 1})")
        newer: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def remembers(self, version: int) -> bool:
        return version >= self._forgotten

    def iterate(self, start: str, namespace: str) -> Iterator[Entry]:
        """Yield the present entries of a namespace ("" for all) from key ``start`` on."""
        prefix = f"{namespace}/" if namespace else ""
        first = bisect_left(self._keys, max(start, prefix))
        for index in range(first, len(self._keys)):
            key = self._keys[index]
            if not key.startswith(prefix):
                return
            yield self.entries[key]

    def iterate_at(self, version: int, start: str, namespace: str) -> Iterator[Entry]:
        """Yield the entries as they were at ``version``; it must still be remembered."""
        undone: dict[str, Entry | None] = {}
        for change in self.changes_since(version)[::-1]:
            undone[change.entry.key] = change.previous
        if not undone:
            yield from self.iterate(start, namespace)
            return
        prefix = f"{namespace}/" if namespace else ""
        revived = [
            entry
            for key, entry in undone.items()
            if entry is not None and key >= start and key.startswith(prefix)
        ]
        present = [e for e in self.iterate(start, namespace) if e.key not in undone]
        yield from sorted([*present, *revived], key=lambda entry: entry.key)


class StoreCopy(NamedTuple):
    """What a store held at one version, by collection."""

    version: int
    entries: Mapping[str, Mapping[str, Entry]]


class Store:
    """Every collection, and the one counter that numbers their changes."""

    def __init__(self, history: int = 10_000) -> None:
        self.version = 1
        self._history = history
        self._compacted = 0
        self._collections: dict[str, Collection] = {}

    def collection(self, resource: Resource) -> Collection:
        found = self._collections.get(resource.storage_key)
        if found is None:
            found = Collection(resource, self._history, self._compacted)
            self._collections[resource.storage_key] = found
        return found

    def collections(self) -> tuple[Collection, ...]:
        return tuple(self._collections.values())

    def create(self, resource: Resource, obj: JsonObject) -> Entry:
        """Add an object whose key is free."""
        collection = self.collection(resource)
        return self._commit(collection, ADDED, obj, None)

    def replace(self, resource: Resource, previous: Entry, obj: JsonObject) -> Entry:
        """Store a new version; an object that did not change keeps its version."""
        obj["metadata"]["resourceVersion"] = str(previous.version)
        encoded = _encode(obj)
        # The same fields in another order are the same object, and as long.
        if len(encoded) == len(previous.raw) and (
            encoded == previous.raw or obj == previous.decode()
        ):
            return previous
        return self._commit(self.collection(resource), MODIFIED, obj, previous)

    def delete(self, resource: Resource, previous: Entry) -> Entry:
        """Remove an object and return its last state under the version of its deletion."""
        return self._commit(self.collection(resource), DELETED, previous.decode(), previous)

    def compact(self) -> None:
        """Forget all history: watches and pages that begin in the past get 410 from now on."""
        self._compacted = self.version
        for collection in self._collections.values():
            collection.forget_history(self.version)

    def copy(self) -> StoreCopy:
        """Everything stored, for ``restore``."""
        entries = {key: dict(one.entries) for key, one in self._collections.items()}
        return StoreCopy(self.version, entries)

    def restore(self, copy: StoreCopy) -> None:
        """Go back to a copy, versions and all, as an etcd restored from a snapshot does."""
        self.version = self._compacted = copy.version
        for key, collection in self._collections.items():
            collection.restore(copy.entries.get(key, {}), copy.version)

    def _commit(
        self, collection: Collection, kind: str, obj: JsonObject, previous: Entry | None
    ) -> Entry:
        self.version += 1
        entry = Entry(collection.resource, obj, self.version)
        collection.apply(Change(kind, entry, previous))
        return entry


def check_known_version(store: Store, version: int) -> None:
    """Refuse a version from the future, as a server that has not caught up yet does."""
    if version > store.version:
        message = f"Too large resource version: {version}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        details = {"causes": causes, "retryAfterSeconds": 1}
        raise StatusError(504, "Timeout", f"Timeout: {message}", details)

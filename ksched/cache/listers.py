"""Objects that plugins look up: read-only listers, updated by the watches.

A kind is watched only if a plugin requires it (``Listers.require``), so a cluster without volumes
does not pay for them. Does not belong here: pods and nodes, which the cache and the snapshot own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from ksched.api.objects import Node, Pod
from ksched.api.watched_kinds import HasMetadata, WatchedKind, watched_kind
from ksched.cache.change_log import ChangeLog, Cursor
from ksched.cache.common_values import CommonValues
from ksched.errors import ConfigError

T = TypeVar("T", bound=HasMetadata)
V = TypeVar("V")


class Lister(Generic[T]):
    """All objects of one kind by key; ``generation`` changes with every update."""

    def __init__(self, followed: Callable[[Callable[[], None]], None] | None = None) -> None:
        """``followed`` is called with what ends a follower."""
        self._followed = followed
        self._objects: dict[str, T] = {}
        self._by_namespace: dict[str, dict[str, T]] = {}
        self._log: ChangeLog[str] = ChangeLog()
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._followers: list[Callable[[str], None]] = []
        self._common = CommonValues()

    @property
    def generation(self) -> int:
        return self._log.generation

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def in_namespace(self, namespace: str) -> list[T]:
        return list(self._by_namespace.get(namespace, {}).values())

    def cursor(self) -> Cursor[str]:
        """Return a cursor over the keys of changed objects."""
        return self._log.cursor()

    @contextmanager
    def notifying(self, keys: Iterable[str], listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` after each change of one of these objects, until the block ends."""
        keys = tuple(keys)
        for key in keys:
            self._listeners.setdefault(key, []).append(listener)
        try:
            yield
        finally:
            for key in keys:
                self._listeners[key].remove(listener)
                if not self._listeners[key]:
                    del self._listeners[key]

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Call ``follower`` with the key of every existing object, and of every later change.

        Returns what ends that. What is followed in a plugin's constructor ends with the plugin.
        """

        def end() -> None:
            # A new list: the old one may be iterated over.
            self._followers = [one for one in self._followers if one is not follower]

        self._followers.append(follower)
        if self._followed is not None:
            self._followed(end)
        for key in self._objects:
            follower(key)
        return end

    # -- writing, by the watches only -----------------------------------------------------------

    def put(self, obj: T) -> None:
        meta = obj.metadata
        key = meta.key
        self._common.share_metadata(meta)
        self._objects[key] = obj
        self._by_namespace.setdefault(meta.namespace, {})[meta.name] = obj
        self._note(key)

    def remove(self, obj: T) -> None:
        self._objects.pop(obj.metadata.key, None)
        members = self._by_namespace.get(obj.metadata.namespace, {})
        members.pop(obj.metadata.name, None)
        if not members:
            self._by_namespace.pop(obj.metadata.namespace, None)
        self._note(obj.metadata.key)

    def _note(self, key: str) -> None:
        self._log.append(key)
        for follower in self._followers:
            follower(key)
        for listener in tuple(self._listeners.get(key, ())):
            listener()

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)


class Listers:
    """The listers that plugins require, by kind."""

    def __init__(self) -> None:
        self._listers: dict[WatchedKind[Any], Lister[Any]] = {}
        self._views: dict[Callable[[Listers], Any], Any] = {}
        self._is_complete = False
        self._ends: list[Callable[[], None]] | None = None
        """Of what is followed now, if that is collected."""
        self._owned: dict[int, tuple[object, list[Callable[[], None]]]] = {}

    def require(self, kind: type[T] | WatchedKind[T]) -> Lister[T]:
        """Return the lister of a kind, which is watched from the start of the scheduler.

        ``kind`` is a struct of ``ksched.api``, or declared by the plugin (``WatchedKind.custom``).
        Call from a plugin's constructor. The initial list is complete before the first pod.
        """
        row = kind if isinstance(kind, WatchedKind) else watched_kind(kind)
        if row.struct in (Pod, Node):
            raise TypeError(
                "pods and nodes have no lister, they are in handle.snapshot; "
                "handle.pending_pods() has the pods without a node"
            )
        if self._is_complete and row not in self._listers:
            what = "what is watched is settled when the scheduler starts"
            raise ConfigError([f"{row.resource} is required too late: {what}"])
        return self._listers.setdefault(row, Lister(self._note_follower))

    def view(self, build: Callable[[Listers], V]) -> V:
        """Return ``build(self)``, built once and shared by all callers.

        For state that plugins of several profiles must share, such as assumed volumes.
        """
        if build not in self._views:
            # What it follows belongs to no single caller.
            with self.collecting():
                self._views[build] = build(self)
        shared: V = self._views[build]
        return shared

    def known_view(self, build: Callable[[Listers], V]) -> V | None:
        """Return the view if it was built already; does not build it."""
        return self._views.get(build)

    @contextmanager
    def collecting(self) -> Iterator[list[Callable[[], None]]]:
        """Collect, while the block runs, what ends the followers that it adds."""
        before, self._ends = self._ends, []
        try:
            yield self._ends
        finally:
            self._ends = before

    def own(self, owner: object, ends: list[Callable[[], None]]) -> None:
        """Let followers live as long as ``owner``, which nothing else keeps (``end_others``)."""
        if ends:
            self._owned[id(owner)] = owner, ends

    def end_others(self, owners: Iterable[object]) -> None:
        """End the followers of all owners but these."""
        kept = set(map(id, owners))
        for gone in self._owned.keys() - kept:
            for end in self._owned.pop(gone)[1]:
                end()

    def _note_follower(self, end: Callable[[], None]) -> None:
        if self._ends is not None:
            self._ends.append(end)

    def required(self) -> dict[WatchedKind[Any], Lister[Any]]:
        return dict(self._listers)

    def complete(self) -> None:
        """Close registration: all plugins are built, further kinds would not be watched."""
        self._is_complete = True

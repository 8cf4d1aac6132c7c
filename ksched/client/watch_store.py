"""The last known state of one kind of object, and the rules that make every change count once.

Whatever the network repeats, reorders or drops, a handler sees for each key an alternation of
``added``, any number of ``modified`` with a new resourceVersion, and ``deleted``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ksched.api.decoding import decode_metadata
from ksched.api.objects import ObjectMeta
from ksched.api.watched_kinds import HasMetadata
from ksched.errors import InvalidObject
from ksched.steps import Steps

log = logging.getLogger(__name__)

_TOMBSTONES_LIMIT = 10_000
_PLAIN_STARTS = (b'{"type":"MODIFIED","object":{', b'{"type":"ADDED","object":{')
_PLAIN_END = b"}\n"
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, InvalidObject, RecursionError)


T = TypeVar("T", bound=HasMetadata)
T_contra = TypeVar("T_contra", bound=HasMetadata, contravariant=True)


class Handler(Protocol[T_contra]):
    """Called with every change, synchronously and in order; an exception stops the reflector."""

    def added(self, obj: T_contra) -> None: ...

    def modified(self, old: T_contra, new: T_contra) -> None: ...

    def deleted(self, obj: T_contra) -> None:
        """Called with the version last passed to ``added`` or ``modified``."""
        ...

    def synced(self) -> None:
        """Called once, when everything that existed at the start has been delivered."""
        ...


def identify(raw: msgspec.Raw) -> ObjectMeta:
    """Read an object's identity; without a name if even that cannot be decoded."""
    try:
        return decode_metadata(raw).metadata
    except (InvalidObject, UnicodeDecodeError):
        return ObjectMeta()


class Fact(NamedTuple):
    """An object's state at some global version: its own version then, or none if deleted."""

    namespace: str
    name: str
    version: str
    at: str


class Store(Generic[T]):
    """Last known objects by key; resourceVersions separate changes from replays."""

    def __init__(
        self,
        kind: str,
        decode: Callable[[msgspec.Raw], T],
        handler: Handler[T],
        decode_in_steps: Callable[[msgspec.Raw], Steps[T]] | None = None,
    ) -> None:
        self._kind = kind
        self._decode = decode
        self._decode_in_steps = decode_in_steps
        self._handler = handler
        self._objects: dict[str, T] = {}
        self.objects: Mapping[str, T] = MappingProxyType(self._objects)
        # Version at which a key was last seen deleted; a change at or before it is a replay.
        self._tombstones: dict[str, str] = {}
        # Version of the last complete list: keys that are not in it did not exist then.
        self._floor = ""
        # Keys that could not be decoded; each is logged once.
        self._undecodable: set[str] = set()
        self._listed: set[str] | None = None
        # The object last seen in a new version, and the one deleted after it, if any.
        self._latest: ObjectMeta | None = None
        self._vanished: ObjectMeta | None = None

    # -- lists ----------------------------------------------------------------------------------

    def begin_list(self) -> None:
        """Start a complete list; an interrupted one is started again."""
        self._listed = set()
        self._latest = self._vanished = None

    def list_item(self, raw: msgspec.Raw, obj: T | None) -> None:
        """Apply one object of a list: authoritative, whatever was seen before.

        ``obj`` is what ``decoded`` returned.
        """
        assert self._listed is not None
        meta = identify(raw) if obj is None else obj.metadata
        if self._latest is None or is_newer(meta.resource_version, self._latest.resource_version):
            self._latest = meta
        if obj is None:
            return
        key = meta.key
        self._listed.add(key)
        old = self._objects.get(key)
        if old is None or old.metadata.resource_version != obj.metadata.resource_version:
            self._set(key, old, obj)

    def list_remove(self, raw: msgspec.Raw) -> None:
        """Remove an object of a list that was deleted while the list was streamed."""
        assert self._listed is not None
        self._listed.discard(identify(raw).key)

    def end_list(self, resource_version: str) -> None:
        """Finish a list: objects that were not in it are gone."""
        assert self._listed is not None
        for key in [key for key in self._objects if key not in self._listed]:
            self._handler.deleted(self._objects.pop(key))
        self._listed = None
        self._tombstones.clear()
        self._floor = resource_version

    # -- watch events ---------------------------------------------------------------------------

    def put(self, obj: T) -> str:
        """Apply an ADDED or MODIFIED object unless it is a replay; return its version."""
        key, version = obj.metadata.key, obj.metadata.resource_version
        old = self._objects.get(key)
        if old is not None:
            known = old.metadata.resource_version
        else:
            known = self._tombstones.get(key, self._floor)
        if is_newer(version, known):
            self._latest, self._vanished = obj.metadata, None
            self._set(key, old, obj)
        return version

    def remove(self, raw: msgspec.Raw) -> str:
        """Apply a DELETED object unless it is a replay; return its version."""
        meta = identify(raw)
        key, version = meta.key, meta.resource_version
        self._undecodable.discard(key)
        old = self._objects.get(key)
        # Equal versions: some servers send the last stored state with a deletion.
        if old is not None and (
            version == old.metadata.resource_version
            or is_newer(version, old.metadata.resource_version)
        ):
            self._vanished = meta
            self._vanish(key, version)
        return version

    # -- comparison with a server's history -----------------------------------------------------

    def holds(self, items: Iterable[msgspec.Raw]) -> bool:
        """Whether these are the stored objects, in the same versions."""
        found = {meta.key: meta.resource_version for meta in map(identify, items)}
        for key in self._undecodable:
            found.pop(key, None)
        held = {key: obj.metadata.resource_version for key, obj in self._objects.items()}
        return found == held

    def evidence(self, version: str) -> list[Fact]:
        """Return the latest changes, as facts that no other history shares.

        ``version`` is the known one. A deletion alone proves little: an object created after the
        backup is absent without it too.
        """
        facts = []
        if (meta := self._latest) is not None:
            held = self._objects.get(meta.key)
            own = meta.resource_version
            is_held = held is not None and held.metadata.resource_version == own
            facts.append(Fact(meta.namespace, meta.name, own, version if is_held else own))
        if (meta := self._vanished) is not None:
            facts.append(Fact(meta.namespace, meta.name, "", version))
        return facts

    # -- changes --------------------------------------------------------------------------------

    def _set(self, key: str, old: T | None, new: T) -> None:
        if old is not None and old.metadata.uid != new.metadata.uid:
            # Deleted and recreated while nothing was watched.
            del self._objects[key]
            self._handler.deleted(old)
            old = None
        self._objects[key] = new
        if old is None:
            self._handler.added(new)
        else:
            self._handler.modified(old, new)

    def _vanish(self, key: str, version: str) -> None:
        self._tombstones.pop(key, None)
        self._tombstones[key] = version
        if len(self._tombstones) > _TOMBSTONES_LIMIT:
            del self._tombstones[next(iter(self._tombstones))]
        self._handler.deleted(self._objects.pop(key))

    def decoded_at_once(self, line: bytes) -> T | None:
        """Return the object of an event that adds or modifies it; the line is as servers write it.

        To find the object in the line first is another pass over all of it. ``None`` for all other
        lines: they have to be parsed, and may be wrong.
        """
        if not (line.startswith(_PLAIN_STARTS) and line.endswith(_PLAIN_END)):
            return None
        try:
            # Anything beside the object would make this invalid.
            obj = self._decode(msgspec.Raw(line[line.index(b"{", 1) : -len(_PLAIN_END)]))
        except _UNDECODABLE:
            return None
        if self._undecodable:
            self._undecodable.discard(obj.metadata.key)
        return obj

    def decoded(self, raw: msgspec.Raw) -> T | None:
        """Return the object, or None if it is invalid: then it is treated as absent."""
        try:
            obj = self._decode(raw)
        except _UNDECODABLE as error:
            self._forget_undecodable(raw, error)
            return None
        if self._undecodable:
            self._undecodable.discard(obj.metadata.key)
        return obj

    def decoded_in_steps(self, raw: msgspec.Raw) -> Steps[T | None]:
        """The same for a large object; its decoder may pause."""
        if self._decode_in_steps is None:
            return self.decoded(raw)
        try:
            obj = yield from self._decode_in_steps(raw)
        except _UNDECODABLE as error:
            self._forget_undecodable(raw, error)
            return None
        self._undecodable.discard(obj.metadata.key)
        return obj

    def _forget_undecodable(self, raw: msgspec.Raw, error: Exception) -> None:
        meta = identify(raw)
        if meta.key not in self._undecodable:
            log.error(
                "object cannot be decoded",
                extra={"kind": self._kind, "key": meta.key, "err": str(error)},
            )
        self._undecodable.add(meta.key)
        old = self._objects.get(meta.key)
        # During a list the key stays unlisted and end_list removes it.
        if (
            self._listed is None
            and old is not None
            and is_newer(meta.resource_version, old.metadata.resource_version)
        ):
            self._vanish(meta.key, meta.resource_version)


def is_newer(version: str, known: str) -> bool:
    """Whether a resourceVersion is later than another.

    Versions are decimal numbers on every known server; others cannot be ordered, and then any
    difference counts as newer.
    """
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known


def is_older(version: str, known: str) -> bool:
    """Whether a resourceVersion is earlier than another; never if they cannot be ordered."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)

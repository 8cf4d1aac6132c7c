"""Objects that plugins look up: plain read-only listings, kept true by the watches.

A listing is watched only when a plugin asks for it (``Listings.want``), so a cluster without
volumes pays for none. Does not belong here: pods and nodes, which the cache and the snapshot own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from ksched.api.objects import ObjectMeta


class HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMetadata)


class Listing(Generic[T]):
    """All objects of one kind by key; ``generation`` changes with every change."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._by_namespace: dict[str, dict[str, T]] = {}
        self.generation = 0

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def in_namespace(self, namespace: str) -> list[T]:
        return list(self._by_namespace.get(namespace, {}).values())

    def put(self, obj: T) -> None:
        self._objects[obj.metadata.key] = obj
        self._by_namespace.setdefault(obj.metadata.namespace, {})[obj.metadata.name] = obj
        self.generation += 1

    def remove(self, obj: T) -> None:
        self._objects.pop(obj.metadata.key, None)
        members = self._by_namespace.get(obj.metadata.namespace, {})
        members.pop(obj.metadata.name, None)
        if not members:
            self._by_namespace.pop(obj.metadata.namespace, None)
        self.generation += 1

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)


class Listings:
    """The listings somebody wants, by object type."""

    def __init__(self) -> None:
        self._listings: dict[type, Listing[Any]] = {}

    def want(self, kind: type[T]) -> Listing[T]:
        """Return the listing of a kind. Call from a plugin's constructor: it starts the watch."""
        return self._listings.setdefault(kind, Listing())

    def wanted(self) -> dict[type, Listing[Any]]:
        return dict(self._listings)

"""Custom resources: the kinds that CustomResourceDefinitions add to a server.

A definition is served as soon as it is stored, in its storage version only; its objects are deleted
with it. Schemas are ignored: every field is stored as it was written.
"""

from __future__ import annotations

from ksched.apiserver.custom_definitions import served_row
from ksched.apiserver.object_store import DELETED, Change, Store
from ksched.apiserver.served_resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    Resource,
    ServedResources,
)


class CustomResources:
    """Keeps what a server serves true to the definitions in its store."""

    def __init__(self, store: Store, resources: ServedResources) -> None:
        self._store, self._resources = store, resources
        store.collection(CUSTOM_RESOURCE_DEFINITIONS).on_change.append(self._follow)

    def _follow(self, change: Change | None) -> None:
        if change is not None and change.type == DELETED:
            self._delete_objects(served_row(change.entry.decode()))
        definitions = self._store.collection(CUSTOM_RESOURCE_DEFINITIONS).entries
        for row in [row for row in self._resources if row.is_custom]:
            self._resources.remove(row)
        for entry in definitions.values():
            self._resources.add(served_row(entry.decode()))

    def _delete_objects(self, row: Resource) -> None:
        collection = self._store.collection(row)
        for entry in tuple(collection.entries.values()):
            self._store.delete(row, entry)
        for watch in tuple(collection.watches):
            watch.close()

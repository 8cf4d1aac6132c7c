"""Volumes and claims, with the promises made to pods that are being bound.

A promise is a changed copy of an object that is on its way to the API server: a volume reserved for
a claim, a claim with the node to provision for. It covers the object that the watch last brought,
and only that version of it: whatever the watch brings next is newer than what was promised. Shared
by all profiles (``listings.view(Volumes)``), so that no volume is promised twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from ksched.api.node_selectors import NodeTerms, compile_node_selector
from ksched.api.quantity import to_nanos
from ksched.api.storage import PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity
from ksched.cache.listings import HasMetadata, Listing, Listings

T = TypeVar("T", bound=HasMetadata)


class NotAssumed(Exception):
    """An object cannot be assumed: it is gone, or no longer the version that was looked at."""


class AssumedListing(Generic[T]):
    """A listing with promises on top."""

    def __init__(self, listing: Listing[T], plural: str) -> None:
        self.listing = listing
        self._plural = plural
        self._assumed: dict[str, T] = {}
        self._touched: list[str] = []
        self._generation = 0

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object as promised, or as the watch last brought it."""
        known = self.listing.get(name, namespace)
        return known if known is None else self._cover(known)

    def assume(self, obj: T) -> None:
        """Promise a changed copy of an object; raises ``NotAssumed`` if it changed meanwhile."""
        key = obj.metadata.key
        known = self.listing.get(obj.metadata.name, obj.metadata.namespace)
        if known is None:
            raise NotAssumed(f'{self._plural} "{key}" not found')
        stored, version = known.metadata.resource_version, obj.metadata.resource_version
        if stored != version:
            raise NotAssumed(f'"{key}" is out of sync (stored: {stored}, assume: {version})')
        self._assumed[key] = obj
        self._touched.append(key)

    def restore(self, obj: T) -> None:
        """Take a promise back, unless another one has taken its place."""
        key = obj.metadata.key
        if self._assumed.get(key) is obj:
            del self._assumed[key]
            self._touched.append(key)

    def changes(self) -> set[str] | None:
        """Keys that look different since the last call; ``None`` if too many to tell.

        Promises that the watch has overtaken are dropped here. There is one reader.
        """
        listed = self.listing.since(self._generation)
        self._generation = self.listing.generation
        touched, self._touched = self._touched, []
        keys = self._assumed if listed is None else listed
        for key in [key for key in keys if key in self._assumed]:
            namespace, _, name = key.rpartition("/")
            known = self.listing.get(name, namespace)
            if known is None or self._cover(known) is known:
                del self._assumed[key]
        return None if listed is None else {*listed, *touched}

    @property
    def assumed(self) -> Mapping[str, T]:
        """Promises by key; some may be overtaken already."""
        return self._assumed

    def _cover(self, known: T) -> T:
        assumed = self._assumed.get(known.metadata.key)
        if assumed is None or assumed.metadata.resource_version != known.metadata.resource_version:
            return known
        return assumed


class VolumeFacts(NamedTuple):
    """A volume and what is asked of it again and again."""

    volume: PersistentVolume
    capacity_nanos: int
    affinity: NodeTerms | None
    """Nodes that can reach it; ``None`` for all."""


class ClassVolumes:
    """The volumes of one storage class by name; ``version`` changes when one of them does."""

    __slots__ = ("members", "version")

    def __init__(self) -> None:
        self.members: dict[str, VolumeFacts] = {}
        self.version = 0


class Volumes:
    """All volumes and claims, promises included, and the volumes by class."""

    def __init__(self, listings: Listings) -> None:
        self.volumes = AssumedListing(listings.want(PersistentVolume), "persistentvolumes")
        self.claims = AssumedListing(listings.want(PersistentVolumeClaim), "persistentvolumeclaims")
        self._classes: dict[str, ClassVolumes] = {}
        self._class_of: dict[str, str] = {}

    def of_class(self, class_name: str) -> ClassVolumes:
        """The volumes of a class as they are now."""
        self._catch_up()
        return self._classes.setdefault(class_name, ClassVolumes())

    def facts(self, name: str) -> VolumeFacts | None:
        """A volume by name."""
        self._catch_up()
        class_name = self._class_of.get(name)
        return None if class_name is None else self._classes[class_name].members[name]

    def _catch_up(self) -> None:
        changed = self.volumes.changes()
        self.claims.changes()
        if changed is None:
            changed = {volume.metadata.name for volume in self.volumes.listing}
            changed.update(self._class_of)
        for name in changed:
            volume = self.volumes.get(name)
            class_name = None if volume is None else volume.class_name
            before = self._class_of.get(name)
            if before is not None and before != class_name:
                del self._class_of[name]
                del self._classes[before].members[name]
                self._classes[before].version += 1
            if volume is not None and class_name is not None:
                self._class_of[name] = class_name
                volumes = self._classes.setdefault(class_name, ClassVolumes())
                volumes.members[name] = _facts(volume)
                volumes.version += 1


def _facts(volume: PersistentVolume) -> VolumeFacts:
    try:
        capacity = to_nanos(volume.spec.capacity.get("storage", 0))
    except ValueError:
        # No API server lets it pass; a volume of unknown size is none.
        capacity = -1
    return VolumeFacts(volume, capacity, compile_affinity(volume.spec.node_affinity))


def compile_affinity(affinity: VolumeNodeAffinity | None) -> NodeTerms | None:
    """Compile which nodes can reach a volume; ``None`` for all.

    Only labels are looked at: to a condition on a node's name every node is nameless, as upstream.
    """
    if affinity is None or affinity.required is None:
        return None
    return NodeTerms(
        tuple(
            term._replace(
                requirements=tuple(
                    wanted._replace(key="") if wanted.is_field else wanted
                    for wanted in term.requirements
                )
            )
            for term in compile_node_selector(affinity.required).terms
        )
    )

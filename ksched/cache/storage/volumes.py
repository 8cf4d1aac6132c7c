"""Volumes and claims, with the assumed changes of pods that are being bound.

An assumed object is a modified copy whose update is on its way to the API server: a volume reserved
for a claim, a claim with its selected node. It hides the version last received from the watch, and
only that version: the next watch event is newer than the assumption. Shared by all profiles
(``listers.view(Volumes)``), so that no volume is assigned twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ksched.api.storage import PersistentVolume, PersistentVolumeClaim
from ksched.api.watched_kinds import HasMetadata
from ksched.cache.listers import Lister, Listers
from ksched.cache.storage.volume_index import ClassVolumes, VolumeFacts, facts_of

T = TypeVar("T", bound=HasMetadata)


class NotAssumed(Exception):
    """An object cannot be assumed: it is gone, or no longer the version that was read."""


class AssumedLister(Generic[T]):
    """A lister overlaid with assumed objects. kube-scheduler: passiveAssumeCache, AssumeCache,
    PVAssumeCache, PVCAssumeCache."""

    def __init__(self, lister: Lister[T], plural: str) -> None:
        self.lister = lister
        self._plural = plural
        self._assumed: dict[str, T] = {}
        self._followers: list[Callable[[str], None]] = []
        lister.follow(self._listed)

    def follow(self, follower: Callable[[str], None]) -> None:
        """Call ``follower`` with every key, and again when its visible object changes."""
        self._followers.append(follower)
        for obj in self.lister:
            follower(obj.metadata.key)

    def _changed(self, key: str) -> None:
        for follower in self._followers:
            follower(key)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return the assumed object, or the one last received from the watch.

        kube-scheduler: replaceAssumed.
        """
        known = self.lister.get(name, namespace)
        return None if known is None else self._assumed.get(known.metadata.key, known)

    def assume(self, obj: T) -> None:
        """Assume a modified copy of an object; raises ``NotAssumed`` if it changed meanwhile."""
        key = obj.metadata.key
        known = self.lister.get(obj.metadata.name, obj.metadata.namespace)
        if known is None:
            raise NotAssumed(f'{self._plural} "{key}" not found')
        stored, version = known.metadata.resource_version, obj.metadata.resource_version
        if stored != version:
            raise NotAssumed(f'"{key}" is out of sync (stored: {stored}, assume: {version})')
        self._assumed[key] = obj
        self._changed(key)

    @property
    def assumed(self) -> Mapping[str, T]:
        """The assumed objects by key; read-only."""
        return self._assumed

    def restore(self, obj: T) -> None:
        """Drop an assumed object, unless a later one replaced it."""
        key = obj.metadata.key
        if self._assumed.get(key) is obj:
            del self._assumed[key]
            self._changed(key)

    def forget_assumed(self) -> None:
        """Drop all assumed objects."""
        assumed, self._assumed = self._assumed, {}
        for key in assumed:
            self._changed(key)

    def _listed(self, key: str) -> None:
        """Drop an assumed object when the watch delivers a version.

        kube-scheduler: mayExpire.
        """
        assumed = self._assumed.get(key)
        if assumed is not None:
            meta = assumed.metadata
            known = self.lister.get(meta.name, meta.namespace)
            if known is None or known.metadata.resource_version != meta.resource_version:
                del self._assumed[key]
        self._changed(key)


class Volumes:
    """All volumes and claims, assumed ones included, and the volumes by class."""

    def __init__(self, listers: Listers) -> None:
        self.claims = AssumedLister(
            listers.require(PersistentVolumeClaim), "persistentvolumeclaims"
        )
        self.volumes = AssumedLister(listers.require(PersistentVolume), "persistentvolumes")
        self.losses = 0
        """How often assumed objects were dropped because the API server lost its data."""
        self._classes: dict[str, ClassVolumes] = {}
        self._class_of: dict[str, str] = {}
        self.volumes.follow(self._file)

    def forget_assumed(self) -> None:
        """Drop all assumed objects, whether or not they were written."""
        self.losses += 1
        self.claims.forget_assumed()
        self.volumes.forget_assumed()

    def of_class(self, class_name: str) -> ClassVolumes:
        """Return the volumes of a class.

        kube-scheduler: ByIndex.
        """
        return self._classes.setdefault(class_name, ClassVolumes())

    def facts(self, name: str) -> VolumeFacts | None:
        """Return a volume by name."""
        class_name = self._class_of.get(name)
        return None if class_name is None else self._classes[class_name].members[name]

    def _file(self, name: str) -> None:
        """Move a volume to its current index entry."""
        volume = self.volumes.get(name)
        facts = None if volume is None else facts_of(volume)
        before = self._class_of.pop(name, None)
        if before is not None and (volume is None or volume.class_name != before):
            self._classes[before].remove(name)
        if volume is not None and facts is not None:
            self._class_of[name] = volume.class_name
            self.of_class(volume.class_name).put(facts)

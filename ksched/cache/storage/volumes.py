"""Volumes and claims, with the promises made to pods that are being bound.

A promise is a changed copy of an object that is on its way to the API server: a volume reserved for
a claim, a claim with the node to provision for. It covers the object that the watch last brought,
and only that version of it: whatever the watch brings next is newer than what was promised. Shared
by all profiles (``listers.view(Volumes)``), so that no volume is promised twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ksched.api.storage import PersistentVolume, PersistentVolumeClaim
from ksched.api.watched_kinds import HasMetadata
from ksched.cache.listers import Lister, Listers
from ksched.cache.storage.volume_index import ClassVolumes, VolumeFacts, facts_of

T = TypeVar("T", bound=HasMetadata)


class NotAssumed(Exception):
    """An object cannot be assumed: it is gone, or no longer the version that was looked at."""


class AssumedLister(Generic[T]):
    """A lister with promises on top. kube-scheduler: passiveAssumeCache, AssumeCache."""

    def __init__(self, lister: Lister[T], plural: str) -> None:
        self.lister = lister
        self._plural = plural
        self._assumed: dict[str, T] = {}
        self._followers: list[Callable[[str], None]] = []
        lister.follow(self._listed)

    def follow(self, follower: Callable[[str], None]) -> None:
        """Call ``follower`` with every key, now and whenever its object looks different."""
        self._followers.append(follower)
        for obj in self.lister:
            follower(obj.metadata.key)

    def _changed(self, key: str) -> None:
        for follower in self._followers:
            follower(key)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object as promised, or as the watch last brought it."""
        known = self.lister.get(name, namespace)
        return None if known is None else self._assumed.get(known.metadata.key, known)

    def assume(self, obj: T) -> None:
        """Promise a changed copy of an object; raises ``NotAssumed`` if it changed meanwhile."""
        key = obj.metadata.key
        known = self.lister.get(obj.metadata.name, obj.metadata.namespace)
        if known is None:
            raise NotAssumed(f'{self._plural} "{key}" not found')
        stored, version = known.metadata.resource_version, obj.metadata.resource_version
        if stored != version:
            raise NotAssumed(f'"{key}" is out of sync (stored: {stored}, assume: {version})')
        self._assumed[key] = obj
        self._changed(key)

    def restore(self, obj: T) -> None:
        """Take a promise back, unless another one has taken its place."""
        key = obj.metadata.key
        if self._assumed.get(key) is obj:
            del self._assumed[key]
            self._changed(key)

    def break_promises(self) -> None:
        """Take all promises back."""
        assumed, self._assumed = self._assumed, {}
        for key in assumed:
            self._changed(key)

    def _listed(self, key: str) -> None:
        """Drop a promise that the watch has overtaken."""
        assumed = self._assumed.get(key)
        if assumed is not None:
            meta = assumed.metadata
            known = self.lister.get(meta.name, meta.namespace)
            if known is None or known.metadata.resource_version != meta.resource_version:
                del self._assumed[key]
        self._changed(key)


class Volumes:
    """All volumes and claims, promises included, and the volumes by class."""

    def __init__(self, listers: Listers) -> None:
        self.claims = AssumedLister(
            listers.require(PersistentVolumeClaim), "persistentvolumeclaims"
        )
        self.volumes = AssumedLister(listers.require(PersistentVolume), "persistentvolumes")
        self.losses = 0
        """How often promises were broken because the API server lost what it was told."""
        self._classes: dict[str, ClassVolumes] = {}
        self._class_of: dict[str, str] = {}
        self.volumes.follow(self._file)

    def break_promises(self) -> None:
        """Take all promises back, whether or not they were written."""
        self.losses += 1
        self.claims.break_promises()
        self.volumes.break_promises()

    def of_class(self, class_name: str) -> ClassVolumes:
        """The volumes of a class."""
        return self._classes.setdefault(class_name, ClassVolumes())

    def facts(self, name: str) -> VolumeFacts | None:
        """A volume by name."""
        class_name = self._class_of.get(name)
        return None if class_name is None else self._classes[class_name].members[name]

    def _file(self, name: str) -> None:
        """Put a volume where it belongs now."""
        volume = self.volumes.get(name)
        facts = None if volume is None else facts_of(volume)
        before = self._class_of.pop(name, None)
        if before is not None and (volume is None or volume.class_name != before):
            self._classes[before].remove(name)
        if volume is not None and facts is not None:
            self._class_of[name] = volume.class_name
            self.of_class(volume.class_name).put(facts)

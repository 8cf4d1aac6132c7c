"""The device class that backs an extended resource.

Follows dynamicresources/extended/extendedresourcecache (v1.36), including these properties: a class
whose name is held by a preferred class is not found by its implicit name either; an update that
keeps the name is not preferred to the stored version and is ignored; a deletion drops both names
even if they are another class's.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from ksched.api.devices import IMPLICIT_EXTENDED_RESOURCE_PREFIX, DeviceClass
from ksched.api.pod_resources import is_extended_resource_name
from ksched.cache.listers import Listers


class ExtendedResourceClasses:
    """Device classes by the extended resources that they back.

    Shared by all plugins (``listers.view(ExtendedResourceClasses)``).
    """

    def __init__(self, listers: Listers) -> None:
        self._lister = listers.require(DeviceClass)
        self._classes: dict[str, DeviceClass] = {}
        self._seen: dict[str, DeviceClass] = {}
        self.generation = 0
        """Grows when a resource is backed by another class."""
        self._listeners: list[Callable[[], None]] = []
        self._lister.follow(self._listed)

    def get(self, resource: str) -> DeviceClass | None:
        return self._classes.get(resource)

    def backed_among(self, resources: Set[str]) -> frozenset[str]:
        """Return the resources that a class backs.

        A pod may request tens of thousands of names: the cost is that of the smaller set.
        """
        return frozenset(filter(is_device_resource_name, self._classes.keys() & resources))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever resources are backed by other classes."""
        self._listeners.append(listener)

    def _listed(self, name: str) -> None:
        before, after = self._seen.get(name), self._lister.get(name)
        if after is None:
            self._seen.pop(name, None)
            if before is not None:
                self._drop(before)
            return
        self._seen[name] = after
        wanted = after.spec.extended_resource_name
        holder = self._classes.get(wanted) if wanted else None
        if holder is not None and not _is_preferred(after, holder):
            return
        if before is not None:
            self._drop(before)
        if wanted:
            self._classes[wanted] = after
        self._classes[implicit_name(after)] = after
        self._changed()

    def _drop(self, one: DeviceClass) -> None:
        if one.spec.extended_resource_name:
            self._classes.pop(one.spec.extended_resource_name, None)
        self._classes.pop(implicit_name(one), None)
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        for listener in self._listeners:
            listener()


def implicit_name(one: DeviceClass) -> str:
    return f"{IMPLICIT_EXTENDED_RESOURCE_PREFIX}{one.metadata.name}"


def is_device_resource_name(resource: str) -> bool:
    """Whether a device class may back a resource of this name."""
    return is_extended_resource_name(resource) or resource.startswith(
        IMPLICIT_EXTENDED_RESOURCE_PREFIX
    )


def _is_preferred(one: DeviceClass, other: DeviceClass) -> bool:
    """Whether a class gets a name that another has: the newer one, then the smaller name."""
    created, than = (each.metadata.creation_timestamp or "" for each in (one, other))
    if created != than:
        return created > than
    return one.metadata.name < other.metadata.name

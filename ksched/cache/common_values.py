"""One object for equal values that many API objects have.

Every decoded object has its own empty lists, its own ``"Running"``, its own conditions and owners:
about a third of the memory of a running pod. Objects are frozen and never written to, so they can
share these.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from ksched.api.objects import ObjectMeta, PodStatus
from ksched.tuning import COMMON_VALUE_BYTES, COMMON_VALUES_KEPT

V = TypeVar("V", bound=Hashable)

_NO_ITEMS: list[Any] = []
_NO_PAIRS: dict[str, Any] = {}
_STATUS_LISTS = ("container_statuses", "init_container_statuses", "resource_claim_statuses")
_encode = msgspec.msgpack.Encoder().encode


class CommonValues:
    """Small values that were seen before; all are forgotten when there are too many.

    Large ones are rarely equal, and those of a hostile tenant would be kept when its objects are
    gone.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def share_metadata(self, meta: ObjectMeta) -> None:
        """Make an object's metadata share values; labels are left as they are."""
        if not meta.annotations:
            force_setattr(meta, "annotations", _NO_PAIRS)
        owners = meta.owner_references
        force_setattr(meta, "owner_references", self._list(owners) if owners else _NO_ITEMS)
        if meta.finalizers:
            force_setattr(meta, "finalizers", self.common(meta.finalizers))
        if meta.creation_timestamp is not None:
            force_setattr(meta, "creation_timestamp", self.common(meta.creation_timestamp))

    def shared_status(self, status: PodStatus) -> PodStatus:
        """Return an equal status that shares values; it is one for all pods that have not started.

        When a pod has started, the time of it distinguishes it from most others.
        """
        if status.start_time is not None:
            self._share_parts(status)
            return status
        key = _encode(status)
        known: PodStatus | None = self._known.get(key)
        if known is None:
            self._share_parts(status)
            self._put(key, status)
            return status
        return known

    def _share_parts(self, status: PodStatus) -> None:
        for name in _STATUS_LISTS:
            if not getattr(status, name):
                force_setattr(status, name, _NO_ITEMS)
        if not status.allocated_resources:
            force_setattr(status, "allocated_resources", _NO_PAIRS)
        force_setattr(status, "conditions", self._list(status.conditions))
        force_setattr(status, "phase", self.common(status.phase))
        if status.start_time is not None:
            force_setattr(status, "start_time", self.common(status.start_time))

    def common(self, value: V) -> V:
        """Return the first value that was equal to this one."""
        known: V | None = self._known.get(value)
        if known is None:
            self._put(value, value)
            return value
        return known

    def _list(self, items: list[Any]) -> list[Any]:
        """The same for a list of frozen structs."""
        if not items:
            return _NO_ITEMS
        if len(items) > COMMON_VALUE_BYTES:
            return items
        key = tuple(items)
        known: list[Any] | None = self._known.get(key)
        if known is None:
            self._put(key, items)
            return items
        return known

    def _put(self, key: Hashable, value: Any) -> None:
        if len(_encode(value)) > COMMON_VALUE_BYTES:
            return
        if len(self._known) >= COMMON_VALUES_KEPT:
            self._known.clear()
        self._known[key] = value

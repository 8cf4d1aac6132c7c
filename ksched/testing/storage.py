"""A handle with storage objects, for plugins that are run without a scheduler.

run_filter(VolumeZone(listers(claim, volume)), pod, nodes=[node])
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ksched.cache.listers import Listers
from ksched.framework import Handle, Snapshot
from ksched.metrics import Metrics
from ksched.testing.builders import Builder


def listers(*objects: Builder[Any]) -> Listers:
    """Listers that contain some objects."""
    known = Listers()
    for builder in objects:
        obj = builder.obj()
        known.require(type(obj)).put(obj)
    return known


def storage_handle(*objects: Builder[Any], snapshot: Snapshot | None = None) -> Handle:
    """A handle for a plugin that only reads listers."""
    parts = SimpleNamespace(listers=listers(*objects), snapshot=snapshot, metrics=Metrics())
    return cast(Handle, parts)

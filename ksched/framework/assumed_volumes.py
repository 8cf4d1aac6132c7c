"""Volumes and claims as plugins see them: what was watched, with assumed bindings on top.

``Volumes`` has both; ``ClassVolumes`` are the volumes of one storage class, sorted by size and
grouped by where they can be reached. ``NotAssumed`` is raised for a binding that came too late.
Does not belong here: which volume a claim gets (``ksched.framework.plugins.volumes``).
"""

from ksched.cache.storage.volume_index import (
    ClassVolumes,
    Ranked,
    VolumeFacts,
    VolumeGroup,
    compile_affinity,
    count_at_least,
)
from ksched.cache.storage.volumes import NotAssumed, Volumes

__all__ = [
    "ClassVolumes",
    "NotAssumed",
    "Ranked",
    "VolumeFacts",
    "VolumeGroup",
    "Volumes",
    "compile_affinity",
    "count_at_least",
]

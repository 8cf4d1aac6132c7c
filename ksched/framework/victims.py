"""The victims of a preemption, and the extenders' part in selecting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot


class Victims(Struct, frozen=True):
    """Pods to be evicted from one node, the most important first."""

    pods: Sequence[PodInfo]
    num_pdb_violations: int = 0


class SupportsPreemption(Protocol):
    """What DefaultPreemption needs of the extenders."""

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], snapshot: Snapshot
    ) -> Mapping[str, Victims]:
        """Return the acceptable ones of these preemptions, by node; raises ``ExtenderError``."""
        ...

"""The newest version of every pending pod, in one place.

A pod is pending from its first watch event until it is assigned or deleted, whether it is queued,
in flight, assumed, or quarantined. An attempt continues with the version it began with; everything
after the attempt reads the version stored here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ksched.cache.pod_info import PodInfo


class PendingPods:
    """Pending pods of our profiles by UID. The handler of watched pods is the only writer."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}

    def get(self, uid: str) -> PodInfo | None:
        """Return the newest version of a pod; ``None`` if it is no longer pending or not ours."""
        return self._pods.get(uid)

    def put(self, pod: PodInfo) -> PodInfo | None:
        """Store a version; returns the previous one."""
        old = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        return old

    def remove(self, uid: str) -> PodInfo | None:
        """Remove a pod; returns its last version."""
        return self._pods.pop(uid, None)

    def __iter__(self) -> Iterator[PodInfo]:
        return iter(tuple(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

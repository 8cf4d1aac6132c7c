"""The newest version of every pending pod, in one place.

A pod is pending from the moment the watch tells of it until it is assigned or gone, whether it
waits in the queue, is being tried, is assumed on a node, or is quarantined. Attempts go on with the
version they began with; whatever comes after an attempt asks here.
"""

from __future__ import annotations

from ksched.cache.pod_info import PodInfo


class PendingPods:
    """Pending pods of our profiles by UID. The handler of watched pods is the only writer."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}

    def get(self, uid: str) -> PodInfo | None:
        """The newest version of a pod; ``None`` if it is not pending, or not ours, any more."""
        return self._pods.get(uid)

    def put(self, pod: PodInfo) -> PodInfo | None:
        """Take in a version; returns the one before it."""
        old = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        return old

    def remove(self, uid: str) -> PodInfo | None:
        """Forget a pod; returns its last version."""
        return self._pods.pop(uid, None)

    def __len__(self) -> int:
        return len(self._pods)

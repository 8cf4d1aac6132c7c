"""Pods by UID, of which a copy costs what changed, not how many there are.

A node is copied whenever it is published to the snapshot, and hardly any cycle reads the pods of a
copy. So a copy of many pods refers to an older state and to the changes since, and becomes a
dictionary of its own when it is read. The changes are those of the original in their order: the
copy has the same pods in the same order as if it had been made at once.
"""

from __future__ import annotations

from itertools import islice

from ksched.cache.pod_info import PodInfo
from ksched.tuning import PODS_COPIED_AT_ONCE

_Change = tuple[str, PodInfo | None]
"""A pod that was put, or (``None``) removed."""


class PodsByUid:
    """The pods of a node."""

    __slots__ = ("_base", "_changes", "_end", "_pods", "count")

    def __init__(self) -> None:
        self.count = 0
        self._pods: dict[str, PodInfo] | None = {}
        """``None`` in a copy that was not read yet."""
        self._base: dict[str, PodInfo] | None = None
        """What copies start from; never modified."""
        self._changes: list[_Change] | None = None
        """What followed, if there is a base; in a copy the first ``_end`` of them."""
        self._end = 0

    @property
    def pods(self) -> dict[str, PodInfo]:
        """All pods, in the order in which they came; only ``put`` and ``pop`` may modify it."""
        if self._pods is None:
            assert self._base is not None
            assert self._changes is not None
            pods = self._base.copy()
            for uid, pod in islice(self._changes, self._end):
                if pod is None:
                    del pods[uid]
                else:
                    pods[uid] = pod
            self._pods = pods
            self._start_over()
        return self._pods

    def put(self, pod: PodInfo) -> None:
        """Add a pod, or replace it."""
        pods = self.pods
        pods[pod.uid] = pod
        self.count = len(pods)
        self._note(pod.uid, pod)

    def pop(self, uid: str) -> PodInfo:
        pods = self.pods
        pod = pods.pop(uid)
        self.count = len(pods)
        self._note(uid, None)
        return pod

    def copy(self) -> PodsByUid:
        """Return a copy that is independent of later changes."""
        copy = PodsByUid()
        copy.count = self.count
        if self.count <= PODS_COPIED_AT_ONCE:
            copy._pods = self.pods.copy()
            return copy
        if self._base is None or self._changes is None:
            self._base, self._changes = self.pods.copy(), []
        copy._pods = None
        copy._base, copy._changes = self._base, self._changes
        copy._end = self._end if self._pods is None else len(self._changes)
        return copy

    def _note(self, uid: str, pod: PodInfo | None) -> None:
        if self._changes is None:
            return
        self._changes.append((uid, pod))
        if len(self._changes) > self.count // 2:
            self._start_over()

    def _start_over(self) -> None:
        """Let the next copy start from the pods as they are then."""
        self._base, self._changes, self._end = None, None, 0

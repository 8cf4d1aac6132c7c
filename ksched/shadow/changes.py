"""Watched changes in the order of the server's history, and a copy of the cluster to replay them.

Watches of different kinds arrive in any order, but their resourceVersions are those of one history.
Changes are held back for a moment and sorted; then the copy of the cluster is, before each change,
what the cluster was. A change can be taken back and made again, so that a decision can be tried on
the states around it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ksched.api.objects import Node, Pod
from ksched.api.watched_kinds import WatchedKind
from ksched.errors import InvalidObject
from ksched.explain.cluster_copy import ClusterCopy

HISTORY_LENGTH: Final = 2000
MAX_INVALID: Final = 20
MAX_HELD: Final = 20_000
"""More changes than this are not held back: memory is bounded, and the comparison has fallen
behind."""


class Change(Struct, frozen=True, eq=False):
    """One object before and after; ``None`` if it did not exist.

    ``version`` orders changes of all kinds, ``at`` is when it was seen. ``is_late``: it was found
    in a list, among others, so the order of events is not known.
    """

    kind: WatchedKind[Any]
    old: Any
    new: Any
    version: int
    at: float
    is_late: bool = False

    @property
    def key(self) -> tuple[str, str]:
        obj = self.old if self.new is None else self.new
        return self.kind.resource.plural, obj.metadata.key

    @property
    def is_binding(self) -> bool:
        """Whether a pending pod was bound."""
        return (
            self.kind.struct is Pod
            and self.old is not None
            and self.new is not None
            and bool(self.new.spec.node_name and not self.old.spec.node_name)
        )

    @property
    def matters(self) -> bool:
        """Whether a decision can depend on it; heartbeats and reports of a pod's phase do not."""
        if self.old is None or self.new is None:
            return True
        if self.kind.struct is Pod:
            return _scheduled_by(self.old) != _scheduled_by(self.new)
        if self.kind.struct is Node:
            return _judged_by(self.old) != _judged_by(self.new)
        return True

    def __str__(self) -> str:
        _, key = self.key
        if self.is_binding:
            return f"bind of {key}"
        what = "creation" if self.old is None else "deletion" if self.new is None else "update"
        return f"{what} of {self.kind.resource.kind.lower()} {key}"


def _scheduled_by(pod: Pod) -> tuple[object, ...]:
    metadata = pod.metadata
    bare = replace(pod.status, conditions=[], phase="", start_time=None)
    return metadata.labels, bool(metadata.deletion_timestamp), pod.spec, bare


def _judged_by(node: Node) -> tuple[object, ...]:
    return node.spec, node.status, node.metadata.labels, node.metadata.annotations


class ChangeStream:
    """Holds changes back until those of other kinds have arrived too, and returns them in order."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._held: list[Change] = []
        self.newest_version = 0

    def push(self, change: Change) -> None:
        self.newest_version = max(self.newest_version, change.version)
        insort(self._held, change, key=lambda one: one.version)

    def pop(self, now: float) -> Change | None:
        """The next change in order, if it was held long enough."""
        if not self._held:
            return None
        if now - self._held[0].at < self._delay_seconds and not self.is_overflowing:
            return None
        return self._held.pop(0)

    @property
    def is_overflowing(self) -> bool:
        return len(self._held) > MAX_HELD

    def ahead(self) -> Sequence[Change]:
        """What has happened since the last change that was returned; read-only."""
        return self._held

    def __len__(self) -> int:
        return len(self._held)


class Replay:
    """Applies changes to a copy of the cluster and takes them back; keeps the latest."""

    def __init__(self, copy: ClusterCopy) -> None:
        self._copy = copy
        self.history: deque[Change] = deque(maxlen=HISTORY_LENGTH)
        """Changes that matter, oldest first."""

    def apply(self, change: Change) -> None:
        self.put(change.kind, change.old, change.new)
        if change.matters:
            self.history.append(change)

    def revert(self, change: Change) -> None:
        self.put(change.kind, change.new, change.old)

    def put(self, kind: WatchedKind[Any], old: Any, new: Any) -> None:
        """Replace one state of an object by another; ``None`` for absent.

        An object that no scheduler could use counts as absent.
        """
        try:
            if kind.struct is Pod:
                self._put_pod(old, new)
            elif kind.struct is Node:
                self._put_node(old, new)
            elif new is not None:
                self._copy.listers.required()[kind].put(new)
            else:
                self._copy.listers.required()[kind].remove(old)
        except InvalidObject as problem:
            if len(self._copy.invalid) < MAX_INVALID:
                self._copy.invalid.append(str(problem))

    def _put_pod(self, old: Pod | None, new: Pod | None) -> None:
        copy = self._copy
        if old is not None:
            uid = old.metadata.uid
            stays = new is not None and new.metadata.uid == uid and new.spec.node_name
            if not (stays and old.spec.node_name):
                copy.remove_pod(uid)
        if new is not None:
            copy.put_pod(copy.cache.pod_info(new))

    def _put_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._copy.cache.add_node(new)
        elif old is not None:
            self._copy.cache.remove_node(old.metadata.name)

"""Pods that wait for an event, grouped by everything that a template-level hint can distinguish.

Ten thousand replicas rejected for the same reason are one group: an event that none of their
plugins registered for skips the whole group, and a hint that is not per pod is called once. Pods
with a shared wait are one group whatever their templates: of them only a few are woken, and by
their next attempt the others are judged too. Pods are also found by the subjects of their plugins:
an event of one claim concerns the pods that use it, however many others wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from ksched.cache.pod_info import PodInfo, PodTemplate
from ksched.framework.cluster_events import Subjects
from ksched.framework.queued_pod import QueuedPodInfo, SharedWait
from ksched.queue.keyed_heap import KeyedHeap

Waker = tuple[str, str]
"""Profile and plugin whose registrations can wake a pod."""

SubjectKey = tuple[Waker, Subjects, str | None]
"""One of a pod's subjects for a plugin; ``None`` if they are not known."""

SCOUTS = 16
"""Of pods with a shared wait so many are woken; some may be deleted before they are popped. If all
are, the others wait for the flush."""

_GroupKey = tuple[str, PodTemplate | SharedWait, frozenset[str], frozenset[str], str, bool]


class WaitingGroup:
    """Waiting pods of one profile, with the same template or shared wait and rejecting plugins.

    Never empty. Not a pod group (``ksched.groups``), whose members are placed together.
    """

    __slots__ = (
        "by_backoff",
        "flushed_at",
        "is_judged_alike",
        "key",
        "pending_plugins",
        "pods",
        "profile",
        "rejector_plugins",
        "scout",
        "shared_wait",
        "wakers",
        "woken_at",
        "woken_by",
    )

    def __init__(
        self,
        key: _GroupKey,
        first: QueuedPodInfo,
        end_of_backoff: Callable[[QueuedPodInfo], float],
    ) -> None:
        self.key = key
        self.profile = first.pod.spec.scheduler_name
        self.rejector_plugins = first.rejector_plugins
        self.pending_plugins = first.pending_plugins
        self.shared_wait = first.shared_wait
        self.is_judged_alike = first.is_judged_alike
        self.scout: QueuedPodInfo | None = None
        """The pod that was woken last (``scouts``)."""
        self.woken_at = float("-inf")
        self.woken_by = ""
        """The cause of the last wake-up."""
        self.flushed_at = float("-inf")
        """When a few of those that share a wait were flushed."""
        # For events that its gating plugin did not register, a gated pod would be gated again.
        plugins = (first.gating_plugin,) if first.is_gated else sorted(self.rejector_plugins)
        self.wakers: list[Waker] = [(self.profile, plugin) for plugin in plugins]
        self.pods: dict[str, QueuedPodInfo] = {}
        """In the order in which they came; only ``add`` and ``remove`` may modify it."""
        self.by_backoff: KeyedHeap[QueuedPodInfo] | None = None
        """The same by the end of their backoff, if they are judged alike."""
        if self.is_judged_alike:
            self.by_backoff = KeyedHeap(end_of_backoff)

    def add(self, queued: QueuedPodInfo) -> None:
        self.pods[queued.uid] = queued
        if self.by_backoff is not None:
            self.by_backoff.add(queued)

    def remove(self, uid: str) -> None:
        del self.pods[uid]
        if self.by_backoff is not None:
            self.by_backoff.remove(uid)

    @property
    def is_crowd(self) -> bool:
        """Whether its pods share a wait, and are more than are woken at once."""
        return self.shared_wait is not None and len(self.pods) > SCOUTS

    def to_wake(self, pods: Collection[QueuedPodInfo]) -> list[QueuedPodInfo]:
        """Those of some of its pods that are worth waking: all, or the first of a shared wait."""
        return list(pods if self.shared_wait is None else islice(pods, SCOUTS))


class UnschedulablePods:
    """Waiting pods by group and by subject, and groups by the plugins whose events wake them."""

    def __init__(
        self,
        subject_keys: Callable[[Iterable[Waker], PodInfo], Collection[SubjectKey]] = lambda *_: (),
        end_of_backoff: Callable[[QueuedPodInfo], float] = lambda queued: 0.0,
    ) -> None:
        self._groups: dict[_GroupKey, WaitingGroup] = {}
        self._group_of: dict[str, WaitingGroup] = {}
        self._by_waker: dict[Waker, dict[_GroupKey, WaitingGroup]] = {}
        self._subject_keys, self._end_of_backoff = subject_keys, end_of_backoff
        self._by_subject: dict[SubjectKey, dict[str, None]] = {}
        self._subjects_of: dict[str, Collection[SubjectKey]] = {}

    def add(self, queued: QueuedPodInfo) -> None:
        """kube-scheduler: addOrUpdate."""
        key = (
            queued.pod.spec.scheduler_name,
            queued.pod.template if queued.shared_wait is None else queued.shared_wait,
            queued.unschedulable_plugins,
            queued.pending_plugins,
            queued.gating_plugin,
            queued.is_judged_alike,
        )
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = WaitingGroup(key, queued, self._end_of_backoff)
            for waker in group.wakers:
                self._by_waker.setdefault(waker, {})[key] = group
        group.add(queued)
        self._group_of[queued.uid] = group
        self.reindex(queued)

    def reindex(self, queued: QueuedPodInfo) -> None:
        """Find a pod by its subjects; call when it or its plugins have changed."""
        uid = queued.uid
        self._unindex(uid)
        keys = self._subject_keys(self._group_of[uid].wakers, queued.pod)
        if keys:
            self._subjects_of[uid] = keys
        for key in keys:
            self._by_subject.setdefault(key, {})[uid] = None

    def _unindex(self, uid: str) -> None:
        for key in self._subjects_of.pop(uid, ()):
            uids = self._by_subject[key]
            uids.pop(uid, None)
            if not uids:
                del self._by_subject[key]

    def with_subjects(self, keys: Iterable[SubjectKey]) -> list[str]:
        """Return the pods that have one of these subjects, each once."""
        found = (uid for key in keys for uid in self._by_subject.get(key, ()))
        return list(dict.fromkeys(found))

    def remove(self, uid: str) -> None:
        self._unindex(uid)
        group = self._group_of.pop(uid)
        group.remove(uid)
        if group.pods:
            return
        del self._groups[group.key]
        for waker in group.wakers:
            groups = self._by_waker[waker]
            del groups[group.key]
            if not groups:
                del self._by_waker[waker]

    def group_of(self, uid: str) -> WaitingGroup | None:
        return self._group_of.get(uid)

    def groups(self) -> list[WaitingGroup]:
        return list(self._groups.values())

    def groups_woken_by(self, wakers: Iterable[Waker]) -> list[WaitingGroup]:
        """Return the groups with at least one plugin among ``wakers``, each once.

        kube-scheduler: isEventOfInterest.
        """
        found: dict[_GroupKey, WaitingGroup] = {}
        for waker in wakers:
            found.update(self._by_waker.get(waker, ()))
        return list(found.values())

    def are_woken_by(self, waker: Waker) -> bool:
        """Whether a plugin's events wake any of these pods."""
        return waker in self._by_waker

    def woken_among(
        self, waker: Waker, uids: Iterable[str]
    ) -> list[tuple[WaitingGroup, list[QueuedPodInfo]]]:
        """Return those of some pods that a plugin's events wake, each with its group."""
        found = []
        for uid in uids:
            group = self._group_of.get(uid)
            if group is not None and waker in group.wakers:
                found.append((group, [group.pods[uid]]))
        return found

    def overdue(self, now: float, seconds: float) -> Iterator[QueuedPodInfo]:
        """Iterate over pods that had no attempt for so long; a few of those with a shared wait."""
        for group in self._groups.values():
            flushed_at = group.flushed_at
            for queued in group.to_wake(group.pods.values()):
                last = max(queued.timestamp, queued.flush_timestamp, flushed_at)
                if now - last > seconds:
                    if group.shared_wait is not None:
                        group.flushed_at = now
                    yield queued

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Iterate over the pods in order of arrival; pods may come and go meanwhile."""
        for uid, group in list(self._group_of.items()):
            if (queued := group.pods.get(uid)) is not None:
                yield queued

    def __len__(self) -> int:
        return len(self._group_of)


class RejectionCounts:
    """Waiting pods counted by the plugins that rejected them last (``unschedulable_pods``)."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[frozenset[str], str]] = Counter()

    def add(self, queued: QueuedPodInfo) -> None:
        if plugins := queued.rejector_plugins:
            self._counts[plugins, queued.pod.spec.scheduler_name] += 1

    def remove(self, queued: QueuedPodInfo) -> None:
        if plugins := queued.rejector_plugins:
            key = (plugins, queued.pod.spec.scheduler_name)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def by_plugin(self) -> Counter[tuple[str, str]]:
        """Count by plugin and profile; a pod counts once for each plugin that rejected it."""
        counts: Counter[tuple[str, str]] = Counter()
        for (plugins, profile), pods in self._counts.items():
            for plugin in plugins:
                counts[plugin, profile] += pods
        return counts

"""A pending pod with the history of its attempts."""

from __future__ import annotations

from typing import Protocol

from ksched.cache.pod_info import PodInfo

_NO_PLUGINS: frozenset[str] = frozenset()
"""Shared: an empty set takes 216 bytes."""


class SharedWait(Protocol):
    """What the pods of several groups wait for: while it cannot end for one, it does for none."""

    def can_end(self) -> bool:
        """Whether one of them may fit, as far as nodes and the pods on them tell."""
        ...


class QueuedPodInfo:
    """The scheduling queue's entry of one pending pod.

    ``attempts`` counts every attempt and feeds only metrics. The backoff has its own counters: one
    for rejections (``unschedulable_count``), which waste cycles, and one for errors
    (``consecutive_errors_count``), which load the API server; a sum would make a pod pay for an
    outage.
    """

    __slots__ = (
        "attempts",
        "backoff_expiration",
        "completes_group",
        "consecutive_errors_count",
        "flush_timestamp",
        "gating_plugin",
        "initial_attempt_timestamp",
        "is_judged_alike",
        "owed_until",
        "pending_plugins",
        "pod",
        "shared_wait",
        "timestamp",
        "uid",
        "unschedulable_count",
        "unschedulable_plugins",
    )

    def __init__(self, pod: PodInfo, timestamp: float) -> None:
        self.pod = pod
        self.uid = pod.uid
        self.timestamp = timestamp
        self.attempts = 0
        self.unschedulable_count = 0
        self.consecutive_errors_count = 0
        self.backoff_expiration: float | None = None
        self.initial_attempt_timestamp: float | None = None
        self.owed_until = float("-inf")
        """End of the backoff that the last early attempt cut short."""
        self.flush_timestamp = float("-inf")
        self.unschedulable_plugins: frozenset[str] = _NO_PLUGINS
        self.pending_plugins: frozenset[str] = _NO_PLUGINS
        self.gating_plugin = ""
        self.shared_wait: SharedWait | None = None
        """Set while it waits for an event, if others wait for the same."""
        self.is_judged_alike = False
        """Whether every pod of its template is rejected like it while the nodes are the same."""
        self.completes_group = False
        """Whether its group, which is on nodes in part, lacked it when it was tried last: it goes
        before all pods of its rank."""

    @property
    def key(self) -> str:
        return self.pod.key

    @property
    def rejector_plugins(self) -> frozenset[str]:
        """The plugins that rejected the pod last; none if it is new or its attempt met an error."""
        if not self.pending_plugins:
            return self.unschedulable_plugins
        return self.unschedulable_plugins | self.pending_plugins

    @property
    def is_gated(self) -> bool:
        return bool(self.gating_plugin)

    def __repr__(self) -> str:
        return f"<QueuedPodInfo {self.key} attempts={self.attempts}>"

"""Causes of transitions: labels in stories and metrics, kube-scheduler's where it has one."""

from __future__ import annotations

from ksched.framework import cluster_events as events

POD_ADD = events.UNSCHEDULABLE_POD_ADD.label
POD_UPDATE = events.UNSCHEDULABLE_POD_UPDATE.label
ATTEMPT_FAILURE = events.SCHEDULE_ATTEMPT_FAILURE.label
BACKOFF_COMPLETE = events.BACKOFF_COMPLETE.label
POP_FROM_BACKOFF = events.POP_FROM_BACKOFF.label
FORCE_ACTIVATE = events.FORCE_ACTIVATE.label
TIMEOUT = events.UNSCHEDULABLE_TIMEOUT.label
CONFIG_RELOAD = events.CONFIG_RELOAD.label
POD_POPPED = "PodPopped"
POD_DELETED = "PodDeleted"
POD_DONE = "PodDone"
QUEUE_CLOSED = "QueueClosed"
GROUP_POPPED = "PodGroupPopped"
"""A member of the pod's group was popped, and all are decided together."""
ALIKE_DECIDED = "PodGroupAlikeDecided"
"""A group that waited for the same was placed, or rejected for another reason."""
GROUP_DECIDED = "PodGroupDecided"
"""The minimum of the pod's group is placed; the pod goes on by itself."""

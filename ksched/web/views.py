"""A running scheduler as plain data, for /debug. Long lists are iterators, bounded by a limit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from ksched.clock import rfc3339_micro
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.places import ABSENT
from ksched.scheduling.decisions import Decision
from ksched.scheduling.scheduler import Scheduler

View = dict[str, Any]


def queue_view(scheduler: Scheduler, limit: int) -> View:
    """How many pods are where, and the first ``limit`` of each place in the order of their turn."""
    queue = scheduler.queue
    return {
        "counts": {place.value: pods for place, pods in queue.statistics().by_place().items()},
        "pods": {
            place.value: map(partial(_queued, scheduler), islice(pods, limit))
            for place, pods in queue.pending_pods().items()
        },
    }


def _queued(scheduler: Scheduler, queued: QueuedPodInfo) -> View:
    view: View = {
        "pod": queued.key,
        "uid": queued.uid,
        "profile": queued.pod.spec.scheduler_name,
        "priority": queued.pod.priority,
        "attempts": queued.attempts,
        "since": _wall(scheduler, queued.timestamp),
    }
    if queued.rejector_plugins:
        view["rejectedBy"] = sorted(queued.rejector_plugins)
    if queued.gating_plugin:
        view["gatedBy"] = queued.gating_plugin
    if queued.backoff_expiration is not None:
        view["backoffUntil"] = _wall(scheduler, queued.backoff_expiration)
    return view


def story_view(scheduler: Scheduler, pod: str) -> View | None:
    """The life of a pod (``namespace/name``) as far as it is remembered; ``None`` if unknown.

    A name may have belonged to several pods; the story is that of the last one.
    """
    decisions = scheduler.decisions.of(pod)
    listed = scheduler.pod_reflector.objects.get(pod)
    if listed is not None:
        uid = listed.metadata.uid
    elif decisions:
        uid = decisions[-1].uid
    else:
        return None
    assigned = scheduler.cache.get_pod(uid)
    place = scheduler.queue.place_of(uid)
    return {
        "pod": pod,
        "uid": uid,
        "place": place.value if place is not ABSENT or assigned is None else "assigned",
        "node": assigned.node_name if assigned else "",
        "assumed": scheduler.cache.is_assumed(uid),
        "transitions": [
            {
                "at": _wall(scheduler, step.at),
                "from": step.source.value,
                "to": step.target.value,
                "cause": step.cause,
                "detail": step.detail,
            }
            for step in scheduler.queue.story(uid)
        ],
        "decisions": [decision_view(one) for one in decisions if one.uid == uid],
    }


def decisions_view(scheduler: Scheduler, limit: int) -> Iterator[View]:
    """The last decisions, newest first."""
    return map(decision_view, reversed(list(scheduler.decisions)[-limit:]))


def decision_view(decision: Decision) -> View:
    return {
        "at": rfc3339_micro(decision.at),
        "pod": decision.pod,
        "uid": decision.uid,
        "profile": decision.profile,
        "result": decision.result.value,
        "node": decision.node_name,
        "message": decision.message,
        "attempts": decision.attempts,
        "evaluatedNodes": decision.evaluated_nodes,
        "feasibleNodes": decision.feasible_nodes,
        "durationSeconds": round(decision.duration_seconds, 6),
        "waitedSeconds": round(decision.waited_seconds, 6),
    }


def _wall(scheduler: Scheduler, at: float) -> str:
    """A moment on the scheduler's own clock as a time of day."""
    clock = scheduler.clock
    return rfc3339_micro(clock.wall() - (clock.now() - at))

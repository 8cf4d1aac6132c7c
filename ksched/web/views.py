"""A running scheduler as plain data, for /debug. Long lists are iterators, bounded by a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, starmap
from typing import Any, Final

from ksched.cache.pod_info import PodInfo
from ksched.clock import rfc3339_micro
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.waiting_pods import WaitingPod
from ksched.groups.group import Group, Member
from ksched.groups.states import state_of, waits_for
from ksched.queue.places import ABSENT
from ksched.scheduling.decisions import Decision
from ksched.scheduling.group_holders import GroupHolders, Holder
from ksched.scheduling.scheduler import Scheduler

View = dict[str, Any]

WAITING: Final = "waiting on permit"
QUARANTINED: Final = "quarantined"


def queue_view(scheduler: Scheduler, limit: int) -> View:
    """Return the number of pods per place, and the first ``limit`` of each in pop order.

    Pods held at Permit are in flight as well; pods in quarantine are in none of the queue's places.
    """
    queue, waiting = scheduler.queue, scheduler.waiting
    return {
        "counts": place_counts(scheduler),
        "pods": {
            **{
                place.value: map(partial(_queued, scheduler), islice(pods, limit))
                for place, pods in queue.pending_pods().items()
            },
            WAITING: map(partial(_waiting, scheduler), islice(waiting, limit)),
            QUARANTINED: starmap(
                partial(_quarantined, scheduler), list(islice(scheduler.pods.quarantined(), limit))
            ),
        },
    }


def place_counts(scheduler: Scheduler) -> dict[str, int]:
    """Return the number of pods per place."""
    return {
        **{place.value: pods for place, pods in scheduler.queue.statistics().by_place().items()},
        WAITING: len(scheduler.waiting),
        QUARANTINED: len(scheduler.pods.quarantine_ends),
    }


def groups_view(scheduler: Scheduler, limit: int) -> View:
    """Return the number of pod groups, and the first ``limit`` with counts and what each lacks."""
    cycles = _holders(scheduler).cycles()
    return {
        "count": len(scheduler.groups),
        "groups": map(partial(_group, cycles), islice(scheduler.groups, limit)),
    }


def _holders(scheduler: Scheduler) -> GroupHolders:
    return GroupHolders(scheduler.cache, scheduler.groups, scheduler.nominator, scheduler.waiting)


def _group(cycles: Sequence[Sequence[str]], group: Group) -> View:
    terms = group.terms
    return {
        "group": str(group.key),
        "dialect": group.key.dialect,
        "minimum": None if terms is None else terms.minimum,
        "state": state_of(group),
        "members": {state: count for state, count in group.counts.items() if count},
        "wasComplete": group.is_satisfied,
        "waitsFor": waits_for(group),
        "cycle": next((cycle for cycle in cycles if str(group.key) in cycle), []),
    }


def group_view(scheduler: Scheduler, name: str, limit: int) -> View | None:
    """Return the groups of a name (``namespace/name``), one per dialect, with their pods and with
    who holds the room that they wait for."""
    found = [group for group in scheduler.groups if str(group.key) == name]
    if not found:
        return None
    holders = _holders(scheduler)
    cycles = holders.cycles()
    return {
        "count": len(found),
        "groups": [
            {
                **_group(cycles, group),
                "holders": list(map(_holder, islice(holders.of(group), limit))),
                "pods": list(map(_member, islice(group.members.values(), limit))),
            }
            for group in found
        ],
    }


def _holder(holder: Holder) -> View:
    return {
        "group" if holder.is_group else "pod": holder.name,
        "holding": holder.holding.value,
        "pods": holder.pods,
        "nodes": holder.nodes,
        "plugins": list(holder.plugins),
    }


def _member(member: Member) -> View:
    return {
        "pod": member.pod.key,
        "role": member.mark.role,
        "state": member.state,
        "node": member.pod.node_name,
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


def _waiting(scheduler: Scheduler, waiting: WaitingPod) -> View:
    return {
        "pod": waiting.pod.key,
        "uid": waiting.pod.uid,
        "profile": waiting.pod.spec.scheduler_name,
        "node": waiting.node_name,
        "heldBy": _held_by(scheduler, waiting),
    }


def _held_by(scheduler: Scheduler, waiting: WaitingPod) -> list[View]:
    return [
        {
            "plugin": hold.plugin,
            "state": hold.holding.value,
            "since": _wall(scheduler, hold.since),
            "until": _wall(scheduler, hold.until),
        }
        for hold in waiting.holds()
    ]


def _quarantined(scheduler: Scheduler, pod: PodInfo, until: float) -> View:
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "profile": pod.spec.scheduler_name,
        "until": _wall(scheduler, until),
    }


def story_view(scheduler: Scheduler, pod: str) -> View | None:
    """Return the recorded transitions of a pod (``namespace/name``); ``None`` if unknown.

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
    assigned, waiting = scheduler.cache.get_pod(uid), scheduler.waiting.get(uid)
    until = scheduler.pods.quarantine_ends.get(uid)
    return {
        "pod": pod,
        "uid": uid,
        "place": _place(scheduler, uid),
        "node": assigned.node_name if assigned else "",
        "assumed": scheduler.cache.is_assumed(uid),
        **({} if waiting is None else {"heldBy": _held_by(scheduler, waiting)}),
        **({} if until is None else {"quarantinedUntil": _wall(scheduler, until)}),
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


def _place(scheduler: Scheduler, uid: str) -> str:
    place = scheduler.queue.place_of(uid)
    if scheduler.waiting.get(uid) is not None:
        return WAITING
    if place is not ABSENT:
        return place.value
    if uid in scheduler.pods.quarantine_ends:
        return QUARANTINED
    return ABSENT.value if scheduler.cache.get_pod(uid) is None else "assigned"


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
    """Convert a time of the scheduler's own clock to wall time."""
    clock = scheduler.clock
    return rfc3339_micro(clock.wall() - (clock.now() - at))

"""Pods that held up a scheduler, and for how long no scheduler tries them again.

A process that hangs cannot say anything any more but this: which pod it was at. It is written into
the pod's PodScheduled condition (see ``watchdog``), because the next leader reads that anyway. The
reason is the mark; the message carries, for people and for the next leader, how often it happened
and until when the pod is left alone. Any other outcome overwrites the condition, and the mark is
gone.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from ksched.api.objects import Pod, PodCondition
from ksched.cache.pod_info import PodInfo
from ksched.clock import rfc3339

REASON: Final = "SchedulerHung"
FIRST_SECONDS: Final = 300.0
LONGEST_SECONDS: Final = 3600.0

_MARK: Final = re.compile(r"\(hang (\d{1,9})\); not tried again before (\S+)$")


def quarantine_seconds(pod: Pod, wall_seconds: float) -> float:
    """How long a pod is still to be left alone; 0 for nearly every pod.

    Wall clocks may disagree, so no mark counts for longer than the longest pause.
    """
    mark = _mark_of(pod)
    if mark is None:
        return 0.0
    return min(max(mark[1] - wall_seconds, 0.0), LONGEST_SECONDS)


def marking_patch(pod: PodInfo, activity: str, hung_seconds: float, wall_seconds: float) -> bytes:
    """The strategic merge patch of a status that quarantines a pod, each time for twice as long.

    It names the UID, so that a new pod of the same name is spared.
    """
    known = _mark_of(pod.pod)
    hangs = 1 if known is None else known[0] + 1
    pause = min(FIRST_SECONDS * 2.0 ** min(hangs - 1, 60), LONGEST_SECONDS)
    until = rfc3339(wall_seconds + pause)
    held_up = f"held up the scheduler for {hung_seconds:.0f}s and more"
    condition: dict[str, object] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": REASON,
        "message": f"{activity}: {held_up} (hang {hangs}); not tried again before {until}",
    }
    current = _condition_of(pod.pod)
    if current is None or current.status != "False":
        condition["lastTransitionTime"] = rfc3339(wall_seconds)
    return msgspec.json.encode(
        {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    )


def _condition_of(pod: Pod) -> PodCondition | None:
    return next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)


def _mark_of(pod: Pod) -> tuple[int, float] | None:
    """How often a pod held up a scheduler, and until when it is left alone."""
    condition = _condition_of(pod)
    if condition is None or condition.reason != REASON or condition.status != "False":
        return None
    found = _MARK.search(condition.message)
    if found is None:
        return None
    try:
        until = datetime.fromisoformat(found[2])
        return int(found[1]), until.timestamp()
    except (ValueError, OverflowError):
        return None

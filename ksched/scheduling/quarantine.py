"""Pods during whose attempt a scheduler hung, and how long they are withheld from scheduling.

A hung process can report only one thing: the pod it was working on. The watchdog writes it into the
pod's PodScheduled condition (see ``watchdog``), which the next leader reads anyway. The condition's
reason marks the pod; the message carries the number of hangs and the end of the quarantine, for
people and for the next leader. Any other outcome overwrites the condition and ends the quarantine.
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
    """Return the remaining quarantine of a pod; 0 for nearly every pod.

    Wall clocks may disagree, so a mark is valid for the longest quarantine at most.
    """
    mark = _mark_of(pod)
    if mark is None:
        return 0.0
    return min(max(mark[1] - wall_seconds, 0.0), LONGEST_SECONDS)


def marking_patch(pod: PodInfo, activity: str, hung_seconds: float, wall_seconds: float) -> bytes:
    """Build the status patch that quarantines a pod; the duration doubles with each hang.

    It includes the UID, so that a new pod of the same name is not affected.
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
    """Return the number of hangs and the end of the quarantine, if the pod is marked."""
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

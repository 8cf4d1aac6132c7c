"""Volcano's groups: an annotation and ``scheduling.volcano.sh/v1beta1`` PodGroup.

Its controllers create no pod before ``status.phase`` is ``Inqueue``. That is written as soon as the
group's ``minResources`` are free beside those of the groups that were admitted before it. Queues,
network topology and ``priorityClassName`` of the PodGroup have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import field

from ksched.api.objects import Int32, Object, ObjectMeta, Pod, PodCondition, Quantities
from ksched.api.watched_kinds import WatchedKind
from ksched.cache.listers import Listers
from ksched.clock import rfc3339
from ksched.groups.dialects.scheduler_plugins import min_resources
from ksched.groups.group import DEFAULT_TIMEOUT_SECONDS, Group, GroupKey, Mark, Terms
from ksched.groups.registry import VOLCANO
from ksched.groups.report import Report
from ksched.groups.states import BROKEN, ENDED, PLACED, SHORT, state_of, waits_for

GROUP = "scheduling.volcano.sh"
MARKS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
ROLE = "volcano.sh/task-spec"
PLUGIN = "Volcano"

MOST_ROLES = 256
"""Tasks in ``minTaskMember``; all are looked at after every change of a member."""

PENDING, INQUEUE, RUNNING = "Pending", "Inqueue", "Running"
UNKNOWN, COMPLETED = "Unknown", "Completed"
READY: Final = "tasks in gang are ready to be scheduled"


class PodGroupSpec(Object, frozen=True):
    min_member: Int32 = 1
    min_task_member: dict[str, Int32] = field(default_factory=dict)
    min_resources: Quantities | None = None


class PodGroupStatus(Object, frozen=True):
    phase: str = ""
    conditions: list[PodCondition] = field(default_factory=list)
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class PodGroup(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


KIND = WatchedKind.custom(
    PodGroup, group=GROUP, version="v1beta1", plural="podgroups", kind="PodGroup"
)


class Volcano:
    """Reads and admits Volcano's groups."""

    name = VOLCANO
    plugin = PLUGIN

    def __init__(self, listers: Listers) -> None:
        self._lister = listers.require(KIND)

    def mark_of(self, pod: Pod) -> Mark | None:
        annotations = pod.metadata.annotations
        if not annotations:
            return None
        name = annotations.get(MARKS[0]) or annotations.get(MARKS[1])
        if not name:
            return None
        role = annotations.get(ROLE) or pod.metadata.labels.get(ROLE, "")
        return Mark(GroupKey(VOLCANO, pod.metadata.namespace, name), role)

    def terms_of(self, key: GroupKey) -> Terms | None:
        found = self._lister.get(key.name, key.namespace)
        return None if found is None else terms_of(found)

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        self._lister.follow(lambda key: changed(GroupKey(VOLCANO, *key.split("/", 1))))

    def report(self, group: Group, wall: float) -> Report | None:
        found = self._lister.get(group.key.name, group.key.namespace)
        return None if found is None else report(found, group, wall)


def terms_of(group: PodGroup) -> Terms:
    name, spec, status = group.metadata.name, group.spec, group.status
    resources, problem = min_resources(name, spec.min_resources or {})
    roles = _minimums(spec)
    if len(roles) > MOST_ROLES:
        got = f"got {len(roles)} tasks, wanted {MOST_ROLES} at most"
        roles, problem = {}, f'pod group "{name}": minTaskMember: {got}'
    return Terms(
        minimum=max(spec.min_member, 1),
        uid=group.metadata.uid,
        min_by_role=roles,
        min_resources=resources,
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS,
        is_admitted_first=True,
        was_admitted=status.phase not in ("", PENDING),
        was_satisfied=status.phase in (RUNNING, UNKNOWN, COMPLETED),
        succeeded=status.succeeded,
        failed=status.failed,
        created=group.metadata.creation_timestamp,
        problem=problem,
    )


def _minimums(spec: PodGroupSpec) -> dict[str, int]:
    """The minimums of the roles; those of an elastic job, which has a smaller one, do not count.

    Volcano writes the replicas of every task here, unless the job says otherwise.
    """
    of_roles = {role: minimum for role, minimum in spec.min_task_member.items() if minimum > 0}
    return of_roles if sum(of_roles.values()) <= spec.min_member else {}


def report(found: PodGroup, group: Group, wall: float) -> Report:
    """Phase, counts and the one condition that is true."""
    status = found.status
    running = group.in_phase("Running")
    condition = _condition(group)
    known = tuple((one.type, one.status, one.reason, one.message) for one in status.conditions)
    counts = {"running": running, "succeeded": group.succeeded, "failed": group.failed}
    phase = phase_of(group, running)
    patch: dict[str, Any] = {"phase": phase, **counts}
    if condition is not None:
        names = ("type", "status", "reason", "message")
        values: Mapping[str, str] = dict(zip(names, condition, strict=True))
        patch["conditions"] = [{**values, "lastTransitionTime": rfc3339(wall)}]
    return Report(
        resource=KIND.resource,
        uid=found.metadata.uid,
        wanted=(phase, *counts.values(), known if condition is None else (condition,)),
        current=(status.phase, status.running, status.succeeded, status.failed, known),
        status=patch,
    )


def phase_of(group: Group, running: int) -> str:
    terms, state = group.terms, state_of(group)
    if terms is None or not (group.is_admitted or group.placed):
        return PENDING
    if not group.members and group.succeeded >= terms.minimum:
        return COMPLETED
    if state == BROKEN:
        return UNKNOWN
    if state == ENDED or running + group.succeeded >= terms.minimum:
        return RUNNING
    return INQUEUE


def _condition(group: Group) -> tuple[str, str, str, str] | None:
    state = state_of(group)
    if state == SHORT or (state == BROKEN and group.need and group.last_reason):
        return "Unschedulable", "True", "NotEnoughResources", waits_for(group)
    return ("Scheduled", "True", READY, "") if state == PLACED else None

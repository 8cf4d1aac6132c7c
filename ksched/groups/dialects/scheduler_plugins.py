"""Groups of scheduler-plugins' Coscheduling: a label and ``scheduling.x-k8s.io/v1alpha1`` PodGroup.

Koordinator's PodGroup has the same fields, with another label and API group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ksched.api.objects import Int32, Object, ObjectMeta, Pod, Quantities
from ksched.api.pod_resources import amounts
from ksched.api.resources import ApiResource
from ksched.api.watched_kinds import WatchedKind
from ksched.cache.listers import Listers
from ksched.clock import rfc3339
from ksched.groups.group import AVAILABLE, Group, GroupKey, Mark, Terms
from ksched.groups.registry import SCHEDULER_PLUGINS
from ksched.groups.report import Report
from ksched.groups.states import BROKEN, ENDED, INCOMPLETE, state_of

GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"
PLUGIN = "Coscheduling"

MOST_RESOURCES = 128
"""Names in ``minResources``; all nodes are looked at for each."""

MOST_CHARACTERS = 1024
"""Of a problem, which is in the conditions of all members."""

PENDING, SCHEDULING, RUNNING = "Pending", "Scheduling", "Running"
UNKNOWN, FINISHED, FAILED = "Unknown", "Finished", "Failed"
_PLACED_PHASES = frozenset({"Scheduled", "Running", "Finished", "Failed"})


class PodGroupSpec(Object, frozen=True):
    min_member: Int32 = 1
    min_resources: Quantities | None = None
    schedule_timeout_seconds: Int32 | None = None


class PodGroupStatus(Object, frozen=True):
    phase: str = ""
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    occupied_by: str = ""
    schedule_start_time: str | None = None


class PodGroup(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


KIND = WatchedKind.custom(
    PodGroup, group=GROUP, version="v1alpha1", plural="podgroups", kind="PodGroup"
)


class SchedulerPlugins:
    """Reads groups that pods refer to by a label."""

    name = SCHEDULER_PLUGINS
    plugin = PLUGIN

    def __init__(self, listers: Listers, timeout_seconds: float) -> None:
        self._lister = listers.require(KIND)
        self._timeout_seconds = timeout_seconds

    def mark_of(self, pod: Pod) -> Mark | None:
        name = pod.metadata.labels.get(LABEL)
        return Mark(GroupKey(self.name, pod.metadata.namespace, name)) if name else None

    def terms_of(self, key: GroupKey) -> Terms | None:
        found = self._lister.get(key.name, key.namespace)
        return None if found is None else terms_of(found, self._timeout_seconds)

    def report(self, group: Group, wall: float) -> Report | None:
        found = self._lister.get(group.key.name, group.key.namespace)
        return None if found is None else report(KIND.resource, found, group, wall)

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        self._lister.follow(lambda key: changed(GroupKey(self.name, *key.split("/", 1))))


def terms_of(group: PodGroup, timeout_seconds: float) -> Terms:
    """The terms of a PodGroup; its timeout overrides the plugin's unless it is 0."""
    spec, status = group.spec, group.status
    minimum = max(spec.min_member, 1)
    resources, problem = min_resources(group.metadata.name, spec.min_resources or {})
    return Terms(
        minimum=minimum,
        uid=group.metadata.uid,
        min_resources=resources,
        timeout_seconds=spec.schedule_timeout_seconds or timeout_seconds,
        succeeded=status.succeeded,
        failed=status.failed,
        was_satisfied=status.phase in _PLACED_PHASES
        or status.running + status.succeeded >= minimum,
        created=group.metadata.creation_timestamp,
        problem=problem,
    )


def min_resources(name: str, quantities: Quantities) -> tuple[dict[str, int], str]:
    """The amounts of a group's ``minResources``, and what is invalid in them."""
    try:
        if len(quantities) > MOST_RESOURCES:
            raise ValueError(f"got {len(quantities)} names, wanted {MOST_RESOURCES} at most")
        return amounts(quantities), ""
    except ValueError as error:
        return {}, f'pod group "{name}": minResources: {error}'[:MOST_CHARACTERS]


def report(resource: ApiResource, found: PodGroup, group: Group, wall: float) -> Report:
    """Build the status as scheduler-plugins' controller does.

    Unlike there, a failed group may run again: its controller may replace the pods.
    """
    status = found.status
    running = group.in_phase("Running")
    phase = phase_of(group, running)
    wanted = {
        "phase": phase,
        "running": running,
        "succeeded": group.succeeded,
        "failed": group.failed,
        "occupiedBy": status.occupied_by or _owners(group),
    }
    current = {
        "phase": status.phase,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "occupiedBy": status.occupied_by,
    }
    patch: dict[str, Any] = dict(wanted)
    if phase == SCHEDULING and not status.schedule_start_time:
        patch["scheduleStartTime"] = rfc3339(wall)
    return Report(
        resource=resource,
        uid=found.metadata.uid,
        wanted=tuple(wanted.values()),
        current=tuple(current.values()),
        status=patch,
    )


def phase_of(group: Group, running: int) -> str:
    terms, state = group.terms, state_of(group)
    if terms is None or (state == INCOMPLETE and not group.failed):
        return PENDING
    if group.succeeded >= terms.minimum:
        return FINISHED
    if state == ENDED or running + group.succeeded >= terms.minimum:
        return RUNNING
    if group.failed and not group.counts[AVAILABLE]:
        return FAILED
    return {INCOMPLETE: PENDING, BROKEN: UNKNOWN}.get(state, SCHEDULING)


def _owners(group: Group) -> str:
    """Return the owners of the members, in the controller's format."""
    pods = [member.pod.pod for member in group.members.values()]
    if not pods:
        return ""
    first = pods[0].metadata
    return ",".join(sorted(f"{first.namespace}/{one.name}" for one in first.owner_references))

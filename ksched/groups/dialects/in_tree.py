"""Kubernetes' own groups: ``spec.schedulingGroup.podGroupName`` and ``scheduling.k8s.io`` PodGroup.

Alpha in v1.36. The API versions are those of v1.36 and later; one that the API server does not
serve has no objects. Of an object that is served in several versions the newest is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import field

from ksched.api.objects import Int32, Object, ObjectMeta, Pod, PodCondition
from ksched.api.resources import ApiResource
from ksched.api.watched_kinds import WatchedKind
from ksched.cache.listers import Listers
from ksched.clock import rfc3339
from ksched.groups.group import Group, GroupKey, Mark, Terms, TopologyLevel
from ksched.groups.registry import IN_TREE
from ksched.groups.report import Report
from ksched.groups.sentences import GROUP_FAILED
from ksched.groups.states import BINDING, INCOMPLETE, PLACED, SHORT, state_of, waits_for
from ksched.transport import STRATEGIC_MERGE_PATCH

GROUP = "scheduling.k8s.io"
VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
PLUGIN = "GangScheduling"

CONDITION = {
    "v1beta1": "PodGroupInitiallyScheduled",
    "v1alpha3": "PodGroupInitiallyScheduled",
    "v1alpha2": "PodGroupScheduled",
}
"""The condition of a PodGroup that the scheduler writes, by version."""
_SCHEDULED = frozenset(CONDITION.values())


class GangPolicy(Object, frozen=True):
    min_count: Int32 = 1


class SchedulingPolicy(Object, frozen=True):
    gang: GangPolicy | None = None
    """Absent in a group of the policy ``basic``."""


class TopologyConstraint(Object, frozen=True):
    key: str = ""


class SchedulingConstraints(Object, frozen=True):
    topology: list[TopologyConstraint] = field(default_factory=list)


class PodGroupSpec(Object, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | None = None
    priority: Int32 | None = None


class PodGroupStatus(Object, frozen=True):
    conditions: list[PodCondition] = field(default_factory=list)


class PodGroup(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


KINDS = tuple(
    WatchedKind.custom(PodGroup, group=GROUP, version=version, plural="podgroups", kind="PodGroup")
    for version in VERSIONS
)


class InTree:
    """Reads groups of the API group ``scheduling.k8s.io``."""

    name = IN_TREE
    plugin = PLUGIN

    def __init__(self, listers: Listers) -> None:
        self._listers = [listers.require(kind) for kind in KINDS]

    def mark_of(self, pod: Pod) -> Mark | None:
        group = pod.spec.scheduling_group
        if group is None or not group.pod_group_name:
            return None
        return Mark(GroupKey(IN_TREE, pod.metadata.namespace, group.pod_group_name))

    def terms_of(self, key: GroupKey) -> Terms | None:
        for lister in self._listers:
            found = lister.get(key.name, key.namespace)
            if found is not None:
                return terms_of(found)
        return None

    def report(self, group: Group, wall: float) -> Report | None:
        for kind, lister in zip(KINDS, self._listers, strict=True):
            found = lister.get(group.key.name, group.key.namespace)
            if found is not None:
                return report(kind.resource, found, group, wall)
        return None

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        for lister in self._listers:
            lister.follow(lambda key: changed(GroupKey(IN_TREE, *key.split("/", 1))))


def terms_of(group: PodGroup) -> Terms:
    """The terms of a PodGroup; one of the policy ``basic`` has a minimum of 1."""
    spec, gang = group.spec, group.spec.scheduling_policy.gang
    constraints = spec.scheduling_constraints or SchedulingConstraints()
    return Terms(
        minimum=1 if gang is None else gang.min_count,
        uid=group.metadata.uid,
        priority=spec.priority,
        topology=tuple(TopologyLevel(one.key) for one in constraints.topology),
        is_evicted_whole=spec.disruption_mode == "PodGroup",
        was_satisfied=any(
            one.type in _SCHEDULED and one.status == "True" for one in group.status.conditions
        ),
        created=group.metadata.creation_timestamp,
    )


def report(resource: ApiResource, found: PodGroup, group: Group, wall: float) -> Report:
    """Build the condition of a PodGroup; once true it stays true.

    kube-scheduler: updatePodGroupCondition.
    """
    kind = CONDITION[resource.version]
    known = next((one for one in found.status.conditions if one.type == kind), None)
    current = None if known is None else (known.status, known.reason, known.message)
    wanted = current
    if known is None or known.status != "True":
        wanted = _condition(group) or current
    status: dict[str, Any] = {}
    if wanted is not None:
        condition = {"type": kind, "status": wanted[0], "reason": wanted[1], "message": wanted[2]}
        if known is None or known.status != wanted[0]:
            condition["lastTransitionTime"] = rfc3339(wall)
        status = {
            "conditions": [{**condition, "observedGeneration": found.metadata.generation}],
        }
    return Report(
        resource=resource,
        uid=found.metadata.uid,
        wanted=wanted,
        current=current,
        status=status,
        content_type=STRATEGIC_MERGE_PATCH,
    )


def _condition(group: Group) -> tuple[str, str, str] | None:
    """Return status, reason and message; ``None``: the condition stays as it is."""
    state = state_of(group)
    if state in (PLACED, BINDING):
        return ("True", "Scheduled", "") if group.is_satisfied else None
    if group.is_satisfied:
        return None
    if state == SHORT:
        reason = "SchedulerError" if group.last_reason.startswith(GROUP_FAILED) else "Unschedulable"
        return "False", reason, waits_for(group)
    # As in the members' own condition: an autoscaler must not add nodes.
    return ("False", "SchedulingGated", waits_for(group)) if state == INCOMPLETE else None

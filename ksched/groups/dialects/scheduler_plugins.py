"""Groups of scheduler-plugins' Coscheduling: a label and ``scheduling.x-k8s.io/v1alpha1`` PodGroup.

Koordinator's PodGroup has the same fields, with another label and API group.
"""

from __future__ import annotations

from collections.abc import Callable

from ksched.api.objects import Int32, Object, ObjectMeta, Pod, Quantities
from ksched.api.pod_resources import amounts
from ksched.api.watched_kinds import WatchedKind
from ksched.cache.listers import Listers
from ksched.groups.group import GroupKey, Mark, Terms
from ksched.groups.registry import SCHEDULER_PLUGINS

GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"
PLUGIN = "Coscheduling"

_PLACED_PHASES = frozenset({"Scheduled", "Running", "Finished", "Failed"})


class PodGroupSpec(Object, frozen=True):
    min_member: Int32 = 1
    min_resources: Quantities | None = None
    schedule_timeout_seconds: Int32 | None = None


class PodGroupStatus(Object, frozen=True):
    phase: str = ""
    running: Int32 = 0
    succeeded: Int32 = 0


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

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        self._lister.follow(lambda key: changed(GroupKey(self.name, *key.split("/", 1))))


def terms_of(group: PodGroup, timeout_seconds: float) -> Terms:
    """The terms of a PodGroup; its timeout overrides the plugin's unless it is 0."""
    spec, status = group.spec, group.status
    minimum = max(spec.min_member, 1)
    try:
        resources, problem = amounts(spec.min_resources or {}), ""
    except ValueError as error:
        resources, problem = {}, f'pod group "{group.metadata.name}": minResources: {error}'
    return Terms(
        minimum=minimum,
        uid=group.metadata.uid,
        min_resources=resources,
        timeout_seconds=spec.schedule_timeout_seconds or timeout_seconds,
        was_satisfied=status.phase in _PLACED_PHASES
        or status.running + status.succeeded >= minimum,
        created=group.metadata.creation_timestamp,
        problem=problem,
    )

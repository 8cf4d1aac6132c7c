"""What a plan of evictions for a group starts from: free amounts, its members by kind, and whom it
may evict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from ksched.api.label_selectors import InvalidSelector, compile_selector
from ksched.api.quantity import clamp_to_int64
from ksched.cache.dry_run_table import POD_COUNT, REQUESTED, amounts_of
from ksched.cache.node_table import Ints, NodeTable
from ksched.cache.pod_info import PodInfo, PodTemplate
from ksched.cache.snapshot import Snapshot
from ksched.framework.plugins import names
from ksched.framework.plugins.default_preemption.evictable import Evictable
from ksched.framework.plugins.default_preemption.group_plan import Evictee
from ksched.framework.plugins.default_preemption.group_room import UNLIMITED, Bools, Kind
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.status import Code
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import Group
from ksched.groups.wholeness import Wholeness, importance, on_nodes
from ksched.queue.nominator import Nominator
from ksched.scheduling.scheduling_cycle import SchedulingCycle

HOSTNAME = "kubernetes.io/hostname"
STUCK_SECONDS = 60.0
"""How long after its grace period a terminating pod is still expected to go."""


class Lines:
    """The lines of a matrix of amounts: pods, then every resource that a member requests."""

    def __init__(self, table: NodeTable, resources: Iterable[str]) -> None:
        self._table = table
        self.resources = sorted(resources)
        self._line_of = {POD_COUNT: 0}
        for line, resource in enumerate(self.resources, 1):
            position = table.axis.find(resource)
            if position >= 0:
                self._line_of[REQUESTED + position] = line

    def of_pod(self, pod: PodInfo) -> tuple[int, ...]:
        """What a pod takes."""
        amounts = [0] * (len(self.resources) + 1)
        for known, amount in amounts_of(pod):
            line = self._line_of.get(known)
            if line is not None:
                amounts[line] = amount
        return tuple(amounts)

    def free(self, nominator: Nominator, member: PodInfo) -> Ints:
        """What is free on each node, without what is kept for nominated pods."""
        table, nodes = self._table, len(self._table)
        free = np.zeros((len(self.resources) + 1, nodes), np.int64)
        free[0] = table.allowed_pods[:nodes] - table.pod_count[:nodes]
        for known, line in self._line_of.items():
            if known >= REQUESTED:
                position = known - REQUESTED
                used = table.requested[position][:nodes] if position < len(table.requested) else 0
                free[line] = table.allocatable[position][:nodes] - used
        self.keep_for_nominated(free, nominator, member)
        return free

    def keep_for_nominated(self, free: Ints, nominator: Nominator, member: PodInfo) -> None:
        """Take away what nominated pods need that are at least as important as a member."""
        for name, others in nominator.expected_with(member).items():
            row = self._table.rows.get(name)
            if row is not None:
                for known, amount in others.amounts.items():
                    if known in self._line_of:
                        line = self._line_of[known]
                        # Together they may ask for more than an int64 holds.
                        free[line, row] = clamp_to_int64(int(free[line, row]) - amount)

    def free_at_best(self, evictable: Evictable) -> Ints:
        """The same without any pod of lower priority."""
        table, nodes = self._table, len(self._table)
        staying = evictable.staying
        free = np.zeros((len(self.resources) + 1, nodes), np.int64)
        free[0] = table.allowed_pods[:nodes] - staying[POD_COUNT, :nodes]
        for known, line in self._line_of.items():
            if known >= REQUESTED:
                position = known - REQUESTED
                free[line] = table.allocatable[position][:nodes]
                if known < len(staying):
                    free[line] -= staying[known, :nodes]
        return free


class Survey(NamedTuple):
    """A group and the cluster, by amounts."""

    free: Ints
    """With the pods gone that are terminating already."""
    kinds: list[Kind]
    members: list[list[QueuedPodInfo]]
    """By kind."""
    evictees: list[Evictee]
    leaving: list[PodInfo]


class Surveyor:
    """Looks at a standing snapshot; long loops give way to the event loop."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        cycle: SchedulingCycle,
        nominator: Nominator,
        wholeness: Wholeness,
        wall: Callable[[], float],
        turn: TimeSlice,
    ) -> None:
        self._snapshot = snapshot
        self._cycle = cycle
        self._nominator = nominator
        self._wholeness = wholeness
        self._wall = wall
        self._turn = turn

    async def kinds(
        self, members: Sequence[QueuedPodInfo]
    ) -> tuple[Lines, list[Kind], list[list[QueuedPodInfo]]] | None:
        """Members that are alike, in order; ``None`` where amounts do not decide anything."""
        alike: dict[object, list[QueuedPodInfo]] = {}
        requests: dict[object, dict[str, int]] = {}
        for queued in members:
            template = queued.pod.template
            kind: object = (template.spec.scheduler_name, template.signature)
            alike.setdefault(kind, []).append(queued)
            if kind not in requests:
                plugins = self._cycle.profile_of(queued).framework.plugins
                checked = getattr(plugins.get(names.NODE_RESOURCES_FIT), "checked_requests", None)
                if checked is None:
                    return None
                requests[kind] = checked(template)
        asked = {name for one in requests.values() for name, amount in one.items() if amount > 0}
        lines = Lines(self._snapshot.table, asked)
        kinds = []
        for kind, some in alike.items():
            pod = some[0].pod
            statuses = await self._cycle.judge_everywhere(self._cycle.profile_of(some[0]), pod)
            closed = statuses.rows_with(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
            open_rows: Bools = np.ones(len(self._snapshot), np.bool_)
            open_rows[closed] = False
            amounts = (1, *(requests[kind].get(name, 0) for name in lines.resources))
            kinds.append(Kind(len(some), amounts, open_rows, limit_per_node(pod.template)))
        return lines, kinds, list(alike.values())

    async def look(
        self,
        group: Group,
        priority: int,
        lines: Lines,
        kinds: list[Kind],
        members: list[list[QueuedPodInfo]],
    ) -> Survey:
        """Find everybody below a priority where a member might go, groups whole."""
        member = min((one.pod for some in members for one in some), key=lambda pod: pod.priority)
        survey = Survey(lines.free(self._nominator, member), kinds, members, [], [])
        infos = self._snapshot.table.infos
        is_open = np.logical_or.reduce([kind.open_rows for kind in kinds])
        groups: dict[int, Group] = {}
        for row in np.flatnonzero(is_open).tolist():
            for pod in infos[row].pods.values():
                if pod.is_terminating:
                    self._goes(survey, pod, row, lines)
                    continue
                if pod.priority >= priority:
                    continue
                other = self._wholeness.group_of(pod)
                if other is None:
                    one = Evictee(pod, row, lines.of_pod(pod), pod.priority)
                    survey.evictees.append(one)
                elif other is not group:
                    groups[id(other)] = other
            if self._turn.is_over:
                await self._turn.give_way()
        for other in groups.values():
            survey.evictees.extend(self._members_of(other, priority, lines))
        return survey

    def _goes(self, survey: Survey, pod: PodInfo, row: int, lines: Lines) -> None:
        """Count a terminating pod as gone, unless it should have been gone for long."""
        if not is_stuck(pod, self._wall()):
            survey.leaving.append(pod)
            survey.free[:, row] += lines.of_pod(pod)

    def _members_of(self, group: Group, priority: int, lines: Lines) -> list[Evictee]:
        """All members of a group that is less important, wherever they hold room."""
        level = importance(group)
        if level >= priority:
            return []
        rows, found = self._snapshot.table.rows, []
        for pod in on_nodes(group):
            row = rows.get(pod.node_name)
            if row is not None:
                found.append(Evictee(pod, row, lines.of_pod(pod), level, group))
        return found


def is_stuck(pod: PodInfo, wall: float) -> bool:
    """Whether a terminating pod should have been gone for long."""
    ends = pod.pod.metadata.deletion_timestamp
    return ends is not None and datetime.fromisoformat(ends).timestamp() + STUCK_SECONDS < wall


def limit_per_node(template: PodTemplate) -> int:
    """How many pods like this one a node can have whatever its size."""
    if template.host_ports:
        return 1
    affinity = template.spec.affinity
    terms = affinity.pod_anti_affinity if affinity is not None else None
    for term in terms.required if terms is not None else ():
        if term.topology_key != HOSTNAME or term.namespaces or term.namespace_selector:
            continue
        try:
            is_own = compile_selector(term.label_selector).matches(template.labels)
        except InvalidSelector:
            continue
        if is_own:
            return 1
    return UNLIMITED

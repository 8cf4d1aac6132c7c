"""What the plugins of all dialects of groups have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ksched.api.objects import Node
from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    Handle,
    PodInfo,
    PreFilterResult,
    QueueingHint,
    Resource,
    Snapshot,
    Status,
    unresolvable,
)
from ksched.groups.placements import rows_of_members
from ksched.groups.registry import Dialect, Groups


class GroupMembership:
    """Gates the members of incomplete groups, and keeps members in the domain of their group."""

    reports_gated_pods: ClassVar[bool] = True

    def __init__(self, handle: Handle) -> None:
        self._groups = handle.listers.view(Groups)
        self._profile = handle.profile_name

    def _read(self, dialect: Dialect) -> None:
        """Read the groups of a dialect among the pods of this profile."""
        self._groups.read(dialect, self._profile)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        reason = self._groups.why_gated(pod.uid)
        return unresolvable(reason) if reason else SUCCESS

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | PreFilterResult:
        """Restrict the nodes to those that the group cycle tries, or to the group's domain."""
        group = self._groups.of(pod.uid)
        if group is None:
            return SKIP
        if group.within is not None:
            return PreFilterResult(node_names=group.within)
        terms = group.terms
        if terms is None or not terms.has_required_topology or not group.placed:
            return SKIP
        table = snapshot.table
        taken = [table.rows[name] for name in group.nodes() if name in table.rows]
        if not taken:
            return SKIP
        rows = rows_of_members(table, terms.topology, taken)
        names = frozenset(table.infos[row].name for row in rows.tolist())
        if not names:
            keys = ", ".join(level.key for level in terms.topology if level.is_required)
            return unresolvable(f"members of the pod group are not in one domain of {keys}")
        return PreFilterResult(node_names=names)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Nodes for groups with a topology; the registry wakes the members of a complete group."""
        event = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (ClusterEventWithHint(event, self._is_schedulable_after_node_change),)

    def _is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node
    ) -> QueueingHint:
        group = self._groups.of(pod.uid)
        terms = None if group is None else group.terms
        before = {} if old is None else old.metadata.labels
        if terms is not None and any(
            new.metadata.labels.get(level.key) != before.get(level.key) for level in terms.topology
        ):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

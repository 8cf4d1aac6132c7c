"""A trial placement of a group: members are added to the snapshot one by one, and removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ksched.cache.cache import SchedulerCache
from ksched.cache.snapshot import Snapshot
from ksched.configuration.extension_points import RESERVE
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.reserve_to_post_bind import run_reserve, run_unreserve
from ksched.framework.status import SUCCESS, Status, unschedulable
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import Group
from ksched.queue.nominator import Nominator
from ksched.scheduling.scheduling_cycle import (
    Placed,
    Rejected,
    SchedulingCycle,
    one_node_diagnosis,
)


class _Step(NamedTuple):
    placed: Placed
    row: int
    nominated: str | None
    """The node that the pod was nominated to."""


class Need:
    """How many members must be placed in one group cycle, in total and by role."""

    def __init__(self, group: Group) -> None:
        self.total = group.need
        self.by_role = group.role_needs()
        self._roles = (
            {uid: member.mark.role for uid, member in group.members.items()} if self.by_role else {}
        )

    def is_met_by(self, placed: list[Placed]) -> bool:
        if len(placed) < self.total:
            return False
        if not self.by_role:
            return True
        return self.has_roles(Counter(self.role_of(one.pod.uid) for one in placed))

    def has_roles(self, roles: Mapping[str, int]) -> bool:
        """Whether enough members of every role are placed, of whom there are so many."""
        return all(roles.get(role, 0) >= need for role, need in self.by_role.items())

    def role_of(self, uid: str) -> str:
        return self._roles.get(uid, "")

    def choose(self, order: Sequence[QueuedPodInfo]) -> list[QueuedPodInfo]:
        """As many members as are needed: of every role that is short, then the first others."""
        short = Counter(self.by_role)
        chosen = set()
        for queued in order:
            role = self.role_of(queued.uid)
            if short[role] > 0:
                short[role] -= 1
                chosen.add(queued.uid)
        for queued in order:
            if len(chosen) < self.total:
                chosen.add(queued.uid)
        return [queued for queued in order if queued.uid in chosen]


class Trial:
    """The members placed so far; only the snapshot and Reserve plugins have them."""

    def __init__(
        self, snapshot: Snapshot, nominator: Nominator, undone: Callable[[], None]
    ) -> None:
        self._snapshot = snapshot
        self._nominator = nominator
        self._undone = undone
        self._steps: list[_Step] = []
        self.rejected: list[Rejected] = []

    @property
    def placed(self) -> list[Placed]:
        return [step.placed for step in self._steps]

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, placed: Placed) -> None:
        """Add a member to its node, for the filters of the members after it."""
        row = self._snapshot.table.rows[placed.node_name]
        nominated = self._nominator.node_of(placed.pod.uid)
        self._steps.append(_Step(placed, row, nominated))
        # The nomination would count a second time.
        self._nominator.delete(placed.pod.uid)
        self._snapshot.assume(placed.pod, row)

    def drop(self, uid: str) -> None:
        """Remove one member; the others stay."""
        step = next(step for step in self._steps if step.placed.pod.uid == uid)
        self._steps.remove(step)
        self._undo(step)

    async def give_back(self, turn: TimeSlice) -> None:
        """``undo`` in slices; the rest at once if it is cancelled meanwhile."""
        try:
            while self._steps:
                self._undo(self._steps.pop())
                if turn.is_over:
                    await turn.give_way()
        finally:
            self.undo()

    def undo(self) -> None:
        """Remove all members, the last one first."""
        while self._steps:
            self._undo(self._steps.pop())

    def _undo(self, step: _Step) -> None:
        placed = step.placed
        self._undone()
        run_unreserve(placed.profile.framework, placed.state, placed.pod, placed.node_name)
        self._snapshot.forget(placed.pod, step.row)
        if step.nominated is not None:
            self._nominator.add(placed.queued.pod, step.nominated)


async def place(cycle: SchedulingCycle, trial: Trial, queued: QueuedPodInfo) -> None:
    """Try one more member, by the ordinary filters, scores and Reserve plugins."""
    profile, state = cycle.profile_of(queued), CycleState()
    fit = await cycle.find_nodes(profile, state, queued.pod)
    if isinstance(fit, Diagnosis):
        status = unschedulable(fit.message)
        trial.rejected.append(Rejected(queued, profile, status, fit))
        return
    node_name = await cycle.choose(profile, state, queued.pod, fit)
    pod = queued.pod.on_node(node_name)
    placed = Placed(queued, pod, node_name, profile, state, fit.evaluated, len(fit.rows))
    trial.add(placed)
    status = await _reserve(placed)
    if status.is_success:
        return
    trial.drop(pod.uid)
    if not status.is_rejected:
        raise PluginFailure(status)
    trial.rejected.append(Rejected(queued, profile, status, one_node_diagnosis(status)))


async def _reserve(placed: Placed) -> Status:
    """Run the Reserve plugins; after an objection the caller undoes all of them."""
    profile = placed.profile
    if not profile.framework.hooks[RESERVE]:
        return SUCCESS
    profile.metrics.begin(RESERVE)
    status = await run_reserve(profile.framework, placed.state, placed.pod, placed.node_name)
    profile.metrics.end(status.code)
    return status


def overtaken(cache: SchedulerCache, placed: Sequence[Placed]) -> set[str]:
    """The nodes of a trial that lack room for it by now: other schedulers have bound pods there.

    Only nodes that changed since the snapshot are compared, by amounts.
    """
    members: dict[str, list[Placed]] = {}
    for one in placed:
        if one.node_name in cache.changed_nodes:
            members.setdefault(one.node_name, []).append(one)
    full = set()
    for name, those in members.items():
        info = cache.get_node(name)
        if info is None:
            continue
        demand: Counter[str] = Counter()
        for one in those:
            demand.update(one.pod.template.requests)
        if len(info.pods) + len(those) > info.allowed_pods or any(
            info.requested_of(resource) + amount > info.allocatable_of(resource)
            for resource, amount in demand.items()
            if amount
        ):
            full.add(name)
    return full

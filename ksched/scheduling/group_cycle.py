"""The group cycle: the members that a group needs are placed on one snapshot, all or none.

A group that does not fit holds nothing: its placements are undone before the cycle ends, so two
groups that each lack half of the space cannot wait for each other. Members go through the same
filters and scores as other pods; each counts those before it as placed. When the need is met, all
are assumed without an await in between. Members past the need are scheduled one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ksched.cache.cache import SchedulerCache
from ksched.configuration.extension_points import PERMIT
from ksched.errors import ExtenderError
from ksched.extenders.chain import failed_extender
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.plugins import names
from ksched.framework.queued_pod import QueuedPodInfo, SharedWait
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import SUCCESS, Code, Status, error, unschedulable
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import Group
from ksched.groups.placements import Kind, Nowhere, Part, Placement, placements
from ksched.groups.registry import Groups
from ksched.groups.sentences import (
    GROUP_FAILED,
    GROUP_UNSCHEDULABLE,
    NO_PREEMPTION,
    kept_room,
    quantity,
)
from ksched.groups.slots import lacking
from ksched.metrics import Metrics
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.group_order import failed_first, has_kinds, in_order, in_rank_order
from ksched.scheduling.group_preemption import GroupPreemption
from ksched.scheduling.group_protection import GroupProtection
from ksched.scheduling.group_shortage import Shortage, shortage_of
from ksched.scheduling.group_slots import SLOT_FILTERS, SlotCounter, kind_of
from ksched.scheduling.group_trial import Need, Trial, overtaken, place
from ksched.scheduling.quorum_gate import QuorumGate
from ksched.scheduling.scheduling_cycle import (
    Placed,
    Rejected,
    SchedulingCycle,
    unreserve_and_forget,
)
from ksched.scheduling.slot_waits import SlotWaits
from ksched.unexpected_errors import UnexpectedErrors

TRIES = 3
"""How often a cycle starts again because members or nodes disappeared meanwhile."""

FEW_MEMBERS = 16
"""To place so many takes about as long as to count the slots for them."""
ASSUMED_PER_STEP = 64


class GroupDecision(Struct, frozen=True):
    """The outcome of a group cycle for each member."""

    placed: Sequence[Placed] = ()
    rejected: Sequence[Rejected] = ()
    untried: Sequence[QueuedPodInfo] = ()
    """Members past the need."""
    waits_for_preemption: bool = False
    is_news: bool = True
    """Whether the reason differs from that of the last attempt."""
    shared_wait: SharedWait | None = None
    """What the group waits for with others that are impossible for the same reason."""

    def left_out(self, members: Sequence[QueuedPodInfo]) -> list[str]:
        """The UIDs of members without an outcome."""
        if len(members) == len(self.placed) + len(self.rejected) + len(self.untried):
            return []
        known = {one.queued.uid for one in self.placed}
        known.update(one.queued.uid for one in self.rejected)
        known.update(queued.uid for queued in self.untried)
        return [queued.uid for queued in members if queued.uid not in known]


class GroupCycle:
    """Schedules the members of one group at a time."""

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        cycle: SchedulingCycle,
        groups: Groups,
        pending: PendingPods,
        nominator: Nominator,
        waiting: WaitingPods,
        now: Callable[[], float],
        unexpected_errors: UnexpectedErrors,
        metrics: Metrics,
        preemption: GroupPreemption,
        protection: GroupProtection,
    ) -> None:
        self._cache = cache
        self._cycle = cycle
        self._groups = groups
        self._pending = pending
        self._nominator = nominator
        self._waiting = waiting
        self._now = now
        self._unexpected_errors = unexpected_errors
        self._undone = metrics.group_undone_placements.increment
        self._preemption = preemption
        self._protection = protection
        self._slots = SlotCounter(cache, cycle)
        self._waits = SlotWaits(cache)

    def filters_changed(self) -> None:
        """Forget what was found with the plugins of another configuration."""
        self._slots.forget()
        self._waits.forget()
        self._preemption.filters_changed()
        self._protection.filters_changed()

    async def run(self, group: Group, members: Sequence[QueuedPodInfo]) -> GroupDecision:
        """Place the members that the group needs, or none and return the reasons.

        kube-scheduler: podGroupCycle, submitPodGroupAlgorithmResult.
        """
        self._cycle.is_running = self._waits.is_deciding = True
        everybody = members
        try:
            for _ in range(TRIES):
                decision = await self._decide(group, members)
                if decision is not None:
                    return decision
                members = [queued for queued in members if self._is_alive(queued)]
            return self._reject_all(
                group, members, unschedulable("members or nodes keep vanishing")
            )
        except PluginFailure as failed:
            return self._failed(group, members, failed.status)
        except ExtenderError as problem:
            return self._failed(group, members, failed_extender(problem))
        except Exception as problem:  # noqa: BLE001 - reported
            text = self._unexpected_errors.report("attempt", str(group.key), problem)
            return self._failed(group, members, error(text))
        finally:
            self._cycle.is_running = self._waits.is_deciding = False
            for queued in everybody if len(self._nominator) else ():
                if self._pending.get(queued.uid) is None:
                    self._nominator.delete(queued.uid)

    async def _decide(self, group: Group, members: Sequence[QueuedPodInfo]) -> GroupDecision | None:
        """Run once; ``None`` if the members changed meanwhile and it must be repeated."""
        reason = group.why_gated()
        need = Need(group)
        if not reason and len(members) < need.total:
            reason = f"{len(members)} of {need.total} members can be tried"
        if reason:
            return self._reject_all(group, members, unschedulable(reason))
        await self._cycle.update_snapshot()
        lack = self._lack_of_resources(group)
        if lack:
            return self._reject_all(
                group, members, unschedulable(lack), frozenset({names.NODE_RESOURCES_FIT})
            )
        turn = TimeSlice(self._now)
        order = await in_order(members, need, turn)
        await turn.give_way_if_over()
        # A few members are tried sooner than slots are counted, unless their likes have failed.
        is_tried_first = need.total <= FEW_MEMBERS and not self._slots.has_counted(members[0])
        if not is_tried_first:
            proof = await self._slots.shortage(members, need)
            if proof is not None:
                return await self._preempt(group, order, need, proof)
            await turn.give_way_if_over()
        found = await self._placements(group, order, need)
        if isinstance(found, Shortage):
            return await self._preempt(group, order, need, found)
        await turn.give_way_if_over()
        shortage: Shortage | None = None
        for placement in found:
            trial = Trial(self._cache.snapshot, self._nominator, self._undone)
            try:
                misfit = await self._try(trial, group, order, need, placement, turn)
                if misfit is None:
                    return await self._commit(group, trial, order, need)
            except BaseException:
                trial.undo()
                raise
            finally:
                group.within = None
            await trial.give_back(turn)
            if shortage is None or misfit.places < shortage.places:
                shortage = misfit
        assert shortage is not None
        if is_tried_first:
            shortage = await self._slots.shortage(members, need) or shortage
        return await self._preempt(group, order, need, shortage)

    async def _placements(
        self, group: Group, order: Sequence[QueuedPodInfo], need: Need
    ) -> Iterable[Placement | None] | Shortage:
        """The sets of nodes to try; ``None`` is all nodes."""
        terms = group.terms
        if terms is None or not terms.topology:
            return (None,)
        table = self._cache.snapshot.table
        counted = await self._slots.of_kinds(order)
        if counted is None:
            unlimited = np.full(len(table), len(order), np.int64)
            kinds = [Kind(unlimited, len(order))]
        else:
            kinds = [Kind(slots.by_row, len(alike)) for slots, alike in counted]
        taken = [table.rows[name] for name in group.nodes() if name in table.rows]
        found = placements(table, terms.topology, kinds, need.total, taken)
        if not isinstance(found, Nowhere):
            return found
        rejectors = frozenset({names.NODE_RESOURCES_FIT, group.plugin})
        if counted is not None:
            rejectors = rejectors.union(*(slots.rejectors for slots, _ in counted))
        return Shortage(found.reason, rejectors, need.total - found.fitting)

    async def _try(
        self,
        trial: Trial,
        group: Group,
        order: Sequence[QueuedPodInfo],
        need: Need,
        placement: Placement | None,
        turn: TimeSlice,
    ) -> Shortage | None:
        """Place what the group needs; returns why it does not fit there."""
        parts = () if placement is None else placement.parts
        if len(parts) > 1:
            members = iter(in_rank_order(need.choose(order)))
            for part in parts:
                group.within = self._names(part)
                for queued in islice(members, part.number):
                    await place(self._cycle, trial, queued)
                    if turn.is_over:
                        await turn.give_way()
        else:
            group.within = self._names(parts[0]) if parts else None
            await self._place_all(trial, order, need, turn)
        fitting, misfits = len(trial), trial.rejected
        if not need.is_met_by(trial.placed) and has_kinds(order) and len(parts) < 2:
            await trial.give_back(turn)
            trial.rejected = []
            await self._place_all(trial, failed_first(misfits, order), need, turn)
        return None if need.is_met_by(trial.placed) else shortage_of(misfits, fitting, need)

    def _names(self, part: Part) -> frozenset[str] | None:
        infos = self._cache.snapshot.table.infos
        if len(part.rows) == len(infos):
            return None
        return frozenset(infos[row].name for row in part.rows.tolist())

    def _lack_of_resources(self, group: Group) -> str:
        """Return which of the group's minResources is not free, unless members are placed."""
        terms = group.terms
        if terms is None or not terms.min_resources or group.is_satisfied or group.placed:
            return ""
        found = lacking(self._cache.snapshot.table, terms.min_resources)
        if found is None:
            return ""
        resource, free = found
        wanted = quantity(resource, terms.min_resources[resource])
        return f"minResources: {quantity(resource, free)} of {wanted} {resource} is free"

    # -- placing --------------------------------------------------------------------------------

    async def _place_all(
        self, trial: Trial, order: Sequence[QueuedPodInfo], need: Need, turn: TimeSlice
    ) -> None:
        """Place members until the need is met or can no longer be met."""
        roles: Counter[str] = Counter()
        for number, queued in enumerate(order):
            if len(trial) >= need.total and need.has_roles(roles):
                return
            rest = len(order) - number
            if len(trial) + rest < need.total:
                return
            before = len(trial)
            await place(self._cycle, trial, queued)
            roles[need.role_of(queued.uid)] += len(trial) - before
            if turn.is_over:
                await turn.give_way()

    # -- committing -----------------------------------------------------------------------------

    async def _commit(
        self, group: Group, trial: Trial, order: Sequence[QueuedPodInfo], need: Need
    ) -> GroupDecision | None:
        """Assume all placed members, or none; ``None`` if too many vanished, or more are needed."""
        if group.need > need.total or group.why_gated():
            trial.undo()
            return None
        gate = QuorumGate(need.total, self._waiting, lambda: self._groups.satisfied(group))
        placed = await self._assume(trial, gate)
        if not need.is_met_by(placed):
            for one in placed:
                self._cache.forget_pod(one.pod)
            trial.undo()
            return None
        uids = {one.pod.uid for one in placed}
        gate.expect(uids)
        status = self._permit(placed)
        if not status.is_success:
            for one in reversed(placed):
                self._undone()
                self._waiting.discard(one.pod.uid)
                unreserve_and_forget(self._cache, one)
            return self._reject_all(group, order, status, frozenset({status.plugin} - {""}))
        tried = uids.union(one.queued.uid for one in trial.rejected)
        group.last_reason, group.short_slots = "", 0
        self._preemption.forget(group)
        self._protection.forget(group)
        return GroupDecision(
            placed=placed,
            rejected=trial.rejected,
            untried=[queued for queued in order if queued.uid not in tried],
        )

    async def _assume(self, trial: Trial, gate: QuorumGate) -> list[Placed]:
        """Assume the members of a trial, a slice at a time; those that vanish meanwhile drop out.

        No other pod is decided meanwhile, so nobody sees a part of the group.
        """
        turn, assumed = TimeSlice(self._now), list[Placed]()
        steps = trial.placed
        try:
            for first in range(0, len(steps), ASSUMED_PER_STEP):
                if turn.is_over:
                    await turn.give_way()
                some = steps[first : first + ASSUMED_PER_STEP]
                full = overtaken(self._cache, some)
                for one in some:
                    has_node = self._cache.get_node(one.node_name) is not None
                    if has_node and self._is_alive(one.queued) and one.node_name not in full:
                        self._cache.assume_pod(one.pod)
                        assumed.append(replace(one, gate=gate))
                    else:
                        trial.drop(one.pod.uid)
            await turn.give_way_if_over()
        except BaseException:
            for one in assumed:
                if self._cache.is_assumed(one.pod.uid):
                    self._cache.forget_pod(one.pod)
            raise
        return [one for one in assumed if self._cache.is_assumed(one.pod.uid)]

    def _permit(self, placed: Sequence[Placed]) -> Status:
        """Run Permit for every member; the first rejection is that of the group."""
        for one in placed:
            if not one.profile.framework.hooks[PERMIT]:
                continue
            try:
                status = self._cycle.permit(one)
            except PluginFailure as failed:
                one.profile.metrics.end(failed.status.code)
                return failed.status
            if not (status.is_success or status.is_wait):
                return status
        return SUCCESS

    def _is_alive(self, queued: QueuedPodInfo) -> bool:
        """Whether a member is still pending."""
        latest = self._pending.get(queued.uid)
        return (
            latest is not None
            and not latest.is_terminating
            and self._cache.get_pod(queued.uid) is None
        )

    # -- rejecting ------------------------------------------------------------------------------

    async def _preempt(
        self, group: Group, order: Sequence[QueuedPodInfo], need: Need, shortage: Shortage
    ) -> GroupDecision | None:
        """Make room for what the group needs if that is possible; it is refused in any case."""
        terms = group.terms
        if terms is not None and terms.has_required_topology:
            status = unschedulable(f"{shortage.text}; {NO_PREEMPTION}")
            return self._reject_all(group, order, status, shortage.rejectors, shortage.places)
        chosen = need.choose(order)
        fitting = need.total - shortage.places
        outcome = await self._preemption.run(group, chosen, fitting, self._is_alive)
        if outcome is None:
            return None
        text = f"{shortage.text}; {outcome.text}" if outcome.text else shortage.text
        nominated = None if outcome.is_waiting else outcome.nodes
        status, rejectors = unschedulable(text), shortage.rejectors
        is_waiting = outcome.is_waiting or bool(outcome.nodes)
        if not is_waiting:
            nominated = await self._protection.run(group, chosen)
            if not all(map(self._is_alive, chosen)):
                self._protection.forget(group)
                return None
            if nominated:
                status = unschedulable(f"{text}; {kept_room(len({*nominated.values()}))}")
        if is_waiting:
            # Any of its victims may be the last, whether or not the others care for its end.
            rejectors |= {names.DEFAULT_PREEMPTION}
        wait = None
        if not (is_waiting or nominated):
            wait = self._shared_wait(group, chosen, need, shortage)
        decision = self._reject_all(
            group, order, status, rejectors, shortage.places, nominated, wait
        )
        return replace(decision, waits_for_preemption=True) if is_waiting else decision

    def _shared_wait(
        self, group: Group, chosen: Sequence[QueuedPodInfo], need: Need, shortage: Shortage
    ) -> SharedWait | None:
        """What the group waits for with its likes, if slots alone prove all of them impossible."""
        terms, slots = group.terms, shortage.slots
        if slots is None or terms is None or need.by_role or not shortage.rejectors <= SLOT_FILTERS:
            return None
        if terms.topology or terms.min_resources or self._groups.protection.after_seconds:
            return None
        if chosen[0].pod.template.host_ports:
            # Pods that end open nodes.
            return None
        at_best = self._preemption.at_best(group, chosen, slots)
        if at_best is None:
            return None
        requests, (priority, slots) = self._slots.requests(chosen[0]), at_best
        assert requests is not None, "slots were counted"
        # A broken group goes before the others, so it does not wait for one of them to be tried.
        kind = kind_of(chosen[0]), group.is_broken
        return self._waits.proved(kind, need.total, priority, requests, slots)

    def _reject_all(
        self,
        group: Group,
        members: Sequence[QueuedPodInfo],
        status: Status,
        rejectors: frozenset[str] = frozenset(),
        short_slots: int = 0,
        nominated: Mapping[str, str] | None = MappingProxyType({}),
        wait: SharedWait | None = None,
    ) -> GroupDecision:
        """Reject all members for one reason; an event of any rejecting plugin wakes them.

        ``nominated`` has nodes for members, the others lose their nominations; ``None`` leaves all
        as they are.
        """
        group.short_slots = short_slots
        text = f"{GROUP_UNSCHEDULABLE}, {status.message}"
        is_news, group.last_reason = group.last_reason != text, text
        if not status.is_rejected:
            return self._failed(group, members, status)
        diagnosis = Diagnosis(
            num_all_nodes=len(self._cache.snapshot),
            unschedulable_plugins=rejectors | {group.plugin},
            shared_wait=wait,
            completes_group=group.is_broken,
        )
        status = unschedulable(text)
        rejected = [
            Rejected(
                queued,
                self._cycle.profile_of(queued),
                status,
                diagnosis,
                None if nominated is None else nominated.get(queued.uid, ""),
                text=text,
            )
            for queued in members
        ]
        return GroupDecision(rejected=rejected, is_news=is_news, shared_wait=wait)

    def _failed(
        self, group: Group, members: Sequence[QueuedPodInfo], status: Status
    ) -> GroupDecision:
        """Fail all members after an error of one: all are retried after their backoff."""
        text = f"{GROUP_FAILED}: {status.message}"
        group.last_reason = text
        status = Status(Code.ERROR, (text,), status.plugin)
        return GroupDecision(
            rejected=[
                Rejected(queued, self._cycle.profile_of(queued), status) for queued in members
            ]
        )

"""One attempt: the scheduling cycle of a popped pod, or of its group, then binding or failure."""

from __future__ import annotations

import asyncio
from collections import deque

from ksched.cache.cache import SchedulerCache
from ksched.clock import Clock, stopwatch
from ksched.framework.handle import EventRecorder
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.time_slices import TimeSlice
from ksched.groups.group import Group
from ksched.groups.registry import Groups
from ksched.metrics import Metrics
from ksched.queue.pending_pods import PendingPods
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.binding_cycle import BindingCycle
from ksched.scheduling.decisions import Decision, DecisionLog, Result
from ksched.scheduling.event_handlers import REMOVED
from ksched.scheduling.failure_handler import FailureHandler
from ksched.scheduling.group_cycle import GroupCycle, GroupDecision
from ksched.scheduling.scheduling_cycle import (
    Placed,
    Rejected,
    SchedulingCycle,
    unreserve_and_forget,
)
from ksched.tuning import MEMBERS_PER_STEP, PODS_PER_SLICE

WAITING_ON_PREEMPTION = "waiting_on_preemption"
"""The result of a group's attempt, in metrics."""

MEMBERS_TAKEN = 64
"""Between two looks at the clock."""


class Attempts:
    """Runs the cycles of popped pods; the binding cycles are tasks of the caller."""

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        pending: PendingPods,
        waiting: WaitingPods,
        groups: Groups,
        cycle: SchedulingCycle,
        group_cycle: GroupCycle,
        binding: BindingCycle,
        failures: FailureHandler,
        decisions: DecisionLog,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._pending = pending
        self._waiting = waiting
        self._groups = groups
        self._cycle = cycle
        self._group_cycle = group_cycle
        self._binding = binding
        self._failures = failures
        self._decisions = decisions
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics

    async def schedule_one(self, queued: QueuedPodInfo, bindings: asyncio.TaskGroup) -> None:
        """kube-scheduler: ScheduleOne, scheduleOnePod."""
        if self._is_skipped(queued):
            return
        if self._groups.is_on:
            group = self._groups.to_decide(queued.uid)
            if group is not None:
                await self._schedule_group(group, queued, bindings)
                return
        started, began = self._clock.now(), stopwatch()
        try:
            outcome = await self._cycle.run(queued)
        except asyncio.CancelledError:
            self._failures.put_back(queued)
            raise
        algorithm_seconds = stopwatch() - began
        if self._cycle.observer is not None:
            self._cycle.observer.ended(outcome)
        if isinstance(outcome, Rejected):
            self._decided(outcome, started, algorithm_seconds)
            self._failures.handle_scheduling_failure(outcome)
            return
        outcome.profile.open_bindings += 1
        self._begin_binding(outcome, started, algorithm_seconds, bindings)

    async def _schedule_group(
        self, group: Group, leader: QueuedPodInfo, bindings: asyncio.TaskGroup
    ) -> None:
        """Schedule the members of a group in one group cycle.

        kube-scheduler: schedulePodGroup.
        """
        members, began = [leader], stopwatch()
        started = self._clock.now()
        # From here on: the plugins that let the members pass must be those that decide.
        self._cycle.is_running = True
        try:
            await self._take_siblings(group, members)
            self._warn_of_priorities(group, leader)
            began = stopwatch()
            decision = await self._group_cycle.run(group, members)
        except asyncio.CancelledError:
            for queued in members:
                self._failures.put_back(queued)
            raise
        finally:
            self._cycle.is_running = False
        seconds = stopwatch() - began
        self._groups.decided(group)
        self._group_decided(decision, leader, started, seconds)
        before = next((one.shared_wait for one in members if one.shared_wait is not None), None)
        if before is not None and decision.shared_wait is not before:
            self._queue.wake_sharing(before)
        for queued in decision.untried:
            self._queue.put_back(queued)
        for uid in decision.left_out(members):
            # Deleted, or bound by another scheduler, while the group was decided.
            self._queue.done(uid)
        await self._carry_out(decision, started, seconds, bindings)

    async def _take_siblings(self, group: Group, members: list[QueuedPodInfo]) -> None:
        """Add the other members of a popped one's group, a slice at a time."""
        [leader] = members
        turn = TimeSlice(self._clock.now)
        uids = [member.pod.uid for member in group.available()]
        for first in range(0, len(uids), MEMBERS_TAKEN):
            for queued in self._queue.take(leader, uids[first : first + MEMBERS_TAKEN]):
                if not self._is_skipped(queued):
                    members.append(queued)
            await turn.give_way_if_over()

    async def _carry_out(
        self,
        decision: GroupDecision,
        started: float,
        seconds: float,
        bindings: asyncio.TaskGroup,
    ) -> None:
        """Requeue rejected members and begin to bind placed ones, a slice at a time."""
        turn = TimeSlice(self._clock.now)
        rejected, placed = deque(decision.rejected), deque(decision.placed)
        for ready in placed:
            ready.profile.open_bindings += 1
        try:
            if len(rejected) + len(placed) > PODS_PER_SLICE:
                # The decision about so many has just ended.
                await turn.give_way()
            while rejected:
                one = rejected.popleft()
                self._decided(one, started, seconds)
                self._failures.handle_scheduling_failure(one, is_news=decision.is_news)
                if turn.is_over:
                    await turn.give_way()
            while placed:
                self._begin_binding(placed.popleft(), started, seconds, bindings)
                if len(placed) % MEMBERS_PER_STEP == 0:
                    # What has begun runs now, which takes longer than to begin it.
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            for left in placed:
                self._waiting.discard(left.pod.uid)
                unreserve_and_forget(self._cache, left)
            for queued in [one.queued for one in rejected] + [one.queued for one in placed]:
                self._failures.put_back(queued)
            raise

    def _warn_of_priorities(self, group: Group, leader: QueuedPodInfo) -> None:
        """Say once what a group with members of different priorities can expect."""
        priorities = {member.pod.priority for member in group.members.values()}
        if len(priorities) < 2 or group.is_warned_of_priorities:
            return
        group.is_warned_of_priorities = True
        lowest, highest = min(priorities), max(priorities)
        note = (
            f"pods of group {group.key.name} have different priorities: "
            f"it evicts pods below {lowest} and is evicted by pods above {highest}"
        )
        self._recorder.event(leader.pod, "Warning", "MixedPriorities", "Scheduling", note)

    def _group_decided(
        self, decision: GroupDecision, leader: QueuedPodInfo, started: float, seconds: float
    ) -> None:
        """kube-scheduler: PodGroupScheduled, PodGroupUnschedulable, PodGroupScheduleError."""
        if decision.placed:
            result = Result.SCHEDULED
        elif all(one.status.is_rejected for one in decision.rejected):
            result = Result.UNSCHEDULABLE
        else:
            result = Result.ERROR
        text = WAITING_ON_PREEMPTION if decision.waits_for_preemption else result.value
        labels = (text, self._cycle.profile_of(leader).name)
        duration = max(self._clock.now() - started, seconds)
        self._metrics.podgroup_schedule_attempts.increment(*labels)
        self._metrics.podgroup_scheduling_attempt_duration.of(*labels).observe(duration)
        self._metrics.podgroup_scheduling_algorithm_duration.of().observe(seconds)

    def _is_skipped(self, queued: QueuedPodInfo) -> bool:
        """Whether a pod needs no attempt: it is terminating or assumed (skipPodSchedule)."""
        pod = queued.pod
        if pod.is_terminating:
            note = f"skip schedule deleting pod: {pod.key}"
            self._recorder.event(pod, "Warning", "FailedScheduling", "Scheduling", note)
        elif not self._cache.is_assumed(pod.uid):
            return False
        self._queue.done(pod.uid)
        return True

    def _begin_binding(
        self,
        placed: Placed,
        started: float,
        algorithm_seconds: float,
        bindings: asyncio.TaskGroup,
    ) -> None:
        uid = placed.pod.uid
        waiting, latest = self._waiting.get(uid), self._pending.get(uid)
        if waiting is not None and (latest is None or latest.is_terminating):
            # Deleted while an async plugin ran, before there was a waiting pod to reject.
            waiting.reject("", REMOVED)
        if placed.state.pods_to_activate:
            self._queue.activate(placed.state.pods_to_activate.values())
            placed.state.pods_to_activate.clear()
        bindings.create_task(self._bind(placed, started, algorithm_seconds), name="bind")

    async def _bind(self, placed: Placed, started: float, algorithm_seconds: float) -> None:
        try:
            rejected = await self._binding.run(placed)
        finally:
            placed.profile.open_bindings -= 1
        self._decided(rejected or placed, started, algorithm_seconds)

    def _decided(
        self, outcome: Placed | Rejected, started: float, algorithm_seconds: float
    ) -> None:
        queued, now = outcome.queued, self._clock.now()
        first = queued.initial_attempt_timestamp
        if isinstance(outcome, Placed):
            result, node_name, message = Result.SCHEDULED, outcome.node_name, ""
            evaluated, feasible = outcome.evaluated_nodes, outcome.feasible_nodes
        else:
            rejected = outcome.status.is_rejected
            result = Result.UNSCHEDULABLE if rejected else Result.ERROR
            node_name, message = "", outcome.message
            evaluated, feasible = len(self._cache.snapshot), 0
        self._decisions.record(
            Decision(
                at=self._clock.wall(),
                pod=queued.key,
                uid=queued.uid,
                profile=outcome.profile.name,
                result=result,
                node_name=node_name,
                message=message,
                attempts=queued.attempts,
                evaluated_nodes=evaluated,
                feasible_nodes=feasible,
                duration_seconds=max(now - started, algorithm_seconds),
                algorithm_seconds=algorithm_seconds,
                waited_seconds=now - (started if first is None else first),
            )
        )

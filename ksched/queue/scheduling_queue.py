"""The scheduling queue: every pending pod, in exactly one place.

A pod is to be tried *now* (ACTIVE), *soon* (BACKOFF) or *after an event* (UNSCHEDULABLE, GATED), or
is being tried (IN_FLIGHT). Five invariants hold.

*No wake-up is lost.* A rejected pod waits only for events that the rejecting plugins registered
for. An event that arrives while the pod is in flight was not in the snapshot of its attempt; it is
recorded and replayed when the pod returns, so the pod ends up where the event would have sent it.
Events that a plugin failed to register are covered by the leftover flush.

*Every change of place goes through* ``_move``. It checks the transition against a table, records it
with its cause (``story``), and notifies the observer. Other changes of a pod (its object, its
counts) do not move it.

*Ready pods go first.* When nothing is ACTIVE, a rejected pod is popped before its backoff is over,
since the scheduler would be idle otherwise (kube-scheduler's SchedulerPopFromBackoffQ). Pods in
error backoff are never popped early.

*A backlog does not delay new pods.* Among ready pods of one priority, first attempts and retries
alternate (``active``).

*No busy loop of hopeless retries.* A rejected pod waits for an event, and the effects of its own
attempts are none: own status patches wake nothing, and releasing an assumed node skips no backoff.
An early attempt is an advance on the backoff it cuts short (``backoff``), so for any number of
events a pod is tried at most once more than its backoff schedule allows. Only a plugin can
override this, explicitly: PENDING for the events it registered, or ``activate``.

Everything is synchronous and therefore atomic with respect to the event loop, except ``pop``. The
owner calls ``flush_backoff_completed`` and ``flush_unschedulable_leftover`` periodically. Follows
backend/queue/scheduling_queue.go (PriorityQueue, v1.36) with queueing hints always on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from ksched.api.objects import Pod
from ksched.cache.pod_info import PodInfo
from ksched.framework.cluster_events import CONFIG_RELOAD, FORCE_ACTIVATE, ClusterEvent
from ksched.framework.event_derivation import pod_update_events
from ksched.framework.queued_pod import QueuedPodInfo, SharedWait
from ksched.metrics import Histogram
from ksched.queue import causes
from ksched.queue.activations import Activations
from ksched.queue.backoff import BackoffQueue
from ksched.queue.contents import QueueContents
from ksched.queue.hints import (
    AFTER_BACKOFF,
    IMMEDIATELY,
    SKIP,
    HintTable,
    Registration,
    Requeue,
    is_of_nodes,
)
from ksched.queue.in_flight import Attempt, SeenEvent
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.queue.places import (
    ABSENT,
    ACTIVE,
    BACKOFF,
    GATED,
    IN_FLIGHT,
    UNSCHEDULABLE,
    Observer,
    Place,
)
from ksched.queue.pre_enqueue import PreEnqueue, PreEnqueuePlugins
from ksched.queue.wake_ups import WakeUps
from ksched.queue.work import QueueWork
from ksched.tuning import PODS_PER_SLICE

log = logging.getLogger(__name__)

BACKOFF_FLUSH_SECONDS = 1
UNSCHEDULABLE_FLUSH_SECONDS = 30


class SchedulingQueue(QueueContents):
    """Decides which pod is tried next, and when a rejected pod is worth another attempt.

    ``now`` returns monotonic seconds. ``sort_key`` and ``rank`` are the QueueSort plugin's.
    ``pre_enqueue`` and ``hints`` are by profile (scheduler name): plugins in order, and the result
    of ``hints.registrations``. ``pending`` has the newest version of each pod, which replaces the
    attempt's version when a pod returns. ``is_own_update(old, new)`` is true when two versions
    differ only by our own status patch: such an update wakes nothing.
    The queue is the only writer of the ``QueuedPodInfo`` objects it returns.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        sort_key: Callable[[QueuedPodInfo], Any],
        pre_enqueue: Mapping[str, Sequence[tuple[str, PreEnqueue]]],
        hints: Mapping[str, Sequence[Registration]],
        pending: PendingPods,
        nominator: Nominator,
        activations: Activations,
        pod_initial_backoff_seconds: float = 1,
        pod_max_backoff_seconds: float = 10,
        pod_max_in_unschedulable_seconds: float = 60,
        observer: Observer | None = None,
        is_own_update: Callable[[Pod, Pod], bool] = lambda old, new: False,
        rank: Callable[[QueuedPodInfo], Any] | None = None,
        hint_durations: Histogram | None = None,
    ) -> None:
        backoff = BackoffQueue(sort_key, pod_initial_backoff_seconds, pod_max_backoff_seconds)
        self.work = QueueWork()
        self._hints = HintTable(hints, hint_durations, self.work)
        super().__init__(
            now, sort_key, rank, backoff, observer, nominator, self._hints.subject_keys
        )
        self._pending = pending
        self._pre_enqueue = PreEnqueuePlugins(pre_enqueue, self.work)
        self._max_in_unschedulable_seconds = pod_max_in_unschedulable_seconds
        self._is_own_update = is_own_update
        waiting = (self._unschedulable, self._gated)
        self._wake_ups = WakeUps(self._hints, self._scouts, waiting, now)
        self._is_closed = False
        activations.subscribe(self.activate)

    # -- events of pending pods -------------------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """Add a pending pod; a known one is updated."""
        known = self._pods.get(pod.uid)
        if known is not None:
            self.update(known.pod, pod)
        else:
            self._enter(pod, causes.POD_ADD)

    def update(self, old: PodInfo | None, pod: PodInfo) -> None:
        """Apply a new version of a pending pod; an unknown one is added.

        The change itself may be the event the pod waits for. ``old`` is the previous version.
        """
        place = self._place.get(pod.uid, ABSENT)
        if place is ABSENT:
            self._enter(pod, causes.POD_UPDATE)
            return
        attempt = self._in_flight.get(pod.uid)
        if attempt is not None:
            self._update_in_flight(attempt, old, pod)
            return
        queued = self._pods[pod.uid]
        known, queued.pod = queued.pod, pod
        self.nominator.update(known, pod)
        if place is ACTIVE:
            self._active.update(queued)
        elif place is BACKOFF:
            self._backoff.update(queued)
        else:
            self._update_waiting(queued, known, place)

    def delete(self, uid: str) -> None:
        """Remove a deleted or bound pod; one in flight will not return."""
        self.nominator.delete(uid)
        self._pre_enqueue.unchecked.discard(uid)
        attempt = self._in_flight.get(uid)
        if attempt is not None:
            attempt.is_deleted = True
        elif uid in self._place:
            self._move(self._pods[uid], ABSENT, causes.POD_DELETED)

    # -- attempts ---------------------------------------------------------------------------------

    async def pop(self) -> QueuedPodInfo | None:
        """Wait for the next pod; ``None`` when the queue is closed.

        Suspends on every call, so that a full queue does not starve watches and the lease. For each
        popped pod, ``add_unschedulable_if_not_present`` or ``done`` must be called.
        """
        await asyncio.sleep(0)
        while not self._is_closed:
            if self._resumed is not None:
                await self._resumed.wait()
                continue
            if self._wake_ups.unfinished or self._scouts.gone:
                self.continue_wake_ups()
            queued = self._active.take_turn()
            cause = causes.POD_POPPED
            if queued is None:
                queued = self._backoff.first_early(self._now())
                cause = causes.POP_FROM_BACKOFF
            if queued is not None:
                if self._pre_enqueue.unchecked and self._is_gated_now(queued):
                    await asyncio.sleep(0)
                    continue
                if cause is causes.POP_FROM_BACKOFF:
                    self._backoff.cut_short(queued)
                # Counts every attempt and feeds only metrics; the backoff has its own counters.
                queued.attempts += 1
                self._move(queued, IN_FLIGHT, cause)
                return queued
            if self._wake_ups.unfinished or self._scouts.gone:
                await asyncio.sleep(0)
                continue
            self._ready.clear()
            await self._ready.wait()
        return None

    def take(self, leader: QueuedPodInfo, uids: Iterable[str]) -> list[QueuedPodInfo]:
        """Put the other members of a popped pod's group in flight, from wherever they wait.

        One that a PreEnqueue plugin objects to stays where it is.

        kube-scheduler: PopSpecificPod.
        """
        taken = []
        for uid in uids:
            place = self._place.get(uid, ABSENT)
            if place is ABSENT or place is IN_FLIGHT:
                continue
            queued = self._pods[uid]
            if self._pre_enqueue.gating_plugin(queued.pod):
                continue
            self._pre_enqueue.unchecked.discard(uid)
            queued.attempts += 1
            # An early attempt of one member is one of all.
            queued.owed_until = max(queued.owed_until, leader.owed_until)
            self._move(queued, IN_FLIGHT, causes.GROUP_POPPED, leader.key)
            queued.gating_plugin = ""
            taken.append(queued)
        return taken

    def put_back(self, queued: QueuedPodInfo) -> None:
        """Take back a pod that was taken with its group and not tried: it is next by itself."""
        attempt, newest = self._in_flight.get(queued.uid), self._pending.get(queued.uid)
        if attempt is None:
            return
        if newest is None or attempt.is_deleted:
            self._move(queued, ABSENT, causes.POD_DELETED)
            return
        queued.pod, queued.timestamp, queued.completes_group = newest, self._now(), False
        queued.attempts -= 1
        self._requeue(queued, IMMEDIATELY, causes.GROUP_DECIDED)

    def done(self, uid: str) -> None:
        """End an attempt that can no longer be rejected: its events need no replay."""
        attempt = self._in_flight.get(uid)
        if attempt is not None:
            self._move(attempt.queued, ABSENT, causes.POD_DONE)

    def add_unschedulable_if_not_present(
        self,
        queued: QueuedPodInfo,
        unschedulable_plugins: frozenset[str] = frozenset(),
        pending_plugins: frozenset[str] = frozenset(),
        shared_wait: SharedWait | None = None,
        is_judged_alike: bool = False,
    ) -> Place:
        """Return a pod whose attempt failed; the result is its new place.

        With plugins it was rejected: it waits for an event, unless one that its plugins accept
        arrived since the pop. Without plugins it met an error: it backs off. A pod that is no
        longer pending is dropped, and one that was queued again meanwhile is left as it is. Of
        pods with the same ``shared_wait`` an event wakes a few, of those judged alike the first.
        """
        attempt = self._in_flight.get(queued.uid)
        if attempt is None or attempt.queued is not queued:
            place = self._place.get(queued.uid, ABSENT)
            if place is not ABSENT:
                log.warning("failed pod is queued already", extra={"pod": queued.key})
                return place
        newest = self._pending.get(queued.uid)
        if newest is None or (attempt is not None and attempt.is_deleted):
            if attempt is not None:
                self._move(queued, ABSENT, causes.POD_DELETED)
            return ABSENT
        is_same = newest.template is queued.pod.template
        queued.pod = newest
        is_judged_alike &= is_same and not self._scouts.is_nominated(queued)
        queued.unschedulable_plugins = unschedulable_plugins
        queued.pending_plugins = pending_plugins
        queued.shared_wait, queued.is_judged_alike = shared_wait, is_judged_alike
        if queued.rejector_plugins:
            queued.unschedulable_count += 1
            queued.consecutive_errors_count = 0
        else:
            queued.consecutive_errors_count += 1
        queued.timestamp = self._now()
        queued.backoff_expiration = None
        strategy, detail = self._after_failure(queued, attempt)
        return self._requeue(queued, strategy, causes.ATTEMPT_FAILURE, detail)

    # -- wake-ups ---------------------------------------------------------------------------------

    def move_all_to_active_or_backoff_queue(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        pre_check: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Requeue waiting pods for which an event is relevant; pods in flight on their return.

        ``pre_check`` excludes pods that the event cannot concern; it applies only to pods that wait
        now. With very many waiting pods, ``pop`` continues with the rest (``wake_ups``).
        """
        if not event.is_wildcard and not self._hints.interest(event):
            return
        if self._wake_ups.add(event, old, new, pre_check):
            self.continue_wake_ups()
        self._in_flight.record(SeenEvent(event, old, new))

    def continue_wake_ups(self) -> None:
        """Evaluate pending wake-ups for the next slice of pods."""
        for queued, strategy, label in self._wake_ups.next_slice():
            self._requeue(queued, strategy, label)
        if self._wake_ups.unfinished or self._scouts.gone:
            self._ready.set()

    def activate(self, pods: Iterable[Any]) -> None:
        """Retry pods now, whatever they wait for; a pod in flight is retried on its return."""
        for pod in pods:
            if not isinstance(pod, PodInfo):
                # Plugins pass these: a wrong type must not stop the scheduler.
                log.error("cannot activate: not a pod", extra={"got": repr(pod)[:100]})
                continue
            place = self._place.get(pod.uid, ABSENT)
            if place is IN_FLIGHT:
                self._in_flight.record(SeenEvent(FORCE_ACTIVATE, None, None, only=pod.uid))
            elif place is BACKOFF:
                self._move(self._pods[pod.uid], ACTIVE, causes.FORCE_ACTIVATE)
            elif place is UNSCHEDULABLE or place is GATED:
                queued = self._pods[pod.uid]
                self._requeue(queued, IMMEDIATELY, causes.FORCE_ACTIVATE)

    def wake_sharing(self, wait: SharedWait) -> None:
        """Wake a few pods of a shared wait: another one of them had an attempt that it ended."""
        for group in self._unschedulable.groups():
            if group.shared_wait is wait and not (group.is_crowd and not wait.can_end()):
                for queued in group.to_wake(group.pods.values()):
                    self._requeue(queued, AFTER_BACKOFF, causes.ALIKE_DECIDED)

    def flush_backoff_completed(self) -> bool:
        """Move pods past their backoff to ACTIVE; call every BACKOFF_FLUSH_SECONDS.

        Like ``flush_unschedulable_leftover``, moves one slice; True if there may be more.

        kube-scheduler: flushBackoffQCompleted.
        """
        now = self._now()
        for _ in range(PODS_PER_SLICE):
            queued = self._backoff.first_completed(now)
            if queued is None:
                break
            # PreEnqueue ran when the pod entered BACKOFF.
            self._move(queued, ACTIVE, causes.BACKOFF_COMPLETE)
        else:
            return True
        if self._backoff.first_early(now) is not None:
            self._ready.set()
        return False

    def flush_unschedulable_leftover(self) -> bool:
        """Retry pods that waited too long for an event; call every UNSCHEDULABLE_FLUSH_SECONDS.

        kube-scheduler: flushUnschedulablePodsLeftover.
        """
        now = self._now()
        seconds = self._max_in_unschedulable_seconds
        containers = (self._unschedulable, self._gated)
        overdue = chain.from_iterable(one.overdue(now, seconds) for one in containers)
        flushed = list(islice(overdue, PODS_PER_SLICE))
        for queued in flushed:
            queued.flush_timestamp = now
            self._requeue(queued, AFTER_BACKOFF, causes.TIMEOUT)
        return len(flushed) == PODS_PER_SLICE

    def close(self) -> None:
        """End all blocked ``pop`` calls; attempts in flight are done."""
        self._is_closed = True
        self.resume()
        for attempt in self._in_flight.attempts():
            self._move(attempt.queued, ABSENT, causes.QUEUE_CLOSED)
        self._ready.set()

    # -- another configuration ----------------------------------------------------------------

    def reconfigure(
        self,
        *,
        pre_enqueue: Mapping[str, Sequence[tuple[str, PreEnqueue]]],
        hints: Mapping[str, Sequence[Registration]],
        pod_initial_backoff_seconds: float,
        pod_max_backoff_seconds: float,
    ) -> None:
        """Replace what depends on the plugins, except QueueSort; between two attempts.

        Every waiting pod is worth another attempt, and a pod in flight if it returns: the plugin
        that rejected it may be gone. Ready pods keep their place; PreEnqueue is repeated when they
        are popped.
        """
        ready = (ACTIVE, BACKOFF)
        uids = (uid for uid, place in self._place.items() if place in ready)
        self._pre_enqueue.replace(pre_enqueue, uids)
        self._hints.replace(hints)
        self._backoff.set_durations(pod_initial_backoff_seconds, pod_max_backoff_seconds)
        self.move_all_to_active_or_backoff_queue(CONFIG_RELOAD)

    def _is_gated_now(self, queued: QueuedPodInfo) -> bool:
        """Gate a ready pod that the PreEnqueue plugins of another configuration object to."""
        plugin = self._pre_enqueue.recheck(queued.pod)
        if plugin:
            self._gate(queued, plugin, self._place[queued.uid])
            self._move(queued, GATED, causes.CONFIG_RELOAD, f"by {plugin}")
        return bool(plugin)

    # -- transitions ------------------------------------------------------------------------------

    def _enter(self, pod: PodInfo, cause: str) -> None:
        queued = QueuedPodInfo(pod, self._now())
        if self._requeue(queued, IMMEDIATELY, cause) is ACTIVE:
            self.nominator.add(pod)

    def _requeue(
        self, queued: QueuedPodInfo, strategy: Requeue, cause: str, detail: str = ""
    ) -> Place:
        """Requeue by strategy; returns the new place (requeuePodWithQueueingStrategy)."""
        source = self._place.get(queued.uid, ABSENT)
        if strategy is SKIP:
            target = UNSCHEDULABLE
        elif gating_plugin := self._pre_enqueue.gating_plugin(queued.pod):
            self._gate(queued, gating_plugin, source)
            if source is GATED:
                return source
            target = GATED
            detail = f"{detail}; gated by {gating_plugin}" if detail else f"by {gating_plugin}"
        else:
            queued.gating_plugin = ""
            waits = strategy is AFTER_BACKOFF
            backs_off = waits and self._backoff.is_backing_off(queued, self._now())
            target = BACKOFF if backs_off else ACTIVE
        self._move(queued, target, cause, detail)
        return target

    def _after_failure(self, queued: QueuedPodInfo, attempt: Attempt | None) -> tuple[Requeue, str]:
        """Decide by the events since the pop (determineSchedulingHintForInFlightPod)."""
        rejectors = queued.rejector_plugins
        if not rejectors:
            return AFTER_BACKOFF, "error"
        detail = ", ".join(sorted(rejectors))
        if attempt is None:
            # The events since its pop were not recorded, so it must not wait for one.
            return AFTER_BACKOFF, detail
        is_wanted = self._hints.interests(queued)
        events = self._in_flight.events_since(attempt, is_wanted)
        wait = queued.shared_wait
        if events and wait is not None and not wait.can_end():
            events = [seen for seen in events if not is_of_nodes(seen.event)]
        strategy, woken_by = self._hints.most_urgent(queued, events)
        return strategy, f"{detail}; {woken_by} meanwhile" if woken_by else detail

    def _update_in_flight(self, attempt: Attempt, old: PodInfo | None, pod: PodInfo) -> None:
        """Record an update for the pod's return; the attempt continues with its own version."""
        if old is not None:
            for event in self._update_events(old.pod, pod.pod):
                self._in_flight.record(SeenEvent(event, old.pod, pod.pod, only=pod.uid))
        attempt.is_deleted = False

    def _update_waiting(self, queued: QueuedPodInfo, old: PodInfo, place: Place) -> None:
        new = queued.pod
        if new.template is not old.template or self._scouts.is_special_now(queued):
            queued.shared_wait, queued.is_judged_alike = None, False
            self._containers[place].remove(queued.uid)
            self._containers[place].add(queued)
        else:
            (self._gated if place is GATED else self._unschedulable).reindex(queued)
        for event in self._update_events(old.pod, new.pod):
            strategy = self._hints.is_pod_worth_requeuing(queued, event, old.pod, new.pod)
            is_due = strategy is not SKIP
            if is_due and self._requeue(queued, strategy, event.label) in (ACTIVE, BACKOFF):
                return

    def _update_events(self, old: Pod, new: Pod) -> list[ClusterEvent]:
        """Return the events of an update, without our own writes (isPodUpdated)."""
        return [] if self._is_own_update(old, new) else pod_update_events(old, new)

    def _gate(self, queued: QueuedPodInfo, plugin: str, source: Place) -> None:
        """Set the gating plugin; a gated pod that is gated again keeps its place."""
        if source is GATED:
            if queued.gating_plugin == plugin:
                self._gated.reindex(queued)
                return
            self._gated.remove(queued.uid)
        if source not in (ABSENT, IN_FLIGHT):
            self._rejections.remove(queued)
        queued.gating_plugin, queued.shared_wait, queued.is_judged_alike = plugin, None, False
        queued.unschedulable_plugins |= {plugin}
        if source not in (ABSENT, IN_FLIGHT):
            self._rejections.add(queued)
        if source is GATED:
            self._gated.add(queued)

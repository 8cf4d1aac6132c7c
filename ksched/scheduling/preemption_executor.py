"""The asynchronous half of preemption: evicts the victims.

The scheduling cycle only selects them. Here each gets the DisruptionTarget condition and is
deleted, with bounded concurrency; the last one is deleted after all others, so its removal means
that the space is free. A victim that is not bound yet but held by Permit or PreBind plugins is
requeued without a call to the API server.

A preemptor must not be tried again before its victims are seen terminating: it would find them
still running and select further victims on other nodes. ``is_preempting`` is true until the cache
shows every victim terminating or gone. A pod that is deleted without a grace period is seen first
the one and right after it the other; then the second counts, as the first leaves no room yet.

An eviction cannot be undone, and the preemptor may be deleted or bound by another client while
async plugins and extenders run. So the API server is asked before the first eviction: usually its
answer to the nomination says it, otherwise the preemptor is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from ksched.api.objects import Pod
from ksched.cache.cache import SchedulerCache
from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock, rfc3339
from ksched.errors import ApiError, Conflict, InvalidObject, NotFound
from ksched.framework.handle import EventRecorder
from ksched.framework.runtime.pre_binding import PreBindingPods
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.metrics import Metrics
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.pod_status import DesiredStatus, PodStatusUpdater
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"
IN_MEMORY = " (in kube-scheduler memory)."
SWEEP_AT_LEAST = 64


class VictimClient(Protocol):
    """The API calls of preemption; each raises ``ApiError``."""

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> object: ...

    async def delete_pod(self, namespace: str, name: str, uid: str = "") -> None: ...


class Preemptor(Struct, frozen=True):
    """For whom victims are evicted: one pod, or the members of a group that are placed together.

    kube-scheduler: ExecutorPreemptor.
    """

    pods: tuple[PodInfo, ...]
    node_names: tuple[str, ...]
    """Where they are nominated to."""
    group: str = ""
    """The name of the group; empty for a pod by itself."""

    @property
    def pod(self) -> PodInfo:
        return self.pods[0]

    @property
    def key(self) -> str:
        return self.group or self.pod.key

    @property
    def title(self) -> str:
        """As the events of its victims call it."""
        return f"podgroup {self.group}" if self.group else f"pod {self.pod.uid}"

    @property
    def noun(self) -> str:
        return "podgroup" if self.group else "pod"


class Preemption:
    """One preemptor's victims, and those of them still seen running."""

    def __init__(
        self,
        preemptor: Preemptor,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
        decided_at: float,
    ) -> None:
        self.preemptor = preemptor
        self.victims = victims
        self.profile_name = profile_name
        self.recorder = recorder
        self.decided_at = decided_at
        self.running = [victim.uid for victim in victims]
        """Those not seen going yet; the last of them may be gone meanwhile."""
        self.sent_back: set[str] = set()
        """Victims that were not bound yet: they may be placed again, which means nothing here."""
        self.is_finished = False


class Preemptors:
    """Whether preemptors are still pending.

    ``pending`` has the state from the watch, ``read_pod`` returns what the API server says.
    """

    def __init__(
        self, *, pending: PendingPods, read_pod: Callable[[PodInfo, float], Awaitable[Pod]]
    ) -> None:
        self._pending = pending
        self._read_pod = read_pod

    def is_known(self, uid: str) -> bool:
        """Whether a pod is pending according to the watch."""
        return self._pending.get(uid) is not None

    def are_pending(self, preemptor: Preemptor) -> bool:
        """Whether all its pods are pending according to the watch."""
        latest = [self._pending.get(pod.uid) for pod in preemptor.pods]
        return all(pod is not None and not pod.is_terminating for pod in latest)

    async def is_still_pending(self, preemptor: Preemptor, since: float) -> bool:
        """Whether the API server agreed ``since`` then; raises ``ApiError`` or ``InvalidObject``.

        Of a group it is asked about one member: a group is usually deleted whole.
        """
        if not self.are_pending(preemptor):
            return False
        pod = preemptor.pod
        try:
            now = await self._read_pod(pod, since)
        except NotFound:
            return False
        is_same = now.metadata.uid == pod.uid
        return is_same and not (now.spec.node_name or now.metadata.deletion_timestamp)


class Evictions(Protocol):
    """What the group cycle uses of ``PreemptionExecutor``."""

    def is_preempting(self, uid: str) -> bool: ...

    def start(
        self,
        preemptor: Preemptor,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None: ...


class PreemptionExecutor:
    """Executes preemptions with at most ``parallelism`` concurrent evictions.

    kube-scheduler: Executor.
    """

    def __init__(
        self,
        *,
        client: VictimClient,
        cache: SchedulerCache,
        nominator: Nominator,
        waiting: WaitingPods,
        pre_binding: PreBindingPods,
        status: PodStatusUpdater,
        clock: Clock,
        metrics: Metrics,
        activate: Callable[[Iterable[PodInfo]], None],
        preemptors: Preemptors,
        unexpected_errors: UnexpectedErrors,
        parallelism: int = 16,
    ) -> None:
        self._client = client
        self._cache = cache
        self._nominator = nominator
        self._waiting = waiting
        self._pre_binding = pre_binding
        self._status = status
        self._clock = clock
        self._metrics = metrics
        self._activate = activate
        self._preemptors = preemptors
        self._unexpected_errors = unexpected_errors
        self._slots = asyncio.Semaphore(parallelism)
        self._todo: deque[Preemption] = deque()
        self._wake = asyncio.Event()
        self._preemptions: dict[str, Preemption] = {}
        self._by_victim: dict[str, list[Preemption]] = {}
        """The preemptions that wait for a victim, by its UID."""
        self._held: set[str] = set()
        """Pods that PreEnqueue held back."""
        self._released: set[str] = set()
        """Those of them that need not wait any more, until PreEnqueue has seen it."""
        self._sweep_at = SWEEP_AT_LEAST
        cache.on_departure = self._departed

    # -- called by the scheduling cycle ---------------------------------------------------------

    def preempt(
        self,
        pod: PodInfo,
        node_name: str,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None:
        """Start to evict pods from a node for a pod; terminating ones are skipped.

        kube-scheduler: actuatePodPreemption, prepareCandidateAsync.
        """
        self.start(Preemptor((pod,), (node_name,)), victims, profile_name, recorder)

    def start(
        self,
        preemptor: Preemptor,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None:
        """The same for a pod or a group."""
        if not self._preemptors.are_pending(preemptor):
            return
        running = [victim for victim in victims if not victim.is_terminating]
        if not running:
            self._clear_lower_nominations(preemptor)
            return
        self._metrics.preemption_victims.of().observe(len(victims))
        if len(self._preemptions) >= self._sweep_at:
            self._sweep()
        now = self._clock.now()
        preemption = Preemption(preemptor, running, profile_name, recorder, now)
        for pod in preemptor.pods:
            self._preemptions[pod.uid] = preemption
        for victim in running:
            self._by_victim.setdefault(victim.uid, []).append(preemption)
        self._todo.append(preemption)
        self._wake.set()
        names = {"victims": [one.key for one in running], "nodes": [*{*preemptor.node_names}]}
        log.info("preempting pods", extra={preemptor.noun: preemptor.key, **names})

    def is_preempting(self, uid: str) -> bool:
        """Whether some of a pod's victims are still seen running.

        kube-scheduler: IsPodRunningPreemption, isRunningPreemption.
        """
        preemption = self._preemptions.get(uid)
        if preemption is None:
            return False
        self._look(preemption)
        if not preemption.running and preemption.is_finished:
            del self._preemptions[uid]
        return bool(preemption.running)

    def awaits_victims(self, uid: str) -> bool:
        """The same for PreEnqueue: a pod that has to wait is ``released`` later."""
        if self.is_preempting(uid):
            self._held.add(uid)
            self._released.discard(uid)
            return True
        self._held.discard(uid)
        self._released.discard(uid)
        return False

    def released(self) -> list[str]:
        """The pods that PreEnqueue held back and would let pass now."""
        gone = [uid for uid in self._released if not self._preemptors.is_known(uid)]
        self._held.difference_update(gone)
        self._released.difference_update(gone)
        return list(self._released)

    def finished(self) -> list[Preemption]:
        """Return the preemptions whose deletions have all been confirmed by the API server."""
        return [one for one in self._all() if one.is_finished]

    def give_up(self, preemptions: Iterable[Preemption]) -> None:
        """Stop waiting for victims that still run though their deletion was confirmed."""
        for preemption in preemptions:
            self._look(preemption)
            if preemption.running and preemption in self._all():
                self._forget(preemption)
                self._activate(preemption.preemptor.pods)

    def __len__(self) -> int:
        """The number of preemptions with victims left to delete."""
        return sum(not preemption.is_finished for preemption in self._all())

    def _all(self) -> set[Preemption]:
        return set(self._preemptions.values())

    def _departed(self, uid: str) -> None:
        """A pod is terminating or gone; the preemptions that wait for it are looked at."""
        for preemption in list(self._by_victim.get(uid, ())):
            self._look(preemption)

    def _look(self, preemption: Preemption) -> None:
        """Forget victims from the end of the list up to one that still runs.

        Every member of a group asks after every deletion: all victims are not looked at each time.
        """
        running = preemption.running
        if not running:
            return
        while running:
            victim = self._cache.get_pod(running[-1])
            is_gone = victim is None or (victim.is_terminating and not victim.is_vanishing)
            if not is_gone and running[-1] not in preemption.sent_back:
                return
            self._stop_waiting(preemption, running.pop())
        self._release(preemption)

    def _stop_waiting(self, preemption: Preemption, victim: str) -> None:
        waiting = self._by_victim.get(victim, [])
        if preemption in waiting:
            waiting.remove(preemption)
            if not waiting:
                del self._by_victim[victim]

    def _release(self, preemption: Preemption) -> None:
        """Nothing of a preemption is waited for: its pods may be tried."""
        for pod in preemption.preemptor.pods:
            is_last = self._preemptions.get(pod.uid) in (preemption, None)
            if is_last and pod.uid in self._held:
                self._released.add(pod.uid)

    def _sweep(self) -> None:
        """Drop finished preemptions whose victims are all gone or terminating."""
        for uid in list(self._preemptions):
            self.is_preempting(uid)
        self._sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._preemptions))

    # -- the asynchronous half ------------------------------------------------------------------

    async def run(self) -> None:
        """Execute preemptions until cancelled; unfinished ones are dropped then."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    while self._todo:
                        tasks.create_task(self._execute(self._todo.popleft()), name="preempt")
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._todo.clear()
            for preemption in self._all():
                self._forget(preemption)

    async def _execute(self, preemption: Preemption) -> None:
        with self._unexpected_errors.contain("preemption", preemption.preemptor.pod) as problem:
            await self._carry_out(preemption)
        if problem.text:
            # The pod is woken by events like any other: an immediate retry would fail again.
            preemption.is_finished = True
            self._forget(preemption)

    async def _carry_out(self, preemption: Preemption) -> None:
        """kube-scheduler: prepareCandidate."""
        began = self._clock.now()
        preemptor = preemption.preemptor
        try:
            # Without a slot: the answer comes while the evictions for others take all of them.
            since = preemption.decided_at
            is_pending = await self._preemptors.is_still_pending(preemptor, since)
        except (ApiError, InvalidObject) as problem:
            log.error("preemptor not read", extra={"pod": preemptor.pod.key, "err": str(problem)})
            self._finish(preemption, False, began)
            return
        if not is_pending:
            log.info("preemptor is no longer pending", extra={"pod": preemptor.key})
            self._forget(preemption)
            if preemptor.group:
                self._activate(preemptor.pods)
            return
        self._clear_lower_nominations(preemptor)
        *others, last = preemption.victims
        async with asyncio.TaskGroup() as tasks:
            evictions = [tasks.create_task(self._evict(preemption, one)) for one in others]
        is_success = all(eviction.result() for eviction in evictions)
        # If another victim could not be deleted, the last is spared: the retry may choose anew.
        is_success = is_success and await self._evict(preemption, last)
        self._finish(preemption, is_success, began)

    def _finish(self, preemption: Preemption, is_success: bool, began: float) -> None:
        preemption.is_finished = True
        if not is_success:
            self._forget(preemption)
            # Otherwise the deletion events of its victims wake it.
            self._activate(preemption.preemptor.pods)
        result = "success" if is_success else "error"
        seconds = self._clock.now() - began
        self._metrics.preemption_goroutines_duration.of(result).observe(seconds)
        self._metrics.preemption_goroutines_execution.increment(result)

    def _forget(self, preemption: Preemption) -> None:
        """Drop a preemption that will not take place."""
        for pod in preemption.preemptor.pods:
            if self._preemptions.get(pod.uid) is preemption:
                del self._preemptions[pod.uid]
        for victim in preemption.running:
            self._stop_waiting(preemption, victim)
        self._release(preemption)

    def _clear_lower_nominations(self, preemptor: Preemptor) -> None:
        """Clear nominations of lower priority to its nodes; those pods have to search again.

        kube-scheduler: getLowerPriorityNominatedPods, clearNominatedNodeName.
        """
        priority = min(pod.priority for pod in preemptor.pods)
        own = {pod.uid for pod in preemptor.pods}
        for node_name in dict.fromkeys(preemptor.node_names):
            for other in self._nominator.nominated_pods_for_node(node_name):
                if other.priority < priority and other.uid not in own:
                    self._nominator.delete(other.uid)
                    self._status.set(other, DesiredStatus(nominated_node_name=""))

    async def _evict(self, preemption: Preemption, victim: PodInfo) -> bool:
        """Evict one victim; False on failure."""
        preemptor = preemption.preemptor
        if self._cache.get_pod(victim.uid) is None:
            # Gone, or sent back with the rest of its group.
            preemption.sent_back.add(victim.uid)
            self._look(preemption)
            return True
        is_in_memory = self._send_back(victim)
        if is_in_memory:
            # It may be placed again, so its presence in the cache means nothing.
            preemption.sent_back.add(victim.uid)
            self._look(preemption)
        else:
            try:
                async with self._slots:
                    await self._delete(preemption, victim)
            except NotFound:
                return True
            except ApiError as problem:
                log.error(
                    "victim not deleted",
                    extra={"pod": victim.key, "for": preemptor.key, "err": str(problem)},
                )
                return False
        note = f"Preempted by {preemptor.title} on node {victim.node_name}"
        note += IN_MEMORY if is_in_memory else ""
        preemption.recorder.event(
            victim, "Normal", "Preempted", "Preempting", note, related=preemptor.pod
        )
        return True

    def _send_back(self, victim: PodInfo) -> bool:
        """Cancel a victim that is not bound yet; its binding cycle releases the node."""
        waiting = self._waiting.get(victim.uid)
        if waiting is not None and (waiting.preempt("preempted") or waiting.is_rejected):
            return True
        return self._pre_binding.cancel(victim.uid, "preempted by DefaultPreemption")

    async def _delete(self, preemption: Preemption, victim: PodInfo) -> None:
        noun = preemption.preemptor.noun
        message = f"{preemption.profile_name}: preempting to accommodate a higher priority {noun}"
        body = disruption_patch(victim, message, self._clock.wall())
        if body is not None:
            await self._client.patch_pod_status(victim.namespace, victim.name, body)
        try:
            await self._client.delete_pod(victim.namespace, victim.name, victim.uid)
        except Conflict as problem:
            # The name belongs to another pod now.
            raise NotFound(problem.code, problem.reason, problem.message) from problem


def disruption_patch(victim: PodInfo, message: str, wall_seconds: float) -> bytes | None:
    """Build the patch of the DisruptionTarget condition; ``None`` if the pod has it already."""
    conditions = victim.pod.status.conditions
    current = next((one for one in conditions if one.type == DISRUPTION_TARGET), None)
    said = (
        (current.status, current.reason, current.message) if current is not None else ("", "", "")
    )
    if said == ("True", PREEMPTION_BY_SCHEDULER, message):
        return None
    condition: dict[str, object] = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": message,
    }
    if said[0] != "True":
        condition["lastTransitionTime"] = rfc3339(wall_seconds)
    if victim.pod.metadata.generation:
        condition["observedGeneration"] = victim.pod.metadata.generation
    return msgspec.json.encode({"status": {"conditions": [condition]}})

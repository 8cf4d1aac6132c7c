"""Places all pending pods of a scenario, in queue order, until nothing changes any more.

Every decision is the scheduling cycle's. Rejected pods are tried again when the others are done,
like a pod that returns from its backoff, if anything has changed since. Victims of preemption are
gone at once, and their controllers make new pods at once. If these take the room again that was
made, a scheduler evicts them again, for ever; here the preemptor is left pending after a few times.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Any, Final

from ksched.cache.pod_info import PodInfo
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.queue_sort import sort_key
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.what_if.draining import MIRROR
from ksched.what_if.prediction import Cause, Departure, Eviction
from ksched.what_if.scenario import Scenario
from ksched.what_if.subjects import Subject

MAX_ROUNDS: Final = 1000
"""Each round but the last places or evicts a pod; usually there are two or three."""
MAX_PREEMPTIONS: Final = 5
"""Per pod; usually one is enough."""
IN_VAIN: Final = "evicts pods again and again, and their successors take the room again"


class Settling:
    """One run over the pods of a scenario; ``evictions`` are in the order they were decided."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._cluster = scenario, scenario.cluster
        first = next(iter(self._cluster.profiles.values()))
        self._sort_key = sort_key(first.framework.queue_sort)
        self._heap: list[tuple[Any, int, QueuedPodInfo]] = []
        self._arrivals = 0
        self._subjects: dict[str, Subject] = {}
        self._rejected: dict[str, tuple[QueuedPodInfo, int]] = {}
        """Rejected pods, with the number of changes when they were tried."""
        self._changes = 0
        self._preemptions: Counter[str] = Counter()
        self.evictions: list[Eviction] = []

    async def run(self) -> None:
        for subject in self._scenario.subjects:
            self._enqueue(subject)
        for _ in range(MAX_ROUNDS):
            while self._heap:
                await self._attempt(heappop(self._heap)[-1])
            retries = [
                queued
                for queued, tried in self._rejected.values()
                if tried < self._changes and self._preemptions[queued.uid] < MAX_PREEMPTIONS
            ]
            if not retries:
                return
            for queued in retries:
                self._push(queued)
        self._scenario.notes.append(f"stopped after {MAX_ROUNDS} rounds")

    def _enqueue(self, subject: Subject) -> None:
        pod = subject.pod
        self._subjects[pod.uid] = subject
        subject.message = self._undecidable(subject)
        subject.is_undecided = bool(subject.message)
        if subject.is_undecided:
            return
        profile = self._cluster.profiles[pod.template.spec.scheduler_name]
        gates = self._cluster.gates(profile, pod)
        if gates:
            subject.message = f"gated by {'; '.join(gates)}"
            return
        self._push(QueuedPodInfo(pod, float(self._arrivals)))

    def _undecidable(self, subject: Subject) -> str:
        spec = subject.pod.template.spec
        if spec.scheduler_name not in self._cluster.profiles:
            return f"schedulerName is {spec.scheduler_name}: --config has another scheduler's"
        if spec.resource_claims and subject.cause != Cause.PENDING:
            return "its resource claims are made and released by a controller"
        return ""

    def _push(self, queued: QueuedPodInfo) -> None:
        self._arrivals += 1
        heappush(self._heap, (self._sort_key(queued), self._arrivals, queued))

    async def _attempt(self, queued: QueuedPodInfo) -> None:
        subject = self._subjects[queued.uid]
        outcome = await self._cluster.cycle.run(queued)
        if isinstance(outcome, Placed):
            self._rejected.pop(queued.uid, None)
            self._changes += 1
            subject.after = outcome.node_name
            self._cluster.pending.remove(queued.uid)
            self._cluster.cache.add_pod(outcome.pod)
            return
        subject.message = outcome.message
        self._rejected[queued.uid] = queued, self._changes
        self._preempt(outcome)

    # -- preemption -----------------------------------------------------------------------------

    def _preempt(self, rejected: Rejected) -> None:
        pod, node = rejected.queued.pod, rejected.nominated_node_name
        if node is not None:
            self._cluster.nominator.add(pod, node)
        victims = self._cluster.victims.by_preemptor.pop(pod.uid, None)
        if victims is None or not node:
            return
        # kube-scheduler: getLowerPriorityNominatedPods, clearNominatedNodeName.
        for other in self._cluster.nominator.nominated_pods_for_node(node):
            if other.priority < pod.priority:
                self._cluster.nominator.delete(other.uid)
        for victim in victims:
            self._evict(victim, pod)
        self._preemptions[pod.uid] += 1
        if self._preemptions[pod.uid] == MAX_PREEMPTIONS:
            self._scenario.notes.append(f"pod {pod.key} {IN_VAIN}")

    def _evict(self, victim: PodInfo, preemptor: PodInfo) -> None:
        scenario = self._scenario
        # Whoever waits for its room is tried again, the preemptor above all.
        self._changes += 1
        scenario.remove(victim)
        if victim.is_terminating:
            return
        self.evictions.append(Eviction(victim.key, victim.node_name, preemptor.key))
        known = self._subjects.pop(victim.uid, None)
        if MIRROR in victim.pod.metadata.annotations:
            reason = f"mirror pod, evicted for {preemptor.key}"
            scenario.departures.append(Departure(victim.key, victim.node_name, reason))
            return
        subject = scenario.replace(victim, Cause.PREEMPTED)
        if subject is None:
            return
        if known is not None:
            # It was placed a moment ago: its story goes on.
            scenario.subjects.remove(known)
            subject.cause, subject.before = known.cause, known.before
            subject.replaces = known.replaces
        self._enqueue(subject)

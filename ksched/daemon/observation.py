"""Metrics and log lines about a scheduler: transitions and decisions as they happen, sizes on
collection.

Does not belong here: the metrics' names and buckets (``metrics``), and anything that decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ksched.clock import Clock, stopwatch
from ksched.election import Elector
from ksched.groups.group import Group
from ksched.groups.states import BROKEN, SHORT, count_states, state_of
from ksched.metrics import Metrics
from ksched.queue.places import ABSENT, ACTIVE, BACKOFF, IN_FLIGHT, Place
from ksched.scheduling.decisions import Decision, Result
from ksched.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.metrics_core import Metric

# Not below ``ksched.daemon``, of which information is logged at -v 0: this is about decisions.
log = logging.getLogger("ksched.observation")

LAG_PROBE_SECONDS: Final = 0.25
_ATTEMPTS_SHOWN: Final = 15
_POD_POPPED: Final = "PodPopped"
# An enumeration's own attributes cost as much as counting does.
_SCHEDULED: Final = Result.SCHEDULED
_LABELS: Final = {result: result.value for result in Result}


class Observation:
    """The metrics of one scheduler.

    Pass it to the scheduler as ``observer``, then ``attach`` it: the queue is built with its
    observer, before the rest of the scheduler exists. Another scheduler may follow; counts are
    preserved.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._scheduler: Scheduler | None = None
        # Looked up once: these are counted for every pod.
        self._incoming = metrics.queue_incoming_pods.increment
        self._algorithm = metrics.scheduling_algorithm_duration.of().observe
        self._attempts = metrics.pod_scheduling_attempts.of().observe
        self._attempts_total = metrics.schedule_attempts.increment
        self._attempt_duration = metrics.scheduling_attempt_duration.of

    def attach(self, scheduler: Scheduler) -> None:
        scheduler.decisions.observe(self.decided)
        if self._scheduler is None:
            self.metrics.add_gauges(lambda: gauges(self._scheduler) if self._scheduler else ())
        self._scheduler = scheduler

    def attach_election(self, elector: Elector, name: str) -> None:
        """Add the leader gauge; ``name`` is the lock's."""

        def status() -> Iterator[Metric]:
            yield gauge(
                "leader_election_master_status",
                "Whether this replica leads.",
                ("name",),
                {(name,): int(elector.is_leading)},
            )

        self.metrics.add_gauges(status)

    def moved(self, cause: str, source: Place, target: Place) -> None:
        """Count a pod added to a queue; gated ones as unschedulable, as in kube-scheduler."""
        if target is IN_FLIGHT or target is ABSENT:
            return
        if target is ACTIVE:
            self._incoming("active", cause)
        elif target is BACKOFF:
            self._incoming("backoff", cause)
        else:
            self._incoming("unschedulable", cause)

    def decided(self, decision: Decision) -> None:
        """kube-scheduler: getAttemptsLabel."""
        result, profile = decision.result, decision.profile
        label = _LABELS[result]
        self._attempts_total(label, profile)
        self._attempt_duration(label, profile).observe(decision.duration_seconds)
        self._algorithm(decision.algorithm_seconds)
        if result is _SCHEDULED:
            attempts = decision.attempts
            shown = str(attempts) if attempts < _ATTEMPTS_SHOWN else f"{_ATTEMPTS_SHOWN}+"
            self._attempts(attempts)
            self.metrics.pod_scheduling_sli_duration.of(shown).observe(decision.waited_seconds)
            if log.isEnabledFor(logging.INFO):
                _tell_bound(decision)

    async def probe_event_loop(self, clock: Clock) -> None:
        """Measure, until cancelled, how late the event loop wakes a task."""
        lag = self.metrics.event_loop_lag.of()
        while True:
            began = stopwatch()
            await clock.sleep(LAG_PROBE_SECONDS)
            lag.observe(max(stopwatch() - began - LAG_PROBE_SECONDS, 0.0))


def _tell_bound(decision: Decision) -> None:
    """Log a bound pod; a failed attempt was logged with its reasons already."""
    log.info(
        "pod bound to node",
        extra={
            "pod": decision.pod,
            "node": decision.node_name,
            "evaluated_nodes": decision.evaluated_nodes,
            "feasible_nodes": decision.feasible_nodes,
            "attempts": decision.attempts,
        },
    )


def gauges(scheduler: Scheduler) -> Iterator[Metric]:
    """Return the gauges of current sizes."""
    yield gauge(
        "scheduler_event_loop_tasks",
        "Tasks that run or wait on the event loop.",
        (),
        {(): len(asyncio.all_tasks())},
    )
    yield from _pending_pods(scheduler)
    yield from _held_pods(scheduler)
    if scheduler.groups.is_on:
        yield from _groups(scheduler)
    cache = scheduler.cache.statistics()
    yield gauge(
        "scheduler_nodes_set_apart",
        "Nodes excluded from scheduling because of an error of the scheduler; see the log.",
        (),
        {(): cache.nodes_set_apart},
    )
    yield gauge(
        "scheduler_cache_size",
        "Objects in the cache.",
        ("type",),
        {
            ("nodes",): cache.nodes,
            ("pods",): cache.pods,
            ("assumed_pods",): cache.assumed_pods,
        },
    )
    yield gauge(
        "scheduler_watch_age_seconds",
        "Seconds since the last event, bookmark or list of a resource from the API server.",
        ("resource",),
        {(resource,): age for resource, age in scheduler.watches.health.ages().items()},
    )


def _pending_pods(scheduler: Scheduler) -> Iterator[Metric]:
    queue = scheduler.queue.statistics()
    yield gauge(
        "scheduler_pending_pods",
        "Pending pods by queue.",
        ("queue",),
        {
            ("active",): queue.active,
            ("backoff",): queue.backoff,
            ("unschedulable",): queue.unschedulable,
            ("gated",): queue.gated,
        },
    )
    yield gauge(
        "scheduler_unschedulable_pods",
        "Waiting pods by the plugins that rejected them last; a pod counts for each.",
        ("plugin", "profile"),
        scheduler.queue.rejections(),
    )
    events = scheduler.queue.in_flight_events()
    yield gauge(
        "scheduler_inflight_events",
        "Events recorded for pods in flight, and those pods (PodPopped).",
        ("event",),
        {**{(event,): count for event, count in events.items()}, (_POD_POPPED,): queue.in_flight},
    )


def _held_pods(scheduler: Scheduler) -> Iterator[Metric]:
    yield gauge(
        "scheduler_plugin_permit_calls",
        "Async Permit calls running, and pods queued for a slot of their plugin.",
        ("plugin", "state"),
        {
            (plugin, state): count
            for plugin, counts in scheduler.permit_calls.sizes().items()
            for state, count in zip(("running", "queued"), counts, strict=True)
        },
    )
    yield gauge(
        "scheduler_permit_waiting_pods",
        "Pods held at Permit, by plugin: those that returned Wait, and async ones that are "
        "running or queued; a pod counts for each.",
        ("plugin",),
        {(plugin,): pods for plugin, pods in scheduler.waiting.held_by.items()},
    )
    yield gauge(
        "scheduler_quarantined_pods",
        "Pending pods in quarantine, because a scheduler hung on them.",
        (),
        {(): len(scheduler.pods.quarantine_ends)},
    )


def _groups(scheduler: Scheduler) -> Iterator[Metric]:
    states = count_states(scheduler.groups)
    yield gauge(
        "ksched_groups",
        "Pod groups by state.",
        ("state",),
        {(state,): count for state, count in states.items()},
    )
    yield gauge(
        "ksched_group_short_slots",
        "Places that were missing when the groups that wait were tried last, in all.",
        (),
        {(): sum(one.short_slots for one in scheduler.groups if _is_short(one))},
    )
    yield gauge(
        "ksched_group_broken",
        "Pod groups that had their minimum and lost members that did not succeed.",
        (),
        {(): states[BROKEN]},
    )


def _is_short(group: Group) -> bool:
    """Whether members wait that did not fit."""
    state = state_of(group)
    return state == SHORT or (state == BROKEN and group.need > 0)


def gauge(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]
) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family

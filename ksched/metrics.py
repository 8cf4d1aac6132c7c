"""Metrics under kube-scheduler's names, labels and buckets.

Counting happens on the hot path and is made of plain dictionaries and lists; prometheus_client
only writes them out when somebody asks. ``Metrics`` is a collector, so that a program that embeds
a scheduler can register it with its own registry.

Does not belong here: when something is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """``count`` upper bounds from ``start``, each ``factor`` times the one before."""
    bounds = [start]
    while len(bounds) < count:
        # Go multiplies step by step too, so the labels come out with the same digits.
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class Counter:
    """A number by label values that only grows."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self._text, self.labels = name, text, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def increment(self, *labels: str, by: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + by

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def family(self) -> Metric:
        family = CounterMetricFamily(self.name, self._text, labels=self.labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Distribution:
    """Observations of one series, counted by bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def sum(self) -> float:
        return self._sum

    def buckets(self) -> list[tuple[str, int]]:
        """Cumulative counts by upper bound."""
        bounds = [*map(_bound, self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


class Histogram:
    """Distributions by label values."""

    def __init__(
        self, name: str, text: str, bounds: tuple[float, ...], labels: Sequence[str] = ()
    ) -> None:
        self.name, self._text, self.labels = name, text, tuple(labels)
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Distribution] = {}
        if not labels:
            self.of()

    def of(self, *labels: str) -> Distribution:
        """The series with these label values; keep it where looking it up would cost."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Distribution(self._bounds)
        return series

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self._text, labels=self.labels)
        for labels, series in self._series.items():
            family.add_metric(labels, series.buckets(), series.sum)
        return family


def _bound(value: float) -> str:
    """An upper bound as Go prints it: ``le`` is matched as text by whoever reads it."""
    return repr(value).removesuffix(".0")


_ATTEMPT = exponential_buckets(0.001, 2, 15)
_ASYNC_PLUGIN = exponential_buckets(0.001, 2, 20)
_REST_CLIENT = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Metrics(Collector):
    """All metrics of one scheduler; gauges are asked for when they are collected.

    kube-scheduler: InitMetrics.
    """

    def __init__(self) -> None:
        self._gauges: list[Callable[[], Iterable[Metric]]] = []
        self.schedule_attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Attempts by how they ended: bound, rejected by plugins, or failed for a reason that "
            "is not the pod's.",
            ("result", "profile"),
        )
        self.scheduling_attempt_duration = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Length of an attempt, binding included if it got that far.",
            _ATTEMPT,
            ("result", "profile"),
        )
        self.scheduling_algorithm_duration = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to choose a node, or to find that there is none.",
            _ATTEMPT,
        )
        self.pod_scheduling_sli_duration = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from when a pod could first be tried until it was bound, by tries needed.",
            exponential_buckets(0.01, 2, 20),
            ("attempts",),
        )
        self.pod_scheduling_attempts = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Tries that pods needed until they were bound.",
            exponential_buckets(1, 2, 5),
        )
        self.framework_extension_point_duration = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time that all plugins of one extension point took for one pod.",
            exponential_buckets(0.0001, 2, 12),
            ("extension_point", "status", "profile"),
        )
        self.queue_incoming_pods = Counter(
            "scheduler_queue_incoming_pods_total",
            "Pods that came into a queue, by the event that sent them there.",
            ("queue", "event"),
        )
        self.permit_wait_duration = Histogram(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods were held by Permit plugins, by how that ended.",
            _ATTEMPT,
            ("result",),
        )
        self._define_async_plugins()
        self._define_preemption()
        self.volume_scheduling_stage_error = Counter(
            "scheduler_volume_scheduling_stage_error_total",
            "Times that volumes could not be judged, promised or bound.",
            ("operation",),
        )
        self._define_process()
        self._define_rest_client()

        self.leader_election_slowpath = Counter(
            "leader_election_slowpath_total",
            "Renewals of the lease that needed more than one request.",
            ("name",),
        )

    def _define_async_plugins(self) -> None:
        self.plugin_cycle_blocked_duration = Histogram(
            "scheduler_plugin_cycle_blocked_duration_seconds",
            "Time that the scheduling cycle waited for an async plugin, during which no other pod "
            "was tried.",
            _ASYNC_PLUGIN,
            ("plugin", "extension_point", "profile"),
        )
        self.plugin_permit_duration = Histogram(
            "scheduler_plugin_permit_duration_seconds",
            "Time that an async Permit call took, which holds only its own pod; without the wait "
            "for a slot.",
            _ASYNC_PLUGIN,
            ("plugin", "status", "profile"),
        )

    def _define_process(self) -> None:
        self.event_loop_lag = Histogram(
            "scheduler_event_loop_lag_seconds",
            "How late a sleeping task was woken: others kept the event loop busy that long.",
            exponential_buckets(0.0005, 2, 14),
        )
        self.unexpected_errors = Counter(
            "scheduler_unexpected_errors_total",
            "Faults of the scheduler itself that were kept to one pod, node or other object, by "
            "what it was doing.",
            ("activity",),
        )

    def _define_preemption(self) -> None:
        self.preemption_victims = Histogram(
            "scheduler_preemption_victims",
            "Pods chosen to make room, by preemption.",
            exponential_buckets(1, 2, 7),
        )
        self.preemption_attempts = Counter(
            "scheduler_preemption_attempts_total",
            "Times that room was looked for by preemption.",
        )
        self.preemption_goroutines_duration = Histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to get the victims of a preemption deleted.",
            exponential_buckets(0.01, 2, 20),
            ("result",),
        )
        self.preemption_goroutines_execution = Counter(
            "scheduler_preemption_goroutines_execution_total",
            "Preemptions whose victims were deleted, or were not because something failed.",
            ("result",),
        )

    def _define_rest_client(self) -> None:
        self.rest_client_requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server by answer; watches count when they are opened.",
            ("code", "method", "host"),
        )
        self.rest_client_request_duration = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server had answered completely.",
            _REST_CLIENT,
            ("verb", "host"),
        )

    def add_gauges(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Ask ``collect`` for more metrics whenever somebody reads them."""
        self._gauges.append(collect)

    def collect(self) -> Iterator[Metric]:
        for metric in vars(self).values():
            if isinstance(metric, Counter | Histogram):
                yield metric.family()
        for gauges in self._gauges:
            yield from gauges()

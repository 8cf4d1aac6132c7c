"""Metrics under kube-scheduler's names, labels and buckets.

Counting happens on the hot path and uses plain dictionaries and lists; prometheus_client only
formats them on a scrape, and is not loaded before the first. ``Metrics`` is a collector, so that a
program that embeds a scheduler can register it with its own registry.

Does not belong here: when something is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
else:
    Collector = object


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return ``count`` upper bounds from ``start``, each ``factor`` times the previous one."""
    bounds = [start]
    while len(bounds) < count:
        # Go multiplies step by step too, so the labels have the same digits.
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class Counter:
    """A monotonic counter by label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self._text, self.labels = name, text, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def increment(self, *labels: str, by: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + by

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def values(self) -> Mapping[tuple[str, ...], float]:
        return self._values

    def family(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self._text, labels=self.labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Distribution:
    """Observations of one series, counted by bucket.

    ``zeros`` are added by who observes nothing but zero most of the time: a call costs more.
    """

    __slots__ = ("_bounds", "_counts", "_sum", "zeros")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self.zeros = 0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts) + self.zeros

    @property
    def sum(self) -> float:
        return self._sum

    def buckets(self) -> list[tuple[str, int]]:
        """Return cumulative counts by upper bound."""
        bounds = [*map(_bound, self._bounds), "+Inf"]
        first, *others = self._counts
        return list(zip(bounds, accumulate((first + self.zeros, *others)), strict=True))


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
        """Return the series with these label values; store it where the look-up would cost."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Distribution(self._bounds)
        return series

    def series(self) -> Mapping[tuple[str, ...], Distribution]:
        return self._series

    def family(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self._text, labels=self.labels)
        for labels, series in self._series.items():
            family.add_metric(labels, series.buckets(), series.sum)
        return family


def _bound(value: float) -> str:
    """Format an upper bound as Go does: ``le`` is matched as text by queries."""
    return repr(value).removesuffix(".0")


_ATTEMPT = exponential_buckets(0.001, 2, 15)
_ASYNC_PLUGIN = exponential_buckets(0.001, 2, 20)
_REST_CLIENT = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# Whole numbers, with which lengths are compared at half the cost.
_REST_CLIENT_SIZE = (64, 256, 512, *(1024 * 4**n for n in range(8)))
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_CERTIFICATE_AGE = (
    *(10 * _MINUTE, 30 * _MINUTE, _HOUR, 4 * _HOUR),
    *(days * _DAY for days in (1, 7, 30, 90, 180, 360, 1440)),
)


class Metrics(Collector):
    """All metrics of one scheduler; gauges are computed on collection.

    kube-scheduler: InitMetrics.
    """

    def __init__(self) -> None:
        self._gauges: list[Callable[[], Iterable[Metric]]] = []
        self.schedule_attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Attempts by result: bound, rejected by plugins, or failed for a reason that is not "
            "the pod's.",
            ("result", "profile"),
        )
        self.scheduling_attempt_duration = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of an attempt, including binding if it got that far.",
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
            "Time from a pod's first entry into the active queue until it was bound, by attempts.",
            exponential_buckets(0.01, 2, 20),
            ("attempts",),
        )
        self.pod_scheduling_attempts = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts that pods needed until they were bound.",
            exponential_buckets(1, 2, 5),
        )
        self.framework_extension_point_duration = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins of one extension point for one pod.",
            exponential_buckets(0.0001, 2, 12),
            ("extension_point", "status", "profile"),
        )
        self.queue_incoming_pods = Counter(
            "scheduler_queue_incoming_pods_total",
            "Pods added to a queue, by event.",
            ("queue", "event"),
        )
        self.permit_wait_duration = Histogram(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods were held by Permit plugins, by result.",
            _ATTEMPT,
            ("result",),
        )
        self._define_plugins()
        self._define_async_plugins()
        self._define_preemption()
        self._define_groups()
        self.volume_scheduling_stage_error = Counter(
            "scheduler_volume_scheduling_stage_error_total",
            "Failures of checking, assuming or binding volumes.",
            ("operation",),
        )
        self._define_devices()
        self._define_process()
        self._define_journal()
        self._define_configuration()
        self._define_rest_client()
        self._define_exec_plugin()

        self.leader_election_slowpath = Counter(
            "leader_election_slowpath_total",
            "Renewals of the lease that needed more than one request.",
            ("name",),
        )

    def _define_plugins(self) -> None:
        bounds = exponential_buckets(0.00001, 1.5, 20)
        self.plugin_execution_duration = Histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of a plugin's call at an extension point, for one node or for all at once; "
            "one cycle in 100 is measured.",
            bounds,
            ("plugin", "extension_point", "status"),
        )
        self.queueing_hint_execution_duration = Histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of a queueing hint; one call in 100 is measured.",
            bounds,
            ("plugin", "event", "hint"),
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
            "Duration of an async Permit call, which holds only its own pod; without the wait for "
            "a slot.",
            _ASYNC_PLUGIN,
            ("plugin", "status", "profile"),
        )

    def _define_devices(self) -> None:
        labels = ("profile", "driver", "status")
        self.resourceclaim_creates = Counter(
            "scheduler_resourceclaim_creates_total",
            "Claims created for extended resources.",
            ("status",),
        )
        self.dra_bindingconditions_allocations = Counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Allocated devices with binding conditions that were waited for.",
            labels,
        )
        self.dra_bindingconditions_wait_duration = Histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that pods waited for the binding conditions of devices.",
            exponential_buckets(0.1, 2, 14),
            labels,
        )

    def _define_process(self) -> None:
        self.event_loop_lag = Histogram(
            "scheduler_event_loop_lag_seconds",
            "Delay of a sleeping task's wake-up: other tasks occupied the event loop that long.",
            exponential_buckets(0.0005, 2, 14),
        )
        self.unexpected_errors = Counter(
            "scheduler_unexpected_errors_total",
            "Errors of the scheduler itself that were contained to one pod, node or other object, "
            "by activity.",
            ("activity",),
        )

    def _define_journal(self) -> None:
        self.journal_records = Counter(
            "ksched_journal_records_total", "Records of the journal that were encoded."
        )
        self.journal_dropped_records = Counter(
            "ksched_journal_dropped_records_total",
            "Records of the journal that were lost because the disk was slow or full.",
        )
        self.journal_written_bytes = Counter(
            "ksched_journal_written_bytes_total", "Bytes written to the journal, compressed."
        )

    def _define_configuration(self) -> None:
        self.config_reloads = Counter(
            "ksched_config_reloads_total",
            "How often the configuration file was loaded again: applied, unchanged, or refused.",
            ("result",),
        )
        self.config_reload_pause = Histogram(
            "ksched_config_reload_pause_seconds",
            "How long a reload kept the next attempt from beginning, each time it did.",
            exponential_buckets(0.0001, 2, 14),
        )

    def _define_preemption(self) -> None:
        self.preemption_victims = Histogram(
            "scheduler_preemption_victims",
            "Number of victims per preemption.",
            exponential_buckets(1, 2, 7),
        )
        self.preemption_attempts = Counter(
            "scheduler_preemption_attempts_total",
            "Preemption attempts.",
        )
        self.preemption_goroutines_duration = Histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to delete the victims of a preemption.",
            exponential_buckets(0.01, 2, 20),
            ("result",),
        )
        self.preemption_goroutines_execution = Counter(
            "scheduler_preemption_goroutines_execution_total",
            "Preemptions by result: victims deleted, or an error.",
            ("result",),
        )

    def _define_groups(self) -> None:
        self.podgroup_schedule_attempts = Counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Attempts to place a pod group, by result.",
            ("result", "profile"),
        )
        self.podgroup_scheduling_attempt_duration = Histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Duration of an attempt to place a pod group, without binding.",
            _ATTEMPT,
            ("result", "profile"),
        )
        self.podgroup_scheduling_algorithm_duration = Histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time to find nodes for a pod group, or to find that there are too few.",
            _ATTEMPT,
        )
        self.group_undone_placements = Counter(
            "ksched_group_undone_placements_total",
            "Members that had a node in an attempt whose group did not fit.",
        )

    def _define_rest_client(self) -> None:
        self.rest_client_requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server by response code; watches count when they are opened.",
            ("code", "method", "host"),
        )
        self.rest_client_request_duration = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server's complete response.",
            _REST_CLIENT,
            ("verb", "host"),
        )
        self.rest_client_rate_limiter_duration = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Time that requests waited for the client's own rate limit.",
            _REST_CLIENT,
            ("verb", "host"),
        )
        self.rest_client_request_size = Histogram(
            "rest_client_request_size_bytes",
            "Length of requests' bodies.",
            _REST_CLIENT_SIZE,
            ("verb", "host"),
        )
        self.rest_client_response_size = Histogram(
            "rest_client_response_size_bytes",
            "Length of responses' bodies, watches excluded.",
            _REST_CLIENT_SIZE,
            ("verb", "host"),
        )
        self.rest_client_request_retries = Counter(
            "rest_client_request_retries_total",
            "Second and later tries of requests by response code.",
            ("code", "verb", "host"),
        )

    def _define_exec_plugin(self) -> None:
        self.rest_client_exec_plugin_calls = Counter(
            "rest_client_exec_plugin_call_total",
            "Runs of the credential program of a kubeconfig by exit code and outcome.",
            ("code", "call_status"),
        )
        self.rest_client_exec_plugin_certificate_rotation_age = Histogram(
            "rest_client_exec_plugin_certificate_rotation_age",
            "Age in seconds of a credential program's certificate when another one replaced it.",
            _CERTIFICATE_AGE,
        )

    def add_gauges(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Register a callback that returns more metrics on every collection."""
        self._gauges.append(collect)

    def collect(self) -> Iterator[Metric]:
        for metric in vars(self).values():
            if isinstance(metric, Counter | Histogram):
                yield metric.family()
        for gauges in self._gauges:
            yield from gauges()

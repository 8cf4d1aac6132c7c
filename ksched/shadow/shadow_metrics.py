"""The report as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ksched.shadow.shadowing import Shadow


class ShadowMetrics(Collector):
    """Reads the counts when it is scraped.

    A decision may move from one outcome to another when a cause is found later: these are gauges,
    only the number of decisions is a counter.
    """

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow

    def collect(self) -> Iterator[Metric]:
        report = self._shadow.report
        yield CounterMetricFamily(
            "ksched_shadow_decisions",
            "Decisions of the live scheduler that were judged.",
            value=report.decisions,
        )
        by_outcome = GaugeMetricFamily(
            "ksched_shadow_outcomes",
            "Judged decisions by how ours compare; plugin is set where the schedulers differ.",
            labels=("profile", "outcome", "plugin"),
        )
        for (profile, outcome, plugin), count in sorted(
            report.counts().items(), key=lambda item: (item[0][0], item[0][1].value, item[0][2])
        ):
            by_outcome.add_metric((profile, outcome.value, plugin), count)
        yield by_outcome
        yield CounterMetricFamily(
            "ksched_shadow_not_judged",
            "Decisions that could not be judged.",
            value=report.not_judged,
        )
        yield GaugeMetricFamily(
            "ksched_shadow_held_changes",
            "Watched changes that are held back to be put in order.",
            value=self._shadow.held,
        )
        yield GaugeMetricFamily(
            "ksched_shadow_following",
            "1 when everything was listed and decisions are judged.",
            value=float(self._shadow.is_following),
        )

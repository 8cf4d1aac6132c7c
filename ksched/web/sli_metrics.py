"""``/metrics/slis``: results of the health checks, for service level indicators.

kube-scheduler: ObserveHealthcheck.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ksched.metrics import Counter
from ksched.web.exposition import process_start_metric


class SliMetrics(Collector):
    """Results by check and endpoint: the last one, and how many of each."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], bool] = {}
        self._total = Counter(
            "kubernetes_healthchecks_total",
            "Results of health checks.",
            ("name", "type", "status"),
        )

    def observe(self, check: str, endpoint: str, is_healthy: bool) -> None:
        self._last[check, endpoint] = is_healthy
        self._total.increment(check, endpoint, "success" if is_healthy else "error")

    def collect(self) -> Iterator[Metric]:
        last = GaugeMetricFamily(
            "kubernetes_healthcheck", "The last result of a health check.", labels=("name", "type")
        )
        for labels, is_healthy in self._last.items():
            last.add_metric(labels, int(is_healthy))
        yield last
        yield self._total.family()
        started = process_start_metric()
        if started is not None:
            yield started

"""Metrics as text for a scrape: Prometheus' format, or OpenMetrics where that is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

_SAMPLES: Final = 100
_END_OF_OPENMETRICS: Final = b"# EOF\n"
_START_TIME: Final = "process_start_time_seconds"

Encode = Callable[[Collector], bytes]


class Format:
    """One of the two text formats."""

    def __init__(self, accept: str, end: bytes) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self.end = end

    def pieces(self, collectors: Sequence[Collector]) -> Iterator[bytes]:
        """Yield everything that the collectors return, in pieces."""
        # Numbers are read here, between two tasks, and are consistent; formatting them takes
        # longer.
        metrics = [metric for one in collectors for metric in one.collect()]
        for metric in metrics:
            yield from _written(metric, self._encode)
        yield self.end


PLAIN: Final = Format("", b"")
OPENMETRICS: Final = Format("application/openmetrics-text; version=1.0.0", _END_OF_OPENMETRICS)


def accepted_format(accept: str) -> Format:
    """Return OpenMetrics if it is accepted; the rest of the header is ignored."""
    types = (part.partition(";")[0].strip() for part in accept.lower().split(","))
    return OPENMETRICS if "application/openmetrics-text" in types else PLAIN


def process_collectors() -> list[Collector]:
    """``process_*`` and ``python_*``, kept out of the process-wide registry."""
    registry = CollectorRegistry()
    return [
        ProcessCollector(registry=None),
        PlatformCollector(registry=None),
        GCCollector(registry=registry),
    ]


def process_start_metric() -> Metric | None:
    """Return ``process_start_time_seconds``; None where the kernel does not tell."""
    found = ProcessCollector(registry=None).collect()
    return next((metric for metric in found if metric.name == _START_TIME), None)


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _written(metric: Metric, encode: Encode) -> Iterator[bytes]:
    """Format one family in chunks of samples; only the first has the comments."""
    samples = metric.samples
    for start in range(0, max(len(samples), 1), _SAMPLES):
        part = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        part.samples = samples[start : start + _SAMPLES]
        lines = encode(_Collected([part])).removesuffix(_END_OF_OPENMETRICS)
        while start and lines.startswith(b"#"):
            lines = lines.partition(b"\n")[2]
        yield lines

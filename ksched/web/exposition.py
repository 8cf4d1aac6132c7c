"""Metrics for a scrape: Prometheus' text, or OpenMetrics or protobuf where that is preferred."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from ksched.web import metrics_protobuf
from ksched.web.content_negotiation import preferred

_SAMPLES: Final = 100
_END_OF_OPENMETRICS: Final = b"# EOF\n"
_START_TIME: Final = "process_start_time_seconds"

_VERSIONS_OF_PLAIN: Final = ("", "0.0.4")
_VERSIONS_OF_OPENMETRICS: Final = ("", "0.0.1", "1.0.0")

Encode = Callable[[Collector], bytes]


class Format:
    """One of the formats; ``write`` yields the pieces of one family."""

    def __init__(
        self, content_type: str, write: Callable[[Metric], Iterator[bytes]], end: bytes = b""
    ) -> None:
        self.content_type, self._write, self.end = content_type, write, end

    def pieces(self, collectors: Sequence[Collector]) -> Iterator[bytes]:
        """Yield everything that the collectors return, in pieces, some of which may be empty."""
        # Numbers are read here, between two tasks, and are consistent; formatting them takes
        # longer.
        metrics = [metric for one in collectors for metric in one.collect()]
        for metric in metrics:
            yield from self._write(metric)
        yield self.end


def _as_text(accept: str, end: bytes) -> Format:
    encode, content_type = choose_encoder(accept)
    return Format(content_type, lambda metric: _written(metric, encode), end)


PLAIN: Final = _as_text("", b"")
OPENMETRICS: Final = _as_text("application/openmetrics-text; version=1.0.0", _END_OF_OPENMETRICS)
PROTOBUF: Final = Format(metrics_protobuf.CONTENT_TYPE, metrics_protobuf.family_pieces)


def accepted_format(accept: str, *, is_streamed: bool = False) -> Format:
    """Return the format that a client prefers: text if it names none.

    A page that is streamed is text: a message of protobuf begins with its length.

    kube-scheduler: expfmt.Negotiate, which does not know OpenMetrics.
    """
    for clause in preferred(accept.lower()):
        media_type = f"{clause.main_type}/{clause.subtype}"
        if clause.quality <= 0:
            continue
        if metrics_protobuf.is_accepted(media_type, clause.parameters) and not is_streamed:
            return PROTOBUF
        version = clause.parameters.get("version", "")
        if media_type == "application/openmetrics-text" and version in _VERSIONS_OF_OPENMETRICS:
            return OPENMETRICS
        if media_type == "text/plain" and version in _VERSIONS_OF_PLAIN:
            return PLAIN
    return PLAIN


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

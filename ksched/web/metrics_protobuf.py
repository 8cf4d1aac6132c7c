"""Metrics as protobuf: messages io.prometheus.client.MetricFamily, each after its length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from ksched.web.protobuf import delimited, double, integer, message, text

MEDIA_TYPE: Final = "application/vnd.google.protobuf"
_PROTOCOL: Final = "io.prometheus.client.MetricFamily"
_ENCODING: Final = "delimited"
CONTENT_TYPE: Final = f"{MEDIA_TYPE}; proto={_PROTOCOL}; encoding={_ENCODING}"

_BATCH: Final = 20
"""Series that are encoded between two looks at the clock."""
_BOUNDS_KEPT: Final = 1024

# Fields of Metric.
_LABEL: Final = 1
_SUMMARY: Final = 4
_TIMESTAMP_MS: Final = 6
_HISTOGRAM: Final = 7


class _Kind(NamedTuple):
    """How a family of one type is written."""

    number: int
    """Of MetricType."""
    field: int
    """Of Metric, for the value."""
    suffix: str = ""
    """Of the name."""


_GAUGE: Final = _Kind(1, 2)
_KINDS: Final[Mapping[str, _Kind]] = {
    "counter": _Kind(0, 3, "_total"),
    "info": _Kind(1, 2, "_info"),
    "summary": _Kind(2, _SUMMARY),
    "unknown": _Kind(3, 5),
    "histogram": _Kind(4, _HISTOGRAM),
    "gaugehistogram": _Kind(5, _HISTOGRAM),
}
"""Of other types are gauges."""


def is_accepted(media_type: str, parameters: Mapping[str, str]) -> bool:
    """Whether an accepted type, in lower case, is this one."""
    protocol, encoding = parameters.get("proto"), parameters.get("encoding")
    return (media_type, protocol, encoding) == (MEDIA_TYPE, _PROTOCOL.lower(), _ENCODING)


def family_pieces(metric: Metric) -> Iterator[bytes]:
    """Yield one family, which is left out if it has no series; most pieces are empty."""
    # When a series was created is a gauge of its own, as it is in text.
    name = f"{metric.name}_created"
    created = [sample for sample in metric.samples if sample.name == name]
    others = [sample for sample in metric.samples if sample.name != name]
    yield from _family(metric, _KINDS.get(metric.type, _GAUGE), others)
    yield from _family(metric, _GAUGE._replace(suffix="_created"), created)


def _family(metric: Metric, kind: _Kind, samples: list[Sample]) -> Iterator[bytes]:
    if not samples:
        return
    content = bytearray(text(1, metric.name + kind.suffix) + text(2, metric.documentation))
    content += integer(3, kind.number)
    is_compound = kind.field in (_HISTOGRAM, _SUMMARY)
    series = _compound(samples, kind, metric.name) if is_compound else _simple(samples, kind)
    for number, one in enumerate(series):
        content += message(4, one)
        if number % _BATCH == 0:
            yield b""
    yield delimited(bytes(content))


def _simple(samples: Iterable[Sample], kind: _Kind) -> Iterator[bytes]:
    for sample in samples:
        value = message(kind.field, double(1, sample.value))
        yield _labels(sample.labels) + value + _timestamp(sample)


class _Series:
    """The samples of one histogram or summary."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.count, self.sum = 0, 0.0
        self.parts = bytearray()
        self.timestamp = b""


def _compound(samples: Iterable[Sample], kind: _Kind, name: str) -> Iterator[bytes]:
    """Yield the series of histograms or summaries."""
    own = "le" if kind.field == _HISTOGRAM else "quantile"
    found: dict[tuple[tuple[str, str], ...], _Series] = {}
    for sample in samples:
        labels = {key: value for key, value in sample.labels.items() if key != own}
        key = tuple(labels.items())
        series = found.get(key)
        if series is None:
            series = found[key] = _Series(labels)
        series.timestamp = _timestamp(sample)
        suffix = sample.name.removeprefix(name)
        if suffix in ("_count", "_gcount"):
            series.count = int(sample.value)
        elif suffix in ("_sum", "_gsum"):
            series.sum = sample.value
        elif own == "quantile":
            quantile = double(1, float(sample.labels[own])) + double(2, sample.value)
            series.parts += message(3, quantile)
        elif bound := _bound(sample.labels[own]):
            series.parts += message(3, integer(1, int(sample.value)) + bound)
    for series in found.values():
        content = integer(1, series.count) + double(2, series.sum) + series.parts
        yield _labels(series.labels) + message(kind.field, content) + series.timestamp


@lru_cache(_BOUNDS_KEPT)
def _bound(text_of_bound: str) -> bytes:
    """Encode an upper bound; infinity is nothing, as its bucket has the count of all."""
    bound = float(text_of_bound)
    return b"" if bound == math.inf else double(2, bound)


def _labels(labels: Mapping[str, str]) -> bytes:
    pairs = (text(1, name) + text(2, value) for name, value in sorted(labels.items()))
    return b"".join(message(_LABEL, pair) for pair in pairs)


def _timestamp(sample: Sample) -> bytes:
    if sample.timestamp is None:
        return b""
    return integer(_TIMESTAMP_MS, int(float(sample.timestamp) * 1000))

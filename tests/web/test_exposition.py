"""Formats of a scrape: which is preferred, and that protobuf says what the text says.

Covers ``ksched.web.metrics_protobuf`` too.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
    UntypedMetricFamily,
)
from prometheus_client.metrics import Histogram as LibraryHistogram
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from ksched.web.exposition import OPENMETRICS, PLAIN, PROTOBUF, accepted_format, process_collectors
from ksched.web.metrics_protobuf import family_pieces
from lab import protobuf_reader as reader
from tests.test_metrics import filled

PROTO = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily"
DELIMITED = f"{PROTO}; encoding=delimited"
OPEN = "application/openmetrics-text"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html", PLAIN),
        ("nonsense;;=,/", PLAIN),
        ("text/plain;version=0.0.4", PLAIN),
        (DELIMITED, PROTOBUF),
        (DELIMITED.upper(), PROTOBUF),
        (DELIMITED.replace(" ", ""), PROTOBUF),
        (f"{PROTO};encoding=text", PLAIN),
        (f"{PROTO};encoding=compact-text", PLAIN),
        (PROTO, PLAIN),
        ("application/vnd.google.protobuf;encoding=delimited", PLAIN),
        ("application/vnd.google.protobuf;proto=other;encoding=delimited", PLAIN),
        (f"{DELIMITED};q=0.7,text/plain;version=0.0.4;q=0.3", PROTOBUF),
        (f"{DELIMITED};q=0.3,text/plain;version=0.0.4;q=0.7", PLAIN),
        (f"text/plain;q=0.5,{DELIMITED};q=0.5", PLAIN),
        (f"*/*;q=1,{DELIMITED};q=0.1", PROTOBUF),
        (f"{DELIMITED};q=0,*/*", PLAIN),
        (f"{DELIMITED};q=much,text/plain;q=0.1", PLAIN),
        (f"{OPEN};version=1.0.0", OPENMETRICS),
        (f"{OPEN};version=1.0.0;q=0.6,{OPEN};version=0.0.1;q=0.5,text/plain;q=0.4", OPENMETRICS),
        (f"{OPEN};q=0.4,text/plain;q=0.5", PLAIN),
        (f"{OPEN};version=7.0.0", PLAIN),
        (f"{DELIMITED};q=0.6,{OPEN};version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4", PROTOBUF),
        # What Prometheus 3 sends, without and with native histograms.
        (
            f"{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.6,{OPEN};version=0.0.1;q=0.5,"
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,"
            "*/*;q=0.2",
            OPENMETRICS,
        ),
        (
            f"{DELIMITED};q=0.7,{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.6,"
            f"{OPEN};version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            PROTOBUF,
        ),
    ],
)
def test_the_preferred_format_is_chosen(accept, chosen):
    assert accepted_format(accept) is chosen


def test_what_is_streamed_is_text():
    accept = f"{DELIMITED};q=0.7,{OPEN};version=1.0.0;q=0.6,text/plain;q=0.5"
    assert accepted_format(accept, is_streamed=True) is OPENMETRICS


TYPES = {0: "counter", 1: "gauge", 2: "summary", 3: "untyped", 4: "histogram"}
SIMPLE = {0: 3, 1: 2, 3: 5}
"""Field of the value by type."""


class Decoded:
    """A page of protobuf, as the samples of text."""

    def __init__(self, page):
        self.samples: dict[tuple[str, frozenset[Any]], float] = {}
        self.types: dict[str, str] = {}
        self.helps: dict[str, str] = {}
        for family in reader.delimited(page):
            [name], [text], [number] = family[1], family[2], family[3]
            self._name = name.decode()
            assert self._name not in self.types, "every family once"
            self.types[self._name], self.helps[self._name] = TYPES[number], text.decode()
            for metric in map(reader.fields, family[4]):
                pairs = map(reader.fields, metric.get(1, []))
                labels = {pair[1][0].decode(): pair[2][0].decode() for pair in pairs}
                assert list(labels) == sorted(labels)
                self._read(metric, labels, number)

    def _read(self, metric, labels, number):
        if number in SIMPLE:
            self._add("", labels, reader.fields(metric[SIMPLE[number]][0])[1][0])
            return
        value = reader.fields(metric[7 if number == 4 else 4][0])
        self._add("_count", labels, value[1][0])
        self._add("_sum", labels, value[2][0])
        for part in map(reader.fields, value.get(3, [])):
            if number == 4:
                self._add("_bucket", {**labels, "le": part[2][0]}, part[1][0])
            else:
                self._add("", {**labels, "quantile": part[1][0]}, part[2][0])
        if number == 4:
            self._add("_bucket", {**labels, "le": math.inf}, value[1][0])

    def _add(self, suffix, labels, value):
        key = self._name + suffix, frozenset(labels.items())
        assert key not in self.samples
        self.samples[key] = value


class FromText(Decoded):
    """The same of a page of text."""

    def __init__(self, page):
        super().__init__(b"")
        self._name = ""
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                numbers = {
                    key: float(value) if key in ("le", "quantile") else value
                    for key, value in sample.labels.items()
                }
                self._add(sample.name, numbers, sample.value)


class Frozen:
    """What collectors return at one moment: some of it changes all the time."""

    def __init__(self, collectors):
        self._metrics = [metric for one in collectors for metric in one.collect()]

    def collect(self):
        return self._metrics


def both(collectors):
    frozen = [Frozen(collectors)]
    pages = [b"".join(one.pieces(frozen)) for one in (PROTOBUF, PLAIN)]
    return Decoded(pages[0]), FromText(pages[1])


class Foreign:
    """Families as a plugin's own collector may return them."""

    def collect(self):
        counter = CounterMetricFamily("spins", "Line\nof \\ é.", labels=("b", "a"))
        counter.add_metric(("x\ny", '"'), 2.5, created=1.7e9)
        counter.add_metric(("", "é"), 1e300)
        yield counter
        gauge = GaugeMetricFamily("heat", "Of things.", labels=("of",))
        for value in (math.inf, -math.inf, 0.1 + 0.2, -0.0):
            gauge.add_metric((str(value),), value)
        yield gauge
        summary = SummaryMetricFamily("takes", "Seconds.", labels=("of",))
        summary.add_metric(("x",), count_value=3, sum_value=4.5)
        summary.add_sample("takes", {"of": "x", "quantile": "0.5"}, 1.5)
        yield summary
        yield InfoMetricFamily("thing", "What.", value={"version": "1"})
        yield UntypedMetricFamily("what", "Who knows.", value=7)
        yield GaugeMetricFamily("none", "Has no series.", labels=("a",))


@pytest.mark.parametrize(
    "collectors", [[filled(), *process_collectors()], [Foreign()]], ids=["own", "foreign"]
)
def test_protobuf_has_the_samples_of_the_text(collectors):
    binary, text = both(collectors)

    assert binary.samples == text.samples
    assert len(binary.samples) > 10


def test_names_types_and_help_are_those_of_the_text():
    collectors = [filled(), *process_collectors(), Foreign()]
    binary, _ = both(collectors)
    lines = b"".join(PLAIN.pieces(collectors)).decode().splitlines()
    types = dict(line.split()[2:] for line in lines if line.startswith("# TYPE "))
    helps = dict(line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP "))
    assert set(types) - set(binary.types) == {"none"}, "a family without series is left out"
    assert binary.types == {name: types[name] for name in binary.types}
    for name, text in binary.helps.items():
        assert text.replace("\\", r"\\").replace("\n", r"\n") == helps[name]


def test_a_metric_of_the_library_with_the_time_of_its_creation():
    registry = CollectorRegistry()
    histogram = LibraryHistogram("took", "Seconds.", ["of"], registry=registry, buckets=(1, 2))
    for number in range(3):
        histogram.labels("x").observe(number)
    binary, text = both([registry])

    assert binary.samples == text.samples
    assert binary.types == {"took": "histogram", "took_created": "gauge"}


def test_a_long_family_is_written_with_pauses():
    gauge = GaugeMetricFamily("heat", "Of things.", labels=("of",))
    for number in range(1000):
        gauge.add_metric((str(number),), number)
    pieces = list(family_pieces(gauge))

    assert len(pieces) > 40
    assert len(Decoded(b"".join(pieces)).samples) == 1000

"""Names, labels and buckets are kube-scheduler's: dashboards and alerts hang on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ksched.metrics import Counter, Distribution, Histogram, Metrics, exponential_buckets

# kube-scheduler v1.36: name, labels, first bound, factor, number of bounds.
HISTOGRAMS = [
    ("scheduling_attempt_duration_seconds", {"result", "profile"}, 0.001, 2, 15),
    ("scheduling_algorithm_duration_seconds", set(), 0.001, 2, 15),
    ("pod_scheduling_sli_duration_seconds", {"attempts"}, 0.01, 2, 20),
    ("pod_scheduling_attempts", set(), 1, 2, 5),
    (
        "framework_extension_point_duration_seconds",
        {"extension_point", "status", "profile"},
        0.0001,
        2,
        12,
    ),
    ("podgroup_scheduling_attempt_duration_seconds", {"result", "profile"}, 0.001, 2, 15),
    ("podgroup_scheduling_algorithm_duration_seconds", set(), 0.001, 2, 15),
    ("permit_wait_duration_seconds", {"result"}, 0.001, 2, 15),
    (
        "plugin_execution_duration_seconds",
        {"plugin", "extension_point", "status"},
        0.00001,
        1.5,
        20,
    ),
    ("queueing_hint_execution_duration_seconds", {"plugin", "event", "hint"}, 0.00001, 1.5, 20),
    ("preemption_victims", set(), 1, 2, 7),
]
COUNTERS = [
    ("schedule_attempts_total", {"result", "profile"}),
    ("queue_incoming_pods_total", {"queue", "event"}),
    ("podgroup_schedule_attempts_total", {"result", "profile"}),
    ("preemption_attempts_total", set()),
    ("volume_scheduling_stage_error_total", {"operation"}),
]


def filled() -> Metrics:
    """Every metric with one series."""
    metrics = Metrics()
    for metric in vars(metrics).values():
        if isinstance(metric, Counter):
            metric.increment(*metric.labels)
        elif isinstance(metric, Histogram):
            metric.of(*metric.labels).observe(0.5)
    return metrics


def exposed(metrics: Metrics) -> dict[str, Any]:
    text = generate_latest(metrics).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize(("name", "labels", "start", "factor", "count"), HISTOGRAMS)
def test_histogram_is_exposed_as_kube_scheduler_does(name, labels, start, factor, count):
    family = exposed(filled())[f"scheduler_{name}"]
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]

    assert family.type == "histogram"
    assert {*buckets[0].labels} - {"le"} == labels
    bounds = [float(sample.labels["le"]) for sample in buckets]
    assert bounds == pytest.approx([*(start * factor**n for n in range(count)), float("inf")])


# kube-scheduler v1.36, component-base: name, labels and bounds.
_LATENCIES = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60]
_SIZES = [64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216]
_AGES = [600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000]
OF_CLIENT = [
    ("request_duration_seconds", {"verb", "host"}, _LATENCIES),
    ("rate_limiter_duration_seconds", {"verb", "host"}, _LATENCIES),
    ("request_size_bytes", {"verb", "host"}, _SIZES),
    ("response_size_bytes", {"verb", "host"}, _SIZES),
    ("exec_plugin_certificate_rotation_age", set(), _AGES),
]


@pytest.mark.parametrize(("name", "labels", "bounds"), OF_CLIENT)
def test_histogram_of_requests_is_exposed_as_kube_scheduler_does(name, labels, bounds):
    family = exposed(filled())[f"rest_client_{name}"]
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]

    assert {*buckets[0].labels} - {"le"} == labels
    assert [float(sample.labels["le"]) for sample in buckets] == [*bounds, float("inf")]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("requests", {"code", "method", "host"}),
        ("request_retries", {"code", "verb", "host"}),
        ("exec_plugin_call", {"code", "call_status"}),
    ],
)
def test_counter_of_requests_is_exposed_as_kube_scheduler_does(name, labels):
    family = exposed(filled())[f"rest_client_{name}"]

    assert family.type == "counter"
    assert {*family.samples[0].labels} == labels


@pytest.mark.parametrize(("name", "labels"), COUNTERS)
def test_counter_is_exposed_as_kube_scheduler_does(name, labels):
    family = exposed(filled())[f"scheduler_{name.removesuffix('_total')}"]

    assert family.type == "counter"
    assert {*family.samples[0].labels} == labels


def test_metrics_without_labels_are_there_from_the_start():
    families = exposed(Metrics())

    assert families["scheduler_preemption_attempts"].samples[0].value == 0
    assert families["scheduler_pod_scheduling_attempts"].samples[-1].value == 0


@pytest.mark.parametrize(
    ("buckets", "texts"),
    [
        pytest.param(exponential_buckets(1, 2, 3), ["1", "2", "4"], id="whole numbers"),
        pytest.param(exponential_buckets(0.001, 2, 3), ["0.001", "0.002", "0.004"], id="thousands"),
        pytest.param(
            exponential_buckets(0.00001, 1.5, 2), ["1e-05", "1.5000000000000002e-05"], id="tiny"
        ),
    ],
)
def test_bounds_are_spelled_as_go_spells_them(buckets, texts):
    assert [text for text, _ in Distribution(buckets).buckets()] == [*texts, "+Inf"]


def test_zeros_are_in_every_bucket_and_in_the_count():
    distribution = Distribution((1.0, 2.0))
    distribution.observe(1.5)
    distribution.zeros += 3
    assert distribution.buckets() == [("1", 3), ("2", 4), ("+Inf", 4)]
    assert (distribution.count, distribution.sum) == (4, 1.5)


@given(st.lists(st.floats(0, 20) | st.sampled_from([1.0, 2.0, 4.0])))
def test_bucket_counts_everything_up_to_and_including_its_bound(values):
    distribution = Distribution((1.0, 2.0, 4.0))
    for value in values:
        distribution.observe(value)

    counts = [count for _, count in distribution.buckets()]
    assert counts == [*(sum(v <= bound for v in values) for bound in (1.0, 2.0, 4.0)), len(values)]
    assert distribution.sum == pytest.approx(sum(values))
    assert distribution.count == len(values)

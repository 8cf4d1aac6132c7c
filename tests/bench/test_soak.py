"""The soak's judgement: what is a rise, what is noise, and what is written down."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bench.slopes import slope
from bench.soak import Found, Sample, _csv, judge, lag_quantile, parse, report, worst_lag

CREATED = 72_000
SECONDS = [5.0 * number for number in range(720)]


def noisy(rise_per_hour: float, seed: int = 1) -> list[float]:
    """An hour of a figure around 150 that also swings with the attacks, every 140 seconds."""
    rng = random.Random(seed)
    return [
        150 + rise_per_hour * at / 3600 + rng.gauss(0, 2) + 8 * ((at // 70) % 2) for at in SECONDS
    ]


@pytest.mark.parametrize("seed", range(10))
def test_noise_and_swings_are_no_slope(seed: int) -> None:
    assert not slope(SECONDS, noisy(0, seed)).rises


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_rise_under_noise_is_found(seed: int) -> None:
    found = slope(SECONDS, noisy(12, seed))
    assert found.rises
    assert found.per_hour == pytest.approx(12, abs=4)


def test_what_falls_or_hardly_rises_is_no_concern() -> None:
    assert not slope(SECONDS, noisy(-30)).rises
    assert not slope(SECONDS, [150 + at / 3600 for at in SECONDS]).rises


def test_a_few_samples_say_nothing() -> None:
    assert not slope([0.0, 5.0], [1.0, 2.0]).rises
    assert not slope([], []).rises


def samples(rise_per_hour: float) -> list[Sample]:
    return [
        Sample(at, rss, tasks=40, descriptors=50, lag_ms=8, bound=at * 20)
        for at, rss in zip(SECONDS, noisy(rise_per_hour), strict=True)
    ]


def test_what_happens_while_it_warms_up_does_not_count() -> None:
    cold = [replace(one, rss_mb=10 + one.seconds / 10) for one in samples(0)[:170]]
    assert not judge([*cold, *samples(0)[170:]])["rss_mb"].rises


def test_the_report_names_what_rises_and_its_page_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(Found(samples(0), lag_p99_ms=4, created=CREATED), tmp_path)
    assert not report(Found(samples(60), lag_p99_ms=4, created=CREATED), tmp_path)
    printed = capsys.readouterr().out
    assert "rises" in printed.splitlines()[-8]
    page = (tmp_path / "soak.html").read_text()
    assert page.count("<polyline") == 5
    assert "http" not in page
    assert "src=" not in page


def test_a_loop_that_lags_fails_though_nothing_rises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not report(Found(samples(0), lag_p99_ms=20.5, created=CREATED), tmp_path)
    assert "20.5 ms, at most 20 wanted" in capsys.readouterr().out


def test_a_scheduler_that_binds_nothing_fails_though_nothing_rises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = [replace(one, bound=min(one.bound, 30_000)) for one in samples(0)]
    assert not report(Found(stuck, lag_p99_ms=4, created=CREATED), tmp_path)
    assert "30000 of 72000 pods, at least 95% wanted" in capsys.readouterr().out


def test_a_quantile_of_lags_counts_what_came_since() -> None:
    before = {"0.01": 500.0, "0.02": 500.0, "+Inf": 1000.0}
    after = {"0.01": 598.0, "0.02": 600.0, "+Inf": 1100.0}
    assert lag_quantile(before, after, 0.5) == pytest.approx(0.01 * 50 / 98)
    assert lag_quantile(before, after, 0.99) == pytest.approx(0.015)


def test_a_quantile_beyond_the_last_bucket_is_its_bound() -> None:
    assert lag_quantile({}, {"0.01": 90.0, "+Inf": 100.0}, 0.99) == 0.01
    assert lag_quantile({}, {"0.01": 0.0, "+Inf": 0.0}, 0.99) == 0.0


def test_every_sample_is_on_disk_at_once(tmp_path: Path) -> None:
    with _csv(tmp_path / "soak.csv") as write:
        write(samples(0)[0])
        header, first = csv.reader((tmp_path / "soak.csv").read_text().splitlines())
    assert header == ["seconds", "rss_mb", "tasks", "descriptors", "lag_ms", "bound"]
    assert float(first[2]) == 40


@pytest.mark.parametrize(
    ("before", "after", "worst"),
    [
        pytest.param({}, {"0.1": 0, "1.0": 0, "+Inf": 0}, 0.0, id="nothing happened"),
        pytest.param({}, {"0.1": 5, "1.0": 5, "+Inf": 5}, 0.1, id="all in the first bucket"),
        pytest.param(
            {"0.1": 5, "1.0": 6, "+Inf": 6}, {"0.1": 9, "1.0": 10, "+Inf": 10}, 0.1, id="since then"
        ),
        pytest.param({}, {"0.1": 5, "1.0": 6, "+Inf": 6}, 1.0, id="one that was late"),
        pytest.param({}, {"0.1": 5, "1.0": 5, "+Inf": 6}, 1.0, id="beyond the last bucket"),
    ],
)
def test_the_worst_lag_is_the_highest_bucket_hit_since(
    before: dict[str, float], after: dict[str, float], worst: float
) -> None:
    assert worst_lag(before, after) == worst


def test_an_hour_is_the_default() -> None:
    assert parse([]).minutes == 60

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.clock import cpu_seconds
from ksched.configuration.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15.0),
        ("1m30s", 90.0),
        ("1h0m0s", 3600.0),
        ("1.5h", 5400.0),
        ("300ms", 0.3),
        ("100us", 0.0001),
        ("1µs", 0.000001),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("0", 0.0),
        ("-2s", -2.0),
        ("+2s", 2.0),
        ("1s1s", 2.0),
    ],
)
def test_a_go_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "15", "s", "1d", "1 s", "1s ", "--1s", "1e3s", ".s", "-", "9999999999h", "+-0"]
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1" * 200_000 + "x", "1s" * 100_000 + "x", "1" * 200_000 + "s"])
def test_a_text_as_long_as_an_annotation_is_refused_at_once(text: str) -> None:
    began = cpu_seconds()
    with pytest.raises(ValueError, match="invalid duration") as caught:
        parse_duration(text)
    assert cpu_seconds() - began < 0.5
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (15, "15s"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
        (600, "10m0s"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (0.0001, "100µs"),
        (1e-9, "1ns"),
        (-2, "-2s"),
        (3661.000001, "1h1m1.000001s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_writing_and_reading_a_duration_changes_nothing(nanoseconds: int) -> None:
    seconds = nanoseconds / 10**9
    assert parse_duration(format_duration(seconds)) == seconds

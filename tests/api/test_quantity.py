"""Quantities against tables of what apimachinery does and against plain fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api import quantity
from ksched.api.quantity import (
    MAX_INT64,
    milli_value,
    millis_from_nanos,
    parse_quantity,
    to_nanos,
    units_from_nanos,
    value,
)
from ksched.clock import cpu_seconds

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
    "e+1": Fraction(10),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 1),
        ("100m", Fraction(1, 10)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+5", 5),
        ("-5k", -5000),
        ("007", 7),
        ("1.G", 10**9),
        ("1.5Gi", 3 * 2**29),
        ("0.5Ki", 512),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("12e+2", 1200),
        (" 5Mi ", 5 * 2**20),
        ("1n", Fraction(1, 10**9)),
        ("0." + "0" * 5000 + "1", Fraction(1, 10**9)),
        ("0" * 5000 + "7", 7),
        ("9" * 5000, MAX_INT64),
        ("1" + "0" * 5000 + "e-5000", 1),
        ("1" + "0" * 4999 + "1e-5000", Fraction(10**9 + 1, 10**9)),
        ("1" + "0" * 20_000 + "e-20000", 1),
        ("1e" + "9" * 5000, MAX_INT64),
        ("-1e400", -MAX_INT64),
        ("9223372036854775807Ei", MAX_INT64),
        ("m", 0),
        ("-", 0),
        (3, 3),
        (1.5, Fraction(3, 2)),
        (1e22, MAX_INT64),
    ],
)
def test_text_is_read_exactly(text: str | int | float, expected: int | Fraction) -> None:
    parsed = parse_quantity(text)
    assert parsed == expected
    assert isinstance(parsed, int) == (Fraction(expected).denominator == 1)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "abc", "1x", "1KI", "1ki", "1K", "1mi", "1 Gi", "1..5", "1.2.3", "--1", "+-1",
        "1e", "1e1.5", "1ee3", "1Gi5", "1m5", "0x10", "1_000", "1,5", "٣", "nan", "inf", "1Gi\n1",
    ],
)  # fmt: skip
def test_nonsense_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity") as caught:
        parse_quantity(text)
    assert repr(text.strip()) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1" * 1_000_000 + "e1.5", id="digits before no exponent"),
        pytest.param("-" + "1" * 1_000_000 + "x", id="digits before no unit"),
        pytest.param("0." + "1" * 1_000_000 + "e5e", id="a fraction"),
        pytest.param("1" + "E" * 1_000_000, id="units"),
    ],
)
def test_nonsense_of_a_megabyte_is_refused_at_once_with_a_short_message(text: str) -> None:
    # What a custom resource admits, such as minResources of a PodGroup.
    began = cpu_seconds()
    with pytest.raises(ValueError, match="is not a quantity") as caught:
        parse_quantity(text)
    assert cpu_seconds() - began < 0.5
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["1" * 1_000_000, "0." + "1" * 1_000_000, "1e" + "9" * 1_000_000])
def test_an_amount_of_a_megabyte_is_read_at_once_and_not_kept(text: str) -> None:
    began, kept = cpu_seconds(), quantity._parse.cache_info().currsize
    parse_quantity(text)
    assert cpu_seconds() - began < 0.5
    assert quantity._parse.cache_info().currsize == kept


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, True])
def test_numbers_that_are_no_amounts_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(number)


@pytest.mark.parametrize(
    ("text", "units", "millis"),
    [
        pytest.param("1", 1, 1000, id="whole"),
        pytest.param("1m", 1, 1, id="a thousandth is at least one unit"),
        pytest.param("1n", 1, 1, id="a billionth is at least one thousandth"),
        pytest.param("0.1n", 1, 1, id="finer than a billionth is a billionth"),
        pytest.param("1e-400", 1, 1, id="far too fine"),
        pytest.param("1.0001", 2, 1001, id="up to the next thousandth"),
        pytest.param("-1.0001", -2, -1001, id="negative amounts away from zero as well"),
        pytest.param("0.0", 0, 0, id="zero stays zero"),
        pytest.param("1500m", 2, 1500, id="thousandths"),
        pytest.param("9223372036854775807", MAX_INT64, MAX_INT64, id="the largest amount"),
        pytest.param("9223372036854775808", MAX_INT64, MAX_INT64, id="beyond the largest"),
        pytest.param("10Ei", MAX_INT64, MAX_INT64, id="beyond the largest in binary"),
        pytest.param("1e99999999999999999999", MAX_INT64, MAX_INT64, id="absurd exponent"),
        pytest.param("-1e30", -MAX_INT64, -MAX_INT64 - 1, id="beyond the smallest"),
        pytest.param("0e99999999999", 0, 0, id="zero with an absurd exponent"),
        pytest.param("10P", 10**16, MAX_INT64, id="only the thousandths overflow"),
    ],
)
def test_rounding_and_bounds(text: str, units: int, millis: int) -> None:
    assert (value(text), milli_value(text)) == (units, millis)


def away_from_zero(number: Fraction) -> int:
    return math.ceil(number) if number > 0 else math.floor(number)


digits = st.text("0123456789", min_size=1, max_size=12)


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=digits,
    fraction=st.none() | digits,
    suffix=st.sampled_from(sorted(SUFFIXES)),
)
def test_agrees_with_fractions(sign: str, whole: str, fraction: str | None, suffix: str) -> None:
    number = whole if fraction is None else f"{whole}.{fraction}"
    exact = Fraction(number) * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    nanos = Fraction(away_from_zero(exact * 10**9), 10**9)
    capped = max(Fraction(-MAX_INT64), min(nanos, Fraction(MAX_INT64)))
    text = f"{sign}{number}{suffix}"

    assert parse_quantity(text) == capped
    assert value(text) == away_from_zero(capped)
    assert milli_value(text) == max(-MAX_INT64 - 1, min(away_from_zero(capped * 1000), MAX_INT64))


@given(st.lists(st.integers(-(10**12), 10**12)))
def test_sums_are_rounded_once(nanos: list[int]) -> None:
    total = sum(to_nanos(f"{amount}n") for amount in nanos)
    assert total == sum(nanos)
    assert units_from_nanos(total) == away_from_zero(Fraction(sum(nanos), 10**9))
    assert millis_from_nanos(total) == away_from_zero(Fraction(sum(nanos), 10**6))


@given(st.integers(-MAX_INT64, MAX_INT64))
def test_a_number_and_its_text_mean_the_same(number: int) -> None:
    assert parse_quantity(number) == parse_quantity(str(number)) == number

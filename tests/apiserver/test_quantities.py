"""One spelling for each amount."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api.quantity import parse_quantity
from ksched.apiserver.quantities import canonical_quantity


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("0.0001", "1m"),
        ("1e3", "1e3"),
        ("12e-1", "1200e-3"),
        ("100000", "100k"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("512Ki", "512Ki"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("0", "0"),
        ("-1", "-1"),
        ("+2", "2"),
        ("1E", "1E"),
    ],
)
def test_quantities_are_stored_in_canonical_form(given, stored):
    assert canonical_quantity(given) == stored


@given(
    st.integers(-(10**6), 10**6),
    st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "E3"]),
)
def test_canonical_form_keeps_the_amount_and_itself(number, suffix):
    text = f"{number}{suffix}"
    stored = canonical_quantity(text)
    assert Fraction(parse_quantity(stored)) == Fraction(parse_quantity(text))
    assert canonical_quantity(stored) == stored

"""Values on the wire, against the examples of the format's specification and a reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.web.protobuf import delimited, double, integer, message, packed, text, varint
from lab import protobuf_reader as reader


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (varint(1), "01"),
        (varint(150), "96 01"),
        (varint(-1), "ff ff ff ff ff ff ff ff ff 01"),
        (integer(1, 150), "08 96 01"),
        (text(2, "testing"), "12 07 74 65 73 74 69 6e 67"),
        (message(3, integer(1, 150)), "1a 03 08 96 01"),
        (packed(6, [3, 270, 86942]), "32 06 03 8e 02 9e a7 05"),
        (double(1, 1.0), "09 00 00 00 00 00 00 f0 3f"),
        (text(16, "é"), "82 01 02 c3 a9"),
        (text(1, "\udc80"), "0a 01 3f"),
    ],
)
def test_values_are_those_of_the_specification(encoded, expected):
    assert encoded == bytes.fromhex(expected)


@given(
    st.integers(0, 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.integers(0, 2**64 - 1)),
    st.integers(1, 2**29 - 1),
)
def test_what_is_written_is_read_back(number, real, string, numbers, field):
    content = integer(field, number) + double(field, real) + text(field, string)
    content += packed(field, numbers)
    [found] = reader.delimited(delimited(content))
    whole, fraction, characters, many = found[field]

    assert (whole, fraction, characters.decode()) == (number, real, string)
    assert reader.packed(many) == numbers

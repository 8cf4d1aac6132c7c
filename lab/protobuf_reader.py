"""Reads protocol buffers back: fields by number, and the messages that tests know."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

Fields = dict[int, list[Any]]
"""Values by field, in their order; messages and strings are bytes."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def __bool__(self) -> bool:
        return self.at < len(self._data)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(self, length: int) -> bytes:
        found = self._data[self.at : self.at + length]
        assert len(found) == length, "ends in the middle of a value"
        self.at += length
        return found


def fields(data: bytes) -> Fields:
    """Read one message."""
    found: Fields = {}
    reader = _Reader(data)
    while reader:
        number, wire_type = divmod(reader.varint(), 8)
        value: Any
        if wire_type == 0:
            value = reader.varint()
        elif wire_type == 1:
            (value,) = struct.unpack("<d", reader.take(8))
        else:
            assert wire_type == 2, f"wire type {wire_type}"
            value = reader.take(reader.varint())
        found.setdefault(number, []).append(value)
    return found


def delimited(data: bytes) -> Iterator[Fields]:
    """Read messages that are preceded by their length."""
    reader = _Reader(data)
    while reader:
        yield fields(reader.take(reader.varint()))


def packed(data: bytes) -> list[int]:
    reader = _Reader(data)
    found = []
    while reader:
        found.append(reader.varint())
    return found


class ReadSample(NamedTuple):
    stack: list[tuple[str, str, int, int]]
    """Function, file, its first line, line; innermost first."""
    values: list[int]
    labels: dict[str, str]


class ReadProfile(NamedTuple):
    types: list[tuple[str, str]]
    period_type: tuple[str, str]
    period: int
    time_nanos: int
    duration_nanos: int
    samples: list[ReadSample]


def read_profile(data: bytes) -> ReadProfile:
    """Read a gzip'ed profile of pprof."""
    profile = fields(gzip.decompress(data))
    strings = [one.decode() for one in profile[6]]
    assert strings[0] == ""
    functions = {}
    for one in map(fields, profile.get(5, [])):
        name, system_name, file = (strings[one[number][0]] for number in (2, 3, 4))
        assert name == system_name
        functions[one[1][0]] = name, file, one[5][0]
    locations = {}
    for one in map(fields, profile.get(4, [])):
        (line,) = (fields(content) for content in one[4])
        locations[one[1][0]] = (*functions[line[1][0]], line[2][0])
    assert 0 not in functions
    assert 0 not in locations

    def value_type(content: bytes) -> tuple[str, str]:
        one = fields(content)
        return strings[one[1][0]], strings[one[2][0]]

    samples = []
    for one in map(fields, profile.get(2, [])):
        labels = {}
        for label in map(fields, one.get(3, [])):
            labels[strings[label[1][0]]] = strings[label[2][0]]
        stack = [locations[number] for number in packed(one[1][0])]
        samples.append(ReadSample(stack, packed(one[2][0]), labels))
    return ReadProfile(
        types=[value_type(one) for one in profile[1]],
        period_type=value_type(profile[11][0]),
        period=profile[12][0],
        time_nanos=profile[9][0],
        duration_nanos=profile[10][0],
        samples=samples,
    )

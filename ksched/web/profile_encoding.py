"""Profiles in the format of ``go tool pprof``: gzip'ed messages of its profile.proto.

They carry names and lines, so nothing has to be looked up in a binary. Written in pieces, since a
profile can take longer than the event loop may be kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from ksched.web.protobuf import integer, message, packed, text

CONTENT_TYPE: Final = "application/octet-stream"
_GZIP: Final = 16 + zlib.MAX_WBITS
_BATCH: Final = 50
"""Entries of a table in one piece."""

# Fields of Profile.
_SAMPLE_TYPE: Final = 1
_SAMPLE: Final = 2
_LOCATION: Final = 4
_FUNCTION: Final = 5
_STRING: Final = 6
_TIME_NANOS: Final = 9
_DURATION_NANOS: Final = 10
_PERIOD_TYPE: Final = 11
_PERIOD: Final = 12


class Frame(NamedTuple):
    """A line of a function on a stack."""

    function: str
    file: str
    first_line: int
    line: int


class ValueType(NamedTuple):
    """What a value of a sample counts, and in which unit."""

    kind: str
    unit: str


class Sample(NamedTuple):
    """A stack, innermost frame first, with a value for each of the profile's types."""

    stack: Sequence[Frame]
    values: Sequence[int]
    labels: Mapping[str, str] = MappingProxyType({})


class Profile(NamedTuple):
    """What a profile says of itself; ``None`` among its samples only allows for a pause."""

    types: Sequence[ValueType]
    samples: Iterable[Sample | None]
    time_nanos: int
    duration_nanos: int = 0
    period: int = 1

    @property
    def period_type(self) -> ValueType:
        return self.types[-1]


class _Numbering:
    """Numbers things in the order in which they are first seen."""

    def __init__(self) -> None:
        self._locations: dict[Frame, int] = {}
        self._functions: dict[tuple[str, str, int], int] = {}
        # The first is always empty.
        self._strings: dict[str, int] = {"": 0}

    def string(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    def location(self, frame: Frame) -> int:
        return self._locations.setdefault(frame, len(self._locations) + 1)

    def _function(self, frame: Frame) -> int:
        return self._functions.setdefault(frame[:3], len(self._functions) + 1)

    def entries(self) -> Iterator[bytes]:
        """Yield the tables that samples refer to, each after those that refer to it."""
        for frame, number in self._locations.items():
            line = integer(1, self._function(frame)) + integer(2, frame.line)
            yield message(_LOCATION, integer(1, number) + message(4, line))
        for (name, file, first_line), number in self._functions.items():
            content = integer(1, number) + integer(2, self.string(name))
            content += integer(3, self.string(name)) + integer(4, self.string(file))
            yield message(_FUNCTION, content + integer(5, first_line))
        for value in self._strings:
            yield text(_STRING, value)


def profile_pieces(profile: Profile) -> Iterator[bytes]:
    """Yield a profile in compressed pieces, some of which are empty."""
    compressor = zlib.compressobj(wbits=_GZIP)
    for piece in _pieces(profile):
        yield compressor.compress(piece)
    yield compressor.flush()


def _pieces(profile: Profile) -> Iterator[bytes]:
    numbers = _Numbering()
    for one in profile.types:
        yield message(_SAMPLE_TYPE, _value_type(one, numbers))
    yield message(_PERIOD_TYPE, _value_type(profile.period_type, numbers))
    yield integer(_PERIOD, profile.period)
    yield integer(_TIME_NANOS, profile.time_nanos)
    yield integer(_DURATION_NANOS, profile.duration_nanos)
    for sample in profile.samples:
        yield b"" if sample is None else message(_SAMPLE, _sample(sample, numbers))
    entries = numbers.entries()
    while batch := list(islice(entries, _BATCH)):
        yield b"".join(batch)


def _value_type(one: ValueType, numbers: _Numbering) -> bytes:
    return integer(1, numbers.string(one.kind)) + integer(2, numbers.string(one.unit))


def _sample(sample: Sample, numbers: _Numbering) -> bytes:
    content = packed(1, map(numbers.location, sample.stack)) + packed(2, sample.values)
    for key, value in sample.labels.items():
        label = integer(1, numbers.string(key)) + integer(2, numbers.string(value))
        content += message(3, label)
    return content

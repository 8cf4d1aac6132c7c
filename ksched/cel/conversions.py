"""Type conversions: ``int(x)``, ``string(x)`` and others."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ksched.cel.arithmetic import checked_timestamp, checked_uint
from ksched.cel.errors import EvaluationError
from ksched.cel.values import (
    MAX_INT,
    MAX_UINT,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    format_double,
    type_name,
)

_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UINT = re.compile(r"[0-9]+", re.ASCII)
# Without a choice of where digits end: a long text that is no number would take quadratic time,
# and no other thread runs meanwhile.
_DOUBLE = re.compile(
    r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_SECOND: Final = 10**9
_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _unconvertible(value: Value, wanted: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def to_int(value: Value) -> int:
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is Uint:
        if value > MAX_INT:
            raise EvaluationError("integer overflow")
        return int(value)
    if kind is float:
        if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(value)
    if kind is str and len(value) < 400 and _INT.fullmatch(value):
        number = int(value)
        if -MAX_INT - 1 <= number <= MAX_INT:
            return number
    elif kind is Timestamp:
        return int(value.nanos // _SECOND)
    elif kind is Duration:
        return int(value.nanos)
    raise _unconvertible(value, "int")


def to_uint(value: Value) -> Uint:
    kind = type(value)
    if kind is Uint:
        return Uint(value)
    if kind is int:
        return checked_uint(value)
    if kind is float:
        if math.isnan(value) or not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if kind is str and len(value) < 400 and _UINT.fullmatch(value) and int(value) <= MAX_UINT:
        return Uint(value)
    raise _unconvertible(value, "uint")


def to_double(value: Value) -> float:
    kind = type(value)
    if kind is float or kind is int or kind is Uint:
        return float(value)
    if kind is str and _DOUBLE.fullmatch(value):
        number = float(value)
        if not math.isinf(number) or "inf" in value.lower():
            return number
    raise _unconvertible(value, "double")


def to_bool(value: Value) -> bool:
    if type(value) is bool:
        return bool(value)
    if type(value) is str:
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
    raise _unconvertible(value, "bool")


def to_bytes(value: Value) -> bytes:
    if type(value) is bytes:
        return bytes(value)
    if type(value) is str:
        return str(value).encode()
    raise _unconvertible(value, "bytes")


def to_string(value: Value) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return format_double(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Duration:
        return f"{_decimal(value.nanos)}s"
    if kind is Timestamp:
        return format_timestamp(value)
    raise _unconvertible(value, "string")


def _decimal(nanos: int) -> str:
    """Format as seconds, without trailing zeros."""
    whole, rest = divmod(abs(nanos), _SECOND)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{'-' if nanos < 0 else ''}{whole}{fraction}"


def format_timestamp(value: Timestamp) -> str:
    """Format by RFC 3339 in UTC, without trailing zeros."""
    seconds, rest = divmod(value.nanos, _SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{fraction}Z"


def to_duration(value: Value) -> Duration:
    kind = type(value)
    if kind is Duration:
        return Duration(value.nanos)
    if kind is int:
        return Duration(value)
    if kind is str:
        nanos = _parse_duration(value)
        if nanos is not None and -MAX_INT - 1 <= nanos <= MAX_INT:
            return Duration(nanos)
    raise _unconvertible(value, "google.protobuf.Duration")


def _parse_duration(text: str) -> int | None:
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    if not body or len(body) > 400:
        return None
    total = 0
    position = 0
    while position < len(body):
        match = _DURATION_PART.match(body, position)
        if match is None or not (match[1] or match[2]):
            return None
        unit = _UNITS[match[3]]
        fraction = match[2] or ""
        total += int(match[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = match.end()
    return sign * total


def to_timestamp(value: Value) -> Timestamp:
    kind = type(value)
    if kind is Timestamp:
        return Timestamp(value.nanos)
    if kind is int:
        return checked_timestamp(value * _SECOND)
    if kind is str:
        nanos = _parse_timestamp(value)
        if nanos is not None:
            return checked_timestamp(nanos)
    raise _unconvertible(value, "google.protobuf.Timestamp")


def _parse_timestamp(text: str) -> int | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match[1] == "0000":
        return None
    try:
        moment = datetime(*(int(match[index]) for index in range(1, 7)), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    offset = int(match[9] or 0) * 3600 + int(match[10] or 0) * 60
    if int(match[9] or 0) > 24 or int(match[10] or 0) > 60:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    seconds -= -offset if match[8] == "-" else offset
    return seconds * _SECOND + int(((match[7] or "0") + "000000000")[:9])


def to_type(value: Value) -> TypeValue:
    return TypeValue(type_name(value))

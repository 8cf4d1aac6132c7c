"""Values during evaluation.

| CEL | Python |
|---|---|
| bool, int, double, string, bytes | ``bool``, ``int``, ``float``, ``str``, ``bytes`` |
| null | ``None`` |
| uint | ``Uint``, an ``int`` of its own type |
| list, map | ``list``, ``dict`` with keys by ``map_key``; not changed after they were built |
| timestamp, duration, type, optional | classes below |
| everything else | a subclass of ``OpaqueValue``, which libraries define |

A ``bool`` is an ``int`` to Python but not to CEL: code here compares ``type(value)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ksched.cel.errors import NO_SUCH_OVERLOAD, CostExceeded, EvaluationError
from ksched.cel.in_pieces import join, total_length

MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1

Value = Any
"""Any value of the table above."""


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A timestamp, in nanoseconds since 1970."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, such as ``type(x)`` or the name ``int``."""

    name: str

    def __str__(self) -> str:
        return self.name


class OptionalValue:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Value) -> None:
        self.present = present
        self.value = value


NONE: Final = OptionalValue(False, None)


def optional(value: Value) -> OptionalValue:
    return OptionalValue(True, value)


class OpaqueValue:
    """A value of a library's own type."""

    __slots__ = ()
    type_name: str = ""

    def equals(self, other: Value) -> bool:
        """Whether the values are equal; raises ``EvaluationError`` if they are not comparable."""
        raise NotImplementedError

    def unhashable(self) -> str | None:
        """cel-go's message for a lookup among constants, where it does not support one."""
        return None


class DefaultMap(dict[Any, Any]):
    """A map with a default value for keys that are looked up; iteration omits them."""

    __slots__ = ("default",)

    def __init__(self, entries: dict[Any, Any], default: Value) -> None:
        super().__init__(entries)
        self.default = default

    def __missing__(self, key: Any) -> Value:
        return self.default


class _Key:
    """A map key of a type that Python equates with another or cannot hash."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


_TRUE, _FALSE = _Key(True), _Key(False)
_PLAIN_KEYS = frozenset({str, int, Uint, float})


def map_key(value: Value) -> Any:
    """Return the dict key of a CEL key."""
    if type(value) in _PLAIN_KEYS:
        return value
    if type(value) is bool:
        return _TRUE if value else _FALSE
    return _Key(value)


def key_value(key: Any) -> Value:
    """Return the CEL key of a dict key."""
    return key.value if type(key) is _Key else key


_TYPE_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    DefaultMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    OptionalValue: "optional_type",
}


def type_name(value: Value) -> str:
    """The name of a value's type."""
    return _TYPE_NAMES.get(type(value)) or str(value.type_name)


def no_such_overload(function: str = "", *args: Value) -> EvaluationError:
    """The error of an operation without an overload for its operands."""
    if not function:
        return EvaluationError(NO_SUCH_OVERLOAD)
    names = ", ".join(map(type_name, args))
    return EvaluationError(f"{NO_SUCH_OVERLOAD}: {function}({names})")


def _numbers_equal(left: float, right: float) -> bool:
    if type(left) is float or type(right) is float:
        return float(left) == float(right)
    return left == right


_NUMBERS = frozenset({int, Uint, float})
_NESTED = frozenset({list, dict, DefaultMap, OptionalValue})
LONGEST_DESCRIPTION = 1_000_000
"""Limit of the characters of a value in a message."""


def equal(left: Value, right: Value, known: _Known | None = None) -> bool:
    """``left == right``; values of different types are not equal, with few exceptions.

    ``known`` are members of the two that were found equal already.
    """
    kind, other = type(left), type(right)
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return other in _NUMBERS and _numbers_equal(left, right)
    if isinstance(left, OpaqueValue):
        return left.equals(right)
    if kind is list:
        return (
            other is list
            and len(left) == len(right)
            and _members_equal(zip(left, right, strict=True), known)
        )
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right for key in left)
            and _members_equal(((value, right[key]) for key, value in left.items()), known)
        )
    if kind is OptionalValue:
        if other is not OptionalValue or left.present != right.present:
            return False
        return not left.present or equal(left.value, right.value, known)
    return kind is other and bool(left == right)


_Known = set[tuple[int, int]]


def _members_equal(pairs: Iterable[tuple[Value, Value]], known: _Known | None) -> bool:
    """Whether all pairs are equal; as in cel-go, an error inside a collection is not a difference.

    Nested lists may share members repeatedly: each pair is compared once.
    """
    if known is None:
        known = set()
    for left, right in pairs:
        nested = type(left) in _NESTED
        pair = (id(left), id(right))
        if nested and pair in known:
            continue
        try:
            if not equal(left, right, known):
                return False
        except EvaluationError:
            pass
        if nested:
            known.add(pair)
    return True


def surely_equal(left: Value, right: Value) -> bool:
    """Equality for searches, where an error counts as different."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


_COMPARABLE = frozenset({bool, str, bytes, Duration, Timestamp})


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; numbers of different types are comparable, other types only with themselves."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise EvaluationError("NaN values cannot be ordered")
        if (kind is float) != (other is float):
            left, right = _rounded(left), _rounded(right)
    elif kind not in _COMPARABLE or kind is not other:
        raise no_such_overload()
    return int(left > right) - int(left < right)


def _rounded(number: float) -> float:
    return float(number) if not math.isinf(number) else number


def find(entries: dict[Any, Value], key: Value) -> tuple[bool, Value]:
    """Return whether a map has a key, and its value; numbers match across types."""
    plain = key if type(key) is str else map_key(key)
    if plain in entries:
        return True, entries[plain]
    if type(entries) is DefaultMap:
        return True, entries.default
    return False, None


def list_index(index: Value) -> int:
    """Convert a value to a position in a list."""
    kind = type(index)
    if kind is int or kind is Uint:
        return int(index)
    if kind is float:
        if index.is_integer():
            return int(index)
        raise EvaluationError(f"unsupported index value {describe(index)} in list")
    raise EvaluationError(f"unsupported index type '{type_name(index)}' in list")


def format_double(number: float) -> str:
    """Format a double as Go's ``%g`` does."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits, _, exponent = f"{number:.17e}".partition("e")
    for precision in range(17):
        text = f"{number:.{precision}e}"
        if float(text) == number:
            digits, _, exponent = text.partition("e")
            break
    power = int(exponent)
    if power < -4 or power >= 6:
        return f"{digits}e{exponent[0]}{abs(power):02d}"
    return f"{number:.{max(0, len(digits.replace('-', '').replace('.', '')) - 1 - power)}f}"


def describe(value: Value) -> str:
    """Format a value for messages; raises ``CostExceeded`` if that would be too long."""
    return _describe(value, {})


def _describe(value: Value, known: dict[int, str]) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return format_double(value)
    if value is None:
        return "NULL_VALUE"
    if type(value) is not list and not isinstance(value, dict):
        return str(value)
    text = known.get(id(value))
    if text is None:
        text = known[id(value)] = _describe_members(value, known)
    return text


def _describe_members(value: Value, known: dict[int, str]) -> str:
    if type(value) is list:
        opening, closing = "[]"
        parts = [_describe(one, known) for one in value]
    else:
        opening, closing = "{}"
        parts = [
            f"{_describe(key_value(key), known)}: {_describe(item, known)}"
            for key, item in value.items()
        ]
    if total_length(parts) > LONGEST_DESCRIPTION:
        raise CostExceeded
    return f"{opening}{join(parts, ', ')}{closing}"


def size_of(value: Value) -> int:
    """The size of a value for costs: elements or characters, otherwise 1."""
    kind = type(value)
    if kind is str or kind is bytes or kind is list or isinstance(value, dict):
        return len(value)
    if kind is OptionalValue and value.present:
        return size_of(value.value)
    return 1

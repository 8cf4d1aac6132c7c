"""Operators: numbers with overflow checks, comparison, membership, indexing."""

from __future__ import annotations

import math
from collections.abc import Callable

from ksched.cel.errors import CostExceeded, EvaluationError
from ksched.cel.values import (
    MAX_INT,
    MAX_UINT,
    Duration,
    Timestamp,
    Uint,
    Value,
    compare,
    map_key,
    no_such_overload,
    surely_equal,
)

LONGEST_LIST = 250_000
LONGEST_STRING = 1_000_000
"""Limits of values: copying or freeing longer ones would keep other threads waiting."""
MIN_TIME = -62135596800 * 10**9
MAX_TIME = 253402300799 * 10**9 + 999_999_999
_RECEIVERS = frozenset({str, Timestamp, Duration})
"""Types whose operations return "no such overload" without the function's name."""


def _refuse(function: str, left: Value) -> EvaluationError:
    if type(left) in _RECEIVERS:
        return no_such_overload()
    return EvaluationError(f"no such overload: {function}")


def checked_int(number: int) -> int:
    if not -MAX_INT - 1 <= number <= MAX_INT:
        raise EvaluationError("integer overflow")
    return number


def checked_uint(number: int) -> Uint:
    if not 0 <= number <= MAX_UINT:
        raise EvaluationError("unsigned integer overflow")
    return Uint(number)


def checked_duration(nanos: int) -> Duration:
    if not -MAX_INT - 1 <= nanos <= MAX_INT:
        raise EvaluationError("duration overflow")
    return Duration(nanos)


def checked_timestamp(nanos: int) -> Timestamp:
    if not MIN_TIME <= nanos <= MAX_TIME:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos)


def bounded(length: int) -> None:
    """Reject a string that would be too long before it is built."""
    if length > LONGEST_STRING:
        raise CostExceeded


_ADDERS = frozenset({int, Uint, float, str, bytes, list, Duration, Timestamp})


def add(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left + right)
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind is list and len(left) + len(right) > LONGEST_LIST:
            raise CostExceeded
        if kind is str or kind is bytes:
            bounded(len(left) + len(right))
            return left + right
        if kind is float or kind is list:
            return left + right
        if kind is Duration:
            return checked_duration(left.nanos + right.nanos)
    elif (kind is Duration and type(right) is Timestamp) or (
        kind is Timestamp and type(right) is Duration
    ):
        return checked_timestamp(left.nanos + right.nanos)
    if kind not in _ADDERS:
        raise _refuse("_+_", left)
    raise no_such_overload()


def subtract(left: Value, right: Value) -> Value:
    kind, other = type(left), type(right)
    if kind is Timestamp:
        if other is Timestamp:
            return checked_duration(left.nanos - right.nanos)
        if other is Duration:
            return checked_timestamp(left.nanos - right.nanos)
    elif kind is other:
        if kind is int:
            return checked_int(left - right)
        if kind is Uint:
            return checked_uint(int(left) - int(right))
        if kind is float:
            return left - right
        if kind is Duration:
            return checked_duration(left.nanos - right.nanos)
    if kind not in (int, Uint, float, Duration, Timestamp):
        raise _refuse("_-_", left)
    raise no_such_overload()


def multiply(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind not in (int, Uint, float):
        raise _refuse("_*_", left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is float:
        return left * right
    product = int(left) * int(right)
    return checked_int(product) if kind is int else checked_uint(product)


def divide(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind not in (int, Uint, float):
        raise _refuse("_/_", left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is float:
        return _divide_doubles(left, right)
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    if kind is Uint:
        return Uint(quotient)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind not in (int, Uint):
        raise _refuse("_%_", left)
    if kind is not type(right):
        raise no_such_overload()
    if right == 0:
        raise EvaluationError("modulus by zero")
    rest = abs(left) % abs(right)
    if kind is Uint:
        return Uint(rest)
    if left == -MAX_INT - 1 and right == -1:
        raise EvaluationError("integer overflow")
    return -rest if left < 0 else rest


def negate(operand: Value) -> Value:
    kind = type(operand)
    if kind is int:
        return checked_int(-operand)
    if kind is float:
        return -operand
    if kind is Duration:
        return checked_duration(-operand.nanos)
    if kind is bool:
        raise no_such_overload()
    raise _refuse("-_", operand)


def logical_not(operand: Value) -> bool:
    if type(operand) is not bool:
        raise no_such_overload()
    return not operand


_COMPARERS = frozenset({bool, int, Uint, float, str, bytes, Duration, Timestamp})


def _comparison(function: str, decide: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    def run(left: Value, right: Value) -> bool:
        if type(left) not in _COMPARERS:
            raise _refuse(function, left)
        return decide(compare(left, right))

    return run


less = _comparison("_<_", lambda order: order < 0)
less_equals = _comparison("_<=_", lambda order: order <= 0)
greater = _comparison("_>_", lambda order: order > 0)
greater_equals = _comparison("_>=_", lambda order: order >= 0)


def contains(element: Value, collection: Value) -> bool:
    """``element in collection``"""
    if type(collection) is list:
        return any(surely_equal(element, one) for one in collection)
    if isinstance(collection, dict):
        return map_key(element) in collection
    raise no_such_overload()


def size(operand: Value) -> int:
    if type(operand) in (str, bytes, list) or isinstance(operand, dict):
        return len(operand)
    raise _refuse("size", operand)

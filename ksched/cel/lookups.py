"""Access to fields, keys and positions of values."""

from __future__ import annotations

from collections.abc import Callable

from ksched.cel.errors import EvaluationError
from ksched.cel.values import NONE, OptionalValue, Value, describe, find, list_index, optional

_KEYS = (str, bool, int, float)


def _look(value: Value, key: Value) -> tuple[bool, Value]:
    """Return whether a value has a key or position, and the value there."""
    if isinstance(value, dict):
        return find(value, key)
    if type(value) is list:
        index = list_index(key)
        return (True, value[index]) if 0 <= index < len(value) else (False, None)
    return False, None


def _check_key(key: Value) -> None:
    if not isinstance(key, _KEYS):
        raise EvaluationError(f"invalid qualifier type: {describe(key)}")


def get(value: Value, key: Value) -> Value:
    """``value[key]``; of an optional value, an optional result."""
    if type(value) is OptionalValue:
        return get_optional(value, key)
    _check_key(key)
    found, item = _look(value, key)
    if found:
        return item
    if type(value) is list:
        raise EvaluationError(f"index out of bounds: {describe(key)}")
    raise EvaluationError(f"no such key: {describe(key)}")


def get_optional(value: Value, key: Value) -> OptionalValue:
    """``value[?key]``"""
    if type(value) is OptionalValue:
        if not value.present:
            return NONE
        value = value.value
    _check_key(key)
    found, item = _look(value, key)
    return optional(item) if found else NONE


def has(value: Value, field: str) -> bool:
    """``has(value.field)``"""
    if type(value) is OptionalValue:
        if not value.present:
            return False
        value = value.value
    return _look(value, field)[0]


def path_reader(place: int, keys: list[str]) -> Callable[[list[Value]], Value]:
    """Return a function that reads a path of constant keys from a variable."""

    def slow(frame: list[Value]) -> Value:
        value = frame[place]
        for key in keys:
            value = get(value, key)
        return value

    if len(keys) == 1:
        (only,) = keys

        def read_one(frame: list[Value]) -> Value:
            try:
                return frame[place][only]
            except (KeyError, TypeError):
                return slow(frame)

        return read_one
    if len(keys) == 3:
        first, second, third = keys

        def read_three(frame: list[Value]) -> Value:
            try:
                return frame[place][first][second][third]
            except (KeyError, TypeError):
                return slow(frame)

        return read_three
    return slow

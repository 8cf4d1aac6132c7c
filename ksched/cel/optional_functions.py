"""Functions of optional values."""

from __future__ import annotations

from ksched.cel import static_types as types
from ksched.cel.declarations import LIST_A, MAP_AB, A, B, Library
from ksched.cel.errors import EvaluationError
from ksched.cel.values import NONE, Duration, OptionalValue, Timestamp, Uint, Value, optional

LIBRARY = Library()


def _of_non_zero(value: Value) -> OptionalValue:
    if value is None or (type(value) in (bool, int, Uint, float, str, bytes, list) and not value):
        return NONE
    if isinstance(value, dict) and not value:
        return NONE
    if type(value) is Duration and not value.nanos:
        return NONE
    if type(value) is Timestamp and value.nanos == -62135596800 * 10**9:
        return NONE
    return optional(value)


def _value(operand: OptionalValue) -> Value:
    if not operand.present:
        raise EvaluationError("optional.none() dereference")
    return operand.value


def _never(*args: Value) -> Value:
    raise AssertionError("the planner has its own way to run this")


def _declare() -> None:
    declare, maybe = LIBRARY.overload, types.optional_of(A)
    declare("optional.of", "optional_of", (A,), maybe, optional)
    declare("optional.ofNonZeroValue", "optional_ofNonZeroValue", (A,), maybe, _of_non_zero)
    declare("optional.none", "optional_none", (), maybe, lambda: NONE)
    declare("value", "optional_value", (maybe,), A, _value, member=True)
    declare(
        *("hasValue", "optional_hasValue", (maybe,), types.BOOL, lambda one: one.present),
        member=True,
    )
    declare("or", "optional_or_optional", (maybe, maybe), maybe, _never, member=True)
    declare("orValue", "optional_orValue_value", (maybe, A), A, _never, member=True)
    LIBRARY.function("_[?_]", _never)
    rows = {
        "list_optindex_optional_int": ((LIST_A, types.INT), A),
        "optional_list_optindex_optional_int": ((types.optional_of(LIST_A), types.INT), A),
        "map_optindex_optional_value": ((MAP_AB, A), B),
        "optional_map_optindex_optional_value": ((types.optional_of(MAP_AB), A), B),
    }
    for overload, (args, result) in rows.items():
        declare("_[?_]", overload, args, types.optional_of(result))


_declare()

"""The standard functions and operators of CEL."""

from __future__ import annotations

from math import ceil

from ksched.cel import arithmetic, conversions, regular_expressions
from ksched.cel import static_types as types
from ksched.cel.declarations import LIST_A, MAP_AB, A, B, Implementation, Library
from ksched.cel.static_types import Type
from ksched.cel.time_functions import LIBRARY as TIMES
from ksched.cel.values import Value, no_such_overload, size_of

LIBRARY = Library()
LIBRARY.add(TIMES)
LIBRARY.type_names.update(
    {
        **{one.name: one for one in (types.BOOL, types.BYTES, types.DOUBLE, types.INT)},
        **{one.name: one for one in (types.NULL, types.STRING, types.UINT, types.TYPE)},
        **{one.name: one for one in (types.DURATION, types.TIMESTAMP)},
        "list": LIST_A,
        "map": MAP_AB,
        "optional_type": types.optional_of(A),
    }
)
_NUMBERS = {"double": types.DOUBLE, "int64": types.INT, "uint64": types.UINT}


def traversal(length: int) -> int:
    """The cost of reading a string once."""
    return ceil(length * 0.1)


def _smaller(args: list[Value], result: Value) -> int:
    return traversal(min(size_of(args[0]), size_of(args[1])))


def _sum_of_sizes(args: list[Value], result: Value) -> int:
    return traversal(size_of(args[0]) + size_of(args[1]))


def first_traversal(args: list[Value], result: Value) -> int:
    """The cost of reading the first operand once."""
    return traversal(size_of(args[0]))


def regex_cost(args: list[Value], result: Value) -> int:
    """The cost of matching the first operand with the second."""
    return ceil((1 + size_of(args[0])) * 0.1) * ceil(size_of(args[1]) * 0.25)


def _search_cost(args: list[Value], result: Value) -> int:
    return traversal(size_of(args[0])) * traversal(size_of(args[1]))


def _operator(name: str, implementation: Implementation) -> None:
    LIBRARY.function(name, implementation)


def _same(name: str, overloads: dict[str, Type]) -> None:
    """Overloads whose operands and result have one type."""
    for overload, operand in overloads.items():
        LIBRARY.overload(name, overload, (operand, operand), operand)


def _never(*args: Value) -> Value:
    raise AssertionError("the compiler has its own way to run this operator")


def _declare_logic() -> None:
    for name, overload in (("_&&_", "logical_and"), ("_||_", "logical_or")):
        _operator(name, _never)
        LIBRARY.overload(name, overload, (types.BOOL, types.BOOL), types.BOOL)
    _operator("_?_:_", _never)
    LIBRARY.overload("_?_:_", "conditional", (types.BOOL, A, A), A)
    _operator("!_", arithmetic.logical_not)
    LIBRARY.overload("!_", "logical_not", (types.BOOL,), types.BOOL)
    _operator("@not_strictly_false", _never)
    LIBRARY.overload("@not_strictly_false", "not_strictly_false", (types.BOOL,), types.BOOL)
    for name, overload in (("_==_", "equals"), ("_!=_", "not_equals")):
        _operator(name, _never)
        LIBRARY.overload(name, overload, (A, A), types.BOOL, cost=_smaller)


def _declare_arithmetic() -> None:
    stamp, span = types.TIMESTAMP, types.DURATION
    _operator("_+_", arithmetic.add)
    LIBRARY.overload(
        "_+_", "add_bytes", (types.BYTES, types.BYTES), types.BYTES, cost=_sum_of_sizes
    )
    _same("_+_", {"add_double": types.DOUBLE})
    LIBRARY.overload("_+_", "add_duration_duration", (span, span), span)
    LIBRARY.overload("_+_", "add_duration_timestamp", (span, stamp), stamp)
    LIBRARY.overload("_+_", "add_timestamp_duration", (stamp, span), stamp)
    _same("_+_", {"add_int64": types.INT, "add_list": LIST_A})
    string = types.STRING
    LIBRARY.overload("_+_", "add_string", (string, string), string, cost=_sum_of_sizes)
    _same("_+_", {"add_uint64": types.UINT})
    _operator("_-_", arithmetic.subtract)
    _same("_-_", {"subtract_double": types.DOUBLE})
    LIBRARY.overload("_-_", "subtract_duration_duration", (span, span), span)
    _same("_-_", {"subtract_int64": types.INT})
    LIBRARY.overload("_-_", "subtract_timestamp_duration", (stamp, span), stamp)
    LIBRARY.overload("_-_", "subtract_timestamp_timestamp", (stamp, stamp), span)
    _same("_-_", {"subtract_uint64": types.UINT})
    _operator("_*_", arithmetic.multiply)
    _same("_*_", {f"multiply_{name}": one for name, one in _NUMBERS.items()})
    _operator("_/_", arithmetic.divide)
    _same("_/_", {f"divide_{name}": one for name, one in _NUMBERS.items()})
    _operator("_%_", arithmetic.modulo)
    _same("_%_", {"modulo_int64": types.INT, "modulo_uint64": types.UINT})
    _operator("-_", arithmetic.negate)
    LIBRARY.overload("-_", "negate_double", (types.DOUBLE,), types.DOUBLE)
    LIBRARY.overload("-_", "negate_int64", (types.INT,), types.INT)


def _declare_relations() -> None:
    relations = {
        "_<_": ("less", arithmetic.less),
        "_<=_": ("less_equals", arithmetic.less_equals),
        "_>_": ("greater", arithmetic.greater),
        "_>=_": ("greater_equals", arithmetic.greater_equals),
    }
    others = {"timestamp": types.TIMESTAMP, "duration": types.DURATION}
    for name, (word, implementation) in relations.items():
        _operator(name, implementation)
        LIBRARY.overload(name, f"{word}_bool", (types.BOOL, types.BOOL), types.BOOL)
        for left in ("int64", "uint64", "double"):
            # The first overload that fits decides the type of an unknown operand.
            for right in sorted(_NUMBERS, key=lambda other: (other != left, other)):
                overload = f"{word}_{left}" if left == right else f"{word}_{left}_{right}"
                operands = (_NUMBERS[left], _NUMBERS[right])
                LIBRARY.overload(name, overload, operands, types.BOOL)
        for suffix, one in {"string": types.STRING, "bytes": types.BYTES}.items():
            LIBRARY.overload(name, f"{word}_{suffix}", (one, one), types.BOOL, cost=_smaller)
        for suffix, one in others.items():
            LIBRARY.overload(name, f"{word}_{suffix}", (one, one), types.BOOL)


def _in_list_cost(args: list[Value], result: Value) -> int:
    return size_of(args[1])


def _declare_collections() -> None:
    optional_list, optional_map = types.optional_of(LIST_A), types.optional_of(MAP_AB)
    _operator("_[_]", _never)
    LIBRARY.overload("_[_]", "index_list", (LIST_A, types.INT), A)
    LIBRARY.overload("_[_]", "index_map", (MAP_AB, A), B)
    LIBRARY.overload(
        "_[_]", "optional_list_index_int", (optional_list, types.INT), types.optional_of(A)
    )
    LIBRARY.overload("_[_]", "optional_map_index_value", (optional_map, A), types.optional_of(B))
    _operator("@in", arithmetic.contains)
    LIBRARY.overload("@in", "in_list", (A, LIST_A), types.BOOL, cost=_in_list_cost)
    LIBRARY.overload("@in", "in_map", (A, MAP_AB), types.BOOL)
    _operator("size", arithmetic.size)
    sized = {"bytes": types.BYTES, "list": LIST_A, "map": MAP_AB, "string": types.STRING}
    for name, one in sized.items():
        LIBRARY.overload("size", f"size_{name}", (one,), types.INT)
        LIBRARY.overload("size", f"{name}_size", (one,), types.INT, member=True)


def _declare_conversions() -> None:
    sources: dict[str, tuple[Type, Implementation, tuple[Type, ...]]] = {
        "bool": (types.BOOL, conversions.to_bool, (types.BOOL, types.STRING)),
        "bytes": (types.BYTES, conversions.to_bytes, (types.BYTES, types.STRING)),
        "double": (
            *(types.DOUBLE, conversions.to_double),
            (types.DOUBLE, types.INT, types.STRING, types.UINT),
        ),
        "duration": (
            *(types.DURATION, conversions.to_duration),
            (types.DURATION, types.INT, types.STRING),
        ),
        "int": (
            *(types.INT, conversions.to_int),
            (types.INT, types.DOUBLE, types.DURATION, types.STRING, types.TIMESTAMP, types.UINT),
        ),
        "string": (
            *(types.STRING, conversions.to_string),
            (
                *(types.STRING, types.BOOL, types.BYTES, types.DOUBLE),
                *(types.DURATION, types.INT, types.TIMESTAMP, types.UINT),
            ),
        ),
        "timestamp": (
            *(types.TIMESTAMP, conversions.to_timestamp),
            (types.TIMESTAMP, types.INT, types.STRING),
        ),
        "uint": (
            *(types.UINT, conversions.to_uint),
            (types.UINT, types.DOUBLE, types.INT, types.STRING),
        ),
    }
    for name, (result, implementation, operands) in sources.items():
        for operand in operands:
            overload = f"{operand.kind}_to_{name}"
            cost = first_traversal if overload in ("string_to_bytes", "bytes_to_string") else None
            LIBRARY.overload(name, overload, (operand,), result, implementation, cost=cost)
    LIBRARY.function("type", conversions.to_type)
    LIBRARY.overload("type", "type", (A,), types.type_of(A))
    LIBRARY.function("dyn", lambda value: value)
    LIBRARY.overload("dyn", "to_dyn", (A,), types.DYN)


def _strings_only(test: Implementation) -> Implementation:
    def run(text: Value, other: Value) -> Value:
        if type(text) is not str or type(other) is not str:
            raise no_such_overload()
        return test(text, other)

    return run


def _declare_strings() -> None:
    string = types.STRING
    tests: dict[str, tuple[str, Implementation, object]] = {
        "contains": ("contains_string", lambda text, part: part in text, _search_cost),
        "endsWith": ("ends_with_string", str.endswith, first_traversal),
        "startsWith": ("starts_with_string", str.startswith, first_traversal),
    }
    for name, (overload, test, cost) in tests.items():
        LIBRARY.function(name, guarded=False)
        LIBRARY.overload(
            name,
            overload,
            (string, string),
            types.BOOL,
            _strings_only(test),
            member=True,
            cost=cost,  # type: ignore[arg-type]
        )
    LIBRARY.function("matches", regular_expressions.matches)
    LIBRARY.overload("matches", "matches", (string, string), types.BOOL)
    LIBRARY.overload(
        "matches", "matches_string", (string, string), types.BOOL, member=True, cost=regex_cost
    )


_declare_logic()
_declare_arithmetic()
_declare_relations()
_declare_collections()
_declare_conversions()
_declare_strings()

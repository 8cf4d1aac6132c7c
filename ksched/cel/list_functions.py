"""Lists and sets: cel-go's extensions and Kubernetes' own functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise

from ksched.cel import arithmetic
from ksched.cel import static_types as types
from ksched.cel.arithmetic import LONGEST_LIST
from ksched.cel.declarations import LIST_A, MAP_AB, A, B, Library
from ksched.cel.errors import CostExceeded, EvaluationError
from ksched.cel.in_pieces import integers
from ksched.cel.values import (
    NONE,
    Duration,
    OptionalValue,
    Uint,
    Value,
    compare,
    describe,
    key_value,
    optional,
    size_of,
    surely_equal,
    type_name,
)

LIBRARY = Library()
LARGEST_COST = 1_000_000
_SUMMABLE: dict[str, tuple[types.Type, Value]] = {
    "int": (types.INT, 0),
    "uint": (types.UINT, Uint(0)),
    "double": (types.DOUBLE, 0.0),
    "duration": (types.DURATION, Duration(0)),
}
_COMPARABLE = {
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "bool": types.BOOL,
    "duration": types.DURATION,
    "timestamp": types.TIMESTAMP,
    "string": types.STRING,
    "bytes": types.BYTES,
}


def _is_sorted(elements: list[Value]) -> bool:
    for one, other in pairwise(elements):
        try:
            if compare(one, other) > 0:
                return False
        except EvaluationError:
            continue
    return True


def _sum_from(start: Value) -> Callable[[list[Value]], Value]:
    def run(elements: list[Value]) -> Value:
        total = start
        for element in elements:
            total = arithmetic.add(total, element)
        return total

    return run


def _extreme(name: str, wanted: int) -> Callable[[list[Value]], Value]:
    def run(elements: list[Value]) -> Value:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        found = elements[0]
        for element in elements[1:]:
            try:
                if compare(found, element) == wanted:
                    found = element
            except EvaluationError:
                continue
        return found

    return run


def _index_of(elements: list[Value], item: Value) -> int:
    for index, element in enumerate(elements):
        if surely_equal(element, item):
            return index
    return -1


def _last_index_of(elements: list[Value], item: Value) -> int:
    for index in range(len(elements) - 1, -1, -1):
        if surely_equal(elements[index], item):
            return index
    return -1


def _traversed(args: list[Value], result: Value) -> int:
    return _traversal(args[0])


def _traversal(value: Value) -> int:
    """A tenth of the bytes of a string, the sum of the members of a collection, otherwise 1."""
    if type(value) is str:
        return int(len(value.encode()) * 0.1)
    if type(value) is bytes:
        return int(len(value) * 0.1)
    if type(value) is list:
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        keys = sum(_traversal(key_value(key)) for key in value)
        return keys + sum(map(_traversal, value.values()))
    return 1


def _slice(elements: list[Value], start: int, end: int) -> list[Value]:
    where = f"cannot slice({start}, {end}),"
    if start < 0 or end < 0:
        raise EvaluationError(f"{where} negative indexes not supported")
    if start > end:
        message = f"{where} start index must be less than or equal to end index"
        raise EvaluationError(message)
    if len(elements) < end:
        raise EvaluationError(f"{where} list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: list[Value], depth: int = 1) -> list[Value]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found = elements
    for _ in range(min(depth, LONGEST_LIST)):
        if not any(type(one) is list for one in found):
            break
        flat: list[Value] = []
        for one in found:
            if len(flat) > LONGEST_LIST:
                raise CostExceeded
            if type(one) is list:
                flat.extend(one)
            else:
                flat.append(one)
        found = flat
    return found


def _range(count: int) -> list[int]:
    if count > LONGEST_LIST:
        raise CostExceeded
    return integers(count)


def _distinct(elements: list[Value]) -> list[Value]:
    _bounded_square(elements)
    found: list[Value] = []
    for element in elements:
        if not any(surely_equal(element, other) for other in found):
            found.append(element)
    return found


def _bounded_square(elements: list[Value]) -> None:
    """Reject quadratic work that exceeds the largest cost limit."""
    if 2 * len(elements) ** 2 > LARGEST_COST:
        raise CostExceeded


def _sorted_by(elements: list[Value], keys: list[Value]) -> list[Value]:
    if len(elements) != len(keys):
        message = "@sortByAssociatedKeys() expected a list of the same size as the associated keys"
        sizes = f"{len(elements)} and {len(keys)} elements respectively"
        raise EvaluationError(f"{message} list, but got {sizes}")
    _bounded_square(elements)
    if not elements:
        return elements
    if type_name(keys[0]) not in _COMPARABLE_NAMES:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    pairs: list[tuple[Value, Value]] = list(zip(keys, elements, strict=True))

    def order(one: tuple[Value, Value], other: tuple[Value, Value]) -> int:
        return compare(one[0], other[0])

    pairs.sort(key=cmp_to_key(order))
    return [element for _, element in pairs]


_COMPARABLE_NAMES = frozenset(one.name for one in _COMPARABLE.values())


def _sort(elements: list[Value]) -> list[Value]:
    return _sorted_by(elements, elements)


def _allocated(factor: float, size: int) -> int:
    return int(size * factor) + 11


def _result_cost(args: list[Value], result: Value) -> int:
    return _allocated(1, size_of(result))


def _flatten_cost(args: list[Value], result: Value) -> int:
    return _allocated(args[1] if len(args) == 2 else 1, size_of(args[0]))


def _square_cost(args: list[Value], result: Value) -> int:
    elements = args[-1]
    factor = 2.1 if elements and type(elements[0]) in (str, bytes) else 2.0
    return _allocated(factor, len(elements) ** 2)


def _contains_all(elements: list[Value], parts: list[Value]) -> bool:
    return all(arithmetic.contains(part, elements) for part in parts)


def _equivalent(one: list[Value], other: list[Value]) -> bool:
    return _contains_all(one, other) and _contains_all(other, one)


def _intersects(one: list[Value], other: list[Value]) -> bool:
    return any(arithmetic.contains(element, other) for element in one)


def _product_cost(factor: int) -> Callable[[list[Value], Value], int]:
    def charge(args: list[Value], result: Value) -> int:
        return 1 + size_of(args[0]) * size_of(args[1]) * factor

    return charge


def _first(elements: list[Value]) -> OptionalValue:
    return optional(elements[0]) if elements else NONE


def _last(elements: list[Value]) -> OptionalValue:
    return optional(elements[-1]) if elements else NONE


def _unwrap(elements: list[Value]) -> list[Value]:
    found: list[Value] = []
    for element in elements:
        if type(element) is not OptionalValue:
            raise EvaluationError(f"value {describe(element)} is not optional")
        if element.present:
            found.append(element.value)
    return found


def _declare_kubernetes() -> None:
    declare = LIBRARY.overload
    largest, smallest = _extreme("max", -1), _extreme("min", 1)
    for name, one in _COMPARABLE.items():
        of = (types.list_of(one),)
        declare(
            *("isSorted", f"list_{name}_is_sorted_bool", of, types.BOOL, _is_sorted),
            member=True,
            cost=_traversed,
        )
        declare("max", f"list_{name}_max_{name}", of, one, largest, member=True, cost=_traversed)
        declare("min", f"list_{name}_min_{name}", of, one, smallest, member=True, cost=_traversed)
    for name, (one, zero) in _SUMMABLE.items():
        of = (types.list_of(one),)
        add_up = _sum_from(zero)
        declare("sum", f"list_{name}_sum_{name}", of, one, add_up, member=True, cost=_traversed)
    pair = (LIST_A, A)
    declare("indexOf", "list_a_index_of_int", pair, types.INT, _index_of, member=True)
    declare("lastIndexOf", "list_a_last_index_of_int", pair, types.INT, _last_index_of, member=True)
    for name in ("list_a_index_of_int", "list_a_last_index_of_int"):
        LIBRARY.costs[name] = _traversed


def _declare_extension() -> None:
    declare, number = LIBRARY.overload, types.INT
    declare("slice", "list_slice", (LIST_A, number, number), LIST_A, _slice, member=True)
    declare("flatten", "list_flatten", (types.list_of(LIST_A),), LIST_A, _flatten, member=True)
    nested = types.list_of(types.DYN)
    declare("flatten", "list_flatten_int", (nested, number), nested, _flatten, member=True)
    for name, one in _COMPARABLE.items():
        del name
        of = types.list_of(one)
        declare("sort", f"list_{one.name}_sort", (of,), of, _sort, member=True, cost=_square_cost)
        overload = f"list_{one.name}_sortByAssociatedKeys"
        declare(
            *("@sortByAssociatedKeys", overload, (LIST_A, of), LIST_A, _sorted_by),
            member=True,
            cost=_square_cost,
        )
    declare("lists.range", "lists_range", (number,), types.list_of(number), _range)
    declare(
        "reverse", "list_reverse", (LIST_A,), LIST_A, lambda one: list(reversed(one)), member=True
    )
    declare("distinct", "list_distinct", (LIST_A,), LIST_A, _distinct, member=True)
    for name in ("list_slice", "lists_range", "list_reverse"):
        LIBRARY.costs[name] = _result_cost
    for name in ("list_flatten", "list_flatten_int"):
        LIBRARY.costs[name] = _flatten_cost
    LIBRARY.costs["list_distinct"] = _square_cost


def _declare_sets() -> None:
    both = (LIST_A, LIST_A)
    rows = {
        "contains": ("list_sets_contains_list", _contains_all, 1),
        "equivalent": ("list_sets_equivalent_list", _equivalent, 2),
        "intersects": ("list_sets_intersects_list", _intersects, 1),
    }
    for name, (overload, test, factor) in rows.items():
        LIBRARY.overload(
            f"sets.{name}", overload, both, types.BOOL, test, cost=_product_cost(factor)
        )


def _declare_maps() -> None:
    def never(*args: Value) -> Value:
        raise AssertionError("the planner inserts in place")

    declare = LIBRARY.overload
    declare("cel.@mapInsert", "@mapInsert_map_key_value", (MAP_AB, A, B), MAP_AB, never)
    declare("cel.@mapInsert", "@mapInsert_map_map", (MAP_AB, MAP_AB), MAP_AB, never)


def _declare_optionals() -> None:
    declare, maybe = LIBRARY.overload, types.optional_of(A)
    of_optional = types.list_of(maybe)
    declare("first", "list_first", (LIST_A,), maybe, _first, member=True)
    declare("last", "list_last", (LIST_A,), maybe, _last, member=True)
    declare("optional.unwrap", "optional_unwrap", (of_optional,), LIST_A, _unwrap)
    declare("unwrapOpt", "optional_unwrapOpt", (of_optional,), LIST_A, _unwrap, member=True)


_declare_kubernetes()
_declare_extension()
_declare_sets()
_declare_maps()
_declare_optionals()

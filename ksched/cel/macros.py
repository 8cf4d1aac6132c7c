"""Macros: calls that the parser replaces by folds and conditions."""

from __future__ import annotations

from collections.abc import Mapping

from ksched.cel.parser import Macro, MacroError, MacroKey
from ksched.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)

ACCUMULATOR = "@result"
"""Not an identifier, so that it cannot occur in an expression."""
UNUSED = "#unused"


def _literal(position: int, value: object) -> Literal:
    return Literal(position, value)


def _call(position: int, function: str, *args: Node) -> Call:
    return Call(position, function, None, list(args))


def _accumulator(position: int) -> Ident:
    return Ident(position, ACCUMULATOR)


def _simple_name(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.position, message)
    if node.name in (ACCUMULATOR, "__result__"):
        message = "iteration variable overwrites accumulator variable"
        raise MacroError(node.position, message)
    return node.name


def _two_names(args: list[Node]) -> tuple[str, str]:
    first = _simple_name(args[0], "argument must be a simple name")
    second = _simple_name(args[1], "argument must be a simple name")
    if first == second:
        raise MacroError(args[1].position, f"duplicate variable name: {first}")
    return first, second


def _has(position: int, target: Node | None, args: list[Node]) -> Node:
    if not isinstance(args[0], Select):
        raise MacroError(args[0].position, "invalid argument to has() macro")
    return Select(position, args[0].operand, args[0].field, test_only=True)


def _names(args: list[Node]) -> tuple[tuple[str, str], Node]:
    """The variables of a quantifier, one or two, and its predicate."""
    if len(args) == 2:
        return (_simple_name(args[0], "argument must be a simple name"), ""), args[1]
    return _two_names(args), args[2]


def _all(position: int, target: Node | None, args: list[Node]) -> Node:
    variables, predicate = _names(args)
    return Comprehension(
        position,
        over=_given(target),
        variables=variables,
        accumulator=(ACCUMULATOR, _literal(position, True)),
        condition=_call(position, "@not_strictly_false", _accumulator(position)),
        step=_call(position, "_&&_", _accumulator(position), predicate),
        result=_accumulator(position),
    )


def _exists(position: int, target: Node | None, args: list[Node]) -> Node:
    variables, predicate = _names(args)
    negated = _call(position, "!_", _accumulator(position))
    return Comprehension(
        position,
        over=_given(target),
        variables=variables,
        accumulator=(ACCUMULATOR, _literal(position, False)),
        condition=_call(position, "@not_strictly_false", negated),
        step=_call(position, "_||_", _accumulator(position), predicate),
        result=_accumulator(position),
    )


def _exists_one(position: int, target: Node | None, args: list[Node]) -> Node:
    variables, predicate = _names(args)
    one = _literal(position, 1)
    more = _call(position, "_+_", _accumulator(position), one)
    return Comprehension(
        position,
        over=_given(target),
        variables=variables,
        accumulator=(ACCUMULATOR, _literal(position, 0)),
        condition=_literal(position, True),
        step=_call(position, "_?_:_", predicate, more, _accumulator(position)),
        result=_call(position, "_==_", _accumulator(position), _literal(position, 1)),
    )


def _collected(
    position: int,
    target: Node | None,
    variables: tuple[str, str],
    condition: Node | None,
    element: Node,
) -> Node:
    """A fold that appends an element for every member, or every member that meets a condition."""
    appended = ListLiteral(position, [element], frozenset())
    step: Node = _call(position, "_+_", _accumulator(position), appended)
    if condition is not None:
        step = _call(position, "_?_:_", condition, step, _accumulator(position))
    return Comprehension(
        position,
        over=_given(target),
        variables=variables,
        accumulator=(ACCUMULATOR, ListLiteral(position, [], frozenset())),
        condition=_literal(position, True),
        step=step,
        result=_accumulator(position),
    )


def _map(position: int, target: Node | None, args: list[Node]) -> Node:
    name = _simple_name(args[0], "argument is not an identifier")
    condition = args[1] if len(args) == 3 else None
    return _collected(position, target, (name, ""), condition, args[-1])


def _filter(position: int, target: Node | None, args: list[Node]) -> Node:
    name = _simple_name(args[0], "argument is not an identifier")
    return _collected(position, target, (name, ""), args[1], args[0])


def _transform_list(position: int, target: Node | None, args: list[Node]) -> Node:
    condition = args[2] if len(args) == 4 else None
    return _collected(position, target, _two_names(args), condition, args[-1])


def _inserted(position: int, target: Node | None, args: list[Node], insertion: list[Node]) -> Node:
    variables = _two_names(args)
    step: Node = _call(position, "cel.@mapInsert", _accumulator(position), *insertion)
    if len(args) == 4:
        step = _call(position, "_?_:_", args[2], step, _accumulator(position))
    return Comprehension(
        position,
        over=_given(target),
        variables=variables,
        accumulator=(ACCUMULATOR, MapLiteral(position, [])),
        condition=_literal(position, True),
        step=step,
        result=_accumulator(position),
    )


def _transform_map(position: int, target: Node | None, args: list[Node]) -> Node:
    key = _two_names(args)[0]
    return _inserted(position, target, args, [Ident(args[0].position, key), args[-1]])


def _transform_map_entry(position: int, target: Node | None, args: list[Node]) -> Node:
    return _inserted(position, target, args, [args[-1]])


def bound(position: int, name: str, value: Node, body: Node) -> Comprehension:
    """Bind a name to ``value`` within ``body``; it is evaluated when first read."""
    return Comprehension(
        position,
        over=ListLiteral(position, [], frozenset()),
        variables=(UNUSED, ""),
        accumulator=(name, value),
        condition=_literal(position, False),
        step=Ident(position, name),
        result=body,
    )


def _bind(position: int, target: Node | None, args: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = args[0]
    if not isinstance(name, Ident):
        raise MacroError(name.position, "cel.bind() variable names must be simple identifiers")
    return bound(position, name.name, args[1], args[2])


def _opt_map(position: int, target: Node | None, args: list[Node]) -> Node:
    return _mapped_optional(position, target, args, "optMap", wrapped=True)


def _opt_flat_map(position: int, target: Node | None, args: list[Node]) -> Node:
    return _mapped_optional(position, target, args, "optFlatMap", wrapped=False)


def _mapped_optional(
    position: int, target: Node | None, args: list[Node], macro: str, *, wrapped: bool
) -> Node:
    if not isinstance(args[0], Ident):
        message = f"{macro}() variable name must be a simple identifier"
        raise MacroError(args[0].position, message)
    optional = _given(target)
    value = Call(position, "value", optional, [])
    mapped: Node = bound(position, args[0].name, value, args[1])
    if wrapped:
        mapped = _call(position, "optional.of", mapped)
    present = Call(position, "hasValue", optional, [])
    return _call(position, "_?_:_", present, mapped, _call(position, "optional.none"))


def _sort_by(position: int, target: Node | None, args: list[Node]) -> Node:
    name = "@__sortBy_input__"
    if isinstance(target, Literal | MapLiteral):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select"
        raise MacroError(target.position, f"{message} expression")
    keys = _map(position, Ident(position, name), args)
    ordered = Call(position, "@sortByAssociatedKeys", Ident(position, name), [keys])
    return bound(position, name, _given(target), ordered)


def _given(target: Node | None) -> Node:
    assert target is not None, "the macro is registered with a target"
    return target


MACROS: Mapping[MacroKey, Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("all", 3, True): _all,
    ("exists", 2, True): _exists,
    ("exists", 3, True): _exists,
    ("exists_one", 2, True): _exists_one,
    ("exists_one", 3, True): _exists_one,
    ("existsOne", 3, True): _exists_one,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map,
    ("optFlatMap", 2, True): _opt_flat_map,
    ("sortBy", 2, True): _sort_by,
}

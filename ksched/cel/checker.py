"""The type checker: a type for every node of an expression, or issues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ksched.cel import static_types as types
from ksched.cel.declarations import Function, Overload
from ksched.cel.errors import Issues
from ksched.cel.static_types import Type, describe
from ksched.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    qualified_name,
    walk,
)
from ksched.cel.unification import Substitutions, most_general
from ksched.cel.values import Uint


@dataclass(slots=True)
class Declarations:
    """The names that an expression may refer to."""

    variables: Mapping[str, Type]
    functions: Mapping[str, Function]
    type_names: Mapping[str, Type]
    """Names of types, which are values of type ``type``."""
    structs: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    """Fields by the name of the struct."""


_LITERAL_TYPES: Mapping[type, Type] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}


def check(root: Node, declarations: Declarations, issues: Issues) -> None:
    """Set the type of every node and the possible overloads of every call."""
    checker = _Checker(declarations, issues)
    checker.check(root)
    if issues:
        return
    for node in walk(root):
        node.type = checker.final(node.type)


class _Checker:
    def __init__(self, declarations: Declarations, issues: Issues) -> None:
        self._declared = declarations
        self._issues = issues
        self._types = Substitutions()
        self._scopes: list[dict[str, Type]] = []
        self._handlers: Mapping[type[Node], Callable[[Node], Type]] = {
            Literal: self._literal,
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def final(self, found: Type) -> Type:
        return self._types.apply(found, free_as_dyn=True)

    def check(self, node: Node) -> Type:
        if not node.checked:
            node.type = self._handlers[type(node)](node)
            node.checked = True
        return node.type

    def _literal(self, node: Node) -> Type:
        assert isinstance(node, Literal)
        return _LITERAL_TYPES[type(node.value)]

    def _lookup(self, name: str) -> Type | None:
        if name.startswith("."):
            name = name[1:]
        else:
            for scope in reversed(self._scopes):
                if name in scope:
                    return scope[name]
        found = self._declared.variables.get(name)
        if found is not None:
            return found
        named = self._declared.type_names.get(name)
        return types.type_of(named) if named is not None else None

    def _undeclared(self, node: Node, name: str) -> Type:
        message = f"undeclared reference to '{name}' (in container '')"
        self._issues.add(node.position, message)
        return types.ERROR

    def _ident(self, node: Node) -> Type:
        assert isinstance(node, Ident)
        found = self._lookup(node.name)
        return self._undeclared(node, node.name) if found is None else found

    def _select(self, node: Node) -> Type:
        assert isinstance(node, Select)
        name = None if node.test_only else qualified_name(node)
        if name is not None and name in self._declared.type_names:
            return types.type_of(self._declared.type_names[name])
        found = self._field(node, node.operand, node.field)
        return types.BOOL if node.test_only else self._types.apply(found)

    def _field(self, node: Node, operand: Node, name: str, *, optional: bool = False) -> Type:
        operand_type = self._types.apply(self.check(operand))
        target, was_optional = types.unwrap_optional(operand_type)
        found = types.ERROR
        if target.kind == "map":
            found = target.params[1]
        elif target.kind == "struct":
            found = self._struct_field(node, target, name)
        elif target.kind == "param":
            self._types.assignable(types.DYN, target)
            found = types.DYN
        else:
            if not types.is_dyn_or_error(target):
                message = f"type '{describe(target)}' does not support field selection"
                self._issues.add(node.position, message)
            found = types.DYN
        return types.optional_of(found) if was_optional or optional else found

    def _struct_field(self, node: Node, target: Type, name: str) -> Type:
        fields = self._declared.structs.get(target.name)
        if fields is None:
            self._issues.add(node.position, f"unexpected failed resolution of '{target.name}'")
            return types.ERROR
        if name not in fields:
            self._issues.add(node.position, f"undefined field '{name}'")
            return types.ERROR
        return fields[name]

    def _call(self, node: Node) -> Type:
        assert isinstance(node, Call)
        if node.function == "_?._":
            name = node.args[1]
            assert isinstance(name, Literal)
            node.overloads = ["select_optional_field"]
            found = self._field(node, node.args[0], str(name.value), optional=True)
            return self._types.apply(found)
        for arg in node.args:
            self.check(arg)
        if node.target is None:
            function = self._declared.functions.get(node.function.removeprefix("."))
            if function is None:
                return self._undeclared(node, node.function)
            node.function = function.name
            return self._resolve(node, function)
        prefix = qualified_name(node.target)
        if prefix is not None:
            function = self._declared.functions.get(f"{prefix.removeprefix('.')}.{node.function}")
            if function is not None:
                node.target, node.function = None, function.name
                return self._resolve(node, function)
        self.check(node.target)
        function = self._declared.functions.get(node.function)
        if function is None:
            return self._undeclared(node, node.function)
        return self._resolve(node, function)

    def _resolve(self, node: Call, function: Function) -> Type:
        given = [node.target.type] if node.target is not None else []
        given += [arg.type for arg in node.args]
        if function.name in ("_&&_", "_||_"):
            return self._logic(node, function, given)
        found: Type | None = None
        for overload in function.overloads:
            if overload.member != (node.target is not None):
                continue
            result = self._match(overload, given)
            if result is None:
                continue
            node.overloads.append(overload.id)
            if found is None:
                found = result
            elif not types.is_dyn(found) and result != found:
                found = types.DYN
        if found is None:
            self._no_overload(node, function, given)
            return types.ERROR
        return found

    def _match(self, overload: Overload, given: Sequence[Type]) -> Type | None:
        wanted, result = overload.args, overload.result
        if len(wanted) != len(given):
            return None
        names = overload.type_params()
        if names:
            fresh = {name: self._types.fresh() for name in sorted(names)}
            wanted = tuple(_instantiate(one, fresh) for one in wanted)
            result = _instantiate(result, fresh)
        if not self._types.all_assignable(given, wanted):
            return None
        return self._types.apply(result)

    def _no_overload(self, node: Call, function: Function, given: Sequence[Type]) -> None:
        names = [describe(self.final(one)) for one in given]
        target = f"{names.pop(0)}." if node.target is not None else ""
        message = f"found no matching overload for '{function.name}' applied to"
        self._issues.add(node.position, f"{message} '{target}({', '.join(names)})'")

    def _logic(self, node: Call, function: Function, given: Sequence[Type]) -> Type:
        node.overloads = [function.overloads[0].id]
        misfits: list[int] = []
        for index, (arg, found) in enumerate(zip(node.args, given, strict=True)):
            if not self._types.assignable(found, types.BOOL):
                self._mismatch(arg, types.BOOL, found)
                misfits.append(index)
        # In cel-go a chain is a balanced tree of pairs: only the root's own terms make it an error.
        own_terms = {2: (0, 1), 3: (2,)}.get(len(given), ())
        return types.ERROR if set(misfits).intersection(own_terms) else types.BOOL

    def _mismatch(self, node: Node, wanted: Type, found: Type) -> None:
        message = f"expected type '{describe(wanted)}' but found '{describe(found)}'"
        self._issues.add(node.position, message)

    def _join(self, before: Type | None, found: Type) -> Type:
        if before is None:
            return found
        if self._types.assignable(before, found):
            return most_general(before, found)
        return types.DYN

    def _unwrapped(self, node: Node, found: Type) -> Type:
        inner, was_optional = types.unwrap_optional(found)
        if not was_optional and not types.is_dyn(inner):
            self._mismatch(node, types.optional_of(inner), inner)
        return inner

    def _list(self, node: Node) -> Type:
        assert isinstance(node, ListLiteral)
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            found = self.check(element)
            if index in node.optional:
                found = self._unwrapped(element, found)
            joined = self._join(joined, found)
        return types.list_of(self._types.fresh() if joined is None else joined)

    def _map(self, node: Node) -> Type:
        assert isinstance(node, MapLiteral)
        keys: Type | None = None
        values: Type | None = None
        for entry in node.entries:
            keys = self._join(keys, self.check(entry.key))
            found = self.check(entry.value)
            if entry.optional:
                found = self._unwrapped(entry.value, found)
            values = self._join(values, found)
        if keys is None or values is None:
            return types.map_of(self._types.fresh(), self._types.fresh())
        return types.map_of(keys, values)

    def _struct(self, node: Node) -> Type:
        assert isinstance(node, StructLiteral)
        for _, value in node.fields:
            self.check(value)
        found = self._lookup(node.name)
        if found is None:
            return self._undeclared(node, node.name)
        if found.kind != "type":
            self._issues.add(node.position, f"'{found.name}' is not a type")
        else:
            self._issues.add(node.position, f"'{found.params[0].name}' is not a message type")
        return types.ERROR

    def _comprehension(self, node: Node) -> Type:
        assert isinstance(node, Comprehension)
        over = self._types.apply(self.check(node.range))
        accumulated = self.check(node.init)
        self._scopes.append({node.accumulator: accumulated})
        first, second = self._iteration_types(node, over)
        inner = {node.variable: first}
        if node.variable2:
            inner[node.variable2] = second
        self._scopes.append(inner)
        self.check(node.condition)
        self._assert_type(node.condition, types.BOOL)
        self.check(node.step)
        self._assert_type(node.step, accumulated)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        return self._types.apply(node.result.type)

    def _iteration_types(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        if over.kind == "list":
            element = over.params[0]
            return (types.INT, element) if node.variable2 else (element, types.DYN)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if (types.is_dyn_or_error(over) and over.kind != "any") or over.kind == "param":
            self._types.assignable(types.DYN, over)
            return types.DYN, types.DYN
        message = f"expression of type '{describe(over)}' cannot be range of a comprehension"
        self._issues.add(node.range.position, f"{message} (must be list, map, or dynamic)")
        return types.ERROR, types.ERROR

    def _assert_type(self, node: Node, wanted: Type) -> None:
        if not self._types.assignable(wanted, node.type):
            self._mismatch(node, wanted, node.type)


def _instantiate(original: Type, fresh: Mapping[str, Type]) -> Type:
    if original.kind == "param":
        return fresh[original.name]
    if not original.params:
        return original
    params = tuple(_instantiate(param, fresh) for param in original.params)
    return types.with_params(original, params)


def check_literals_are_homogeneous(root: Node, issues: Issues) -> None:
    """Report literals with elements of several types; as in cel-go, when all types are known."""
    for node in walk(root):
        if isinstance(node, ListLiteral):
            elements = [
                (one, _present(one.type) if index in node.optional else one.type)
                for index, one in enumerate(node.elements)
            ]
            _report_mismatches(elements, 1, issues)
        elif isinstance(node, MapLiteral):
            keys = [(one.key, one.key.type) for one in node.entries]
            values = [
                (one.value, _present(one.value.type) if one.optional else one.value.type)
                for one in node.entries
            ]
            _report_mismatches(keys, len(keys), issues)
            _report_mismatches(values, len(values), issues)


def _present(optional: Type) -> Type:
    return types.unwrap_optional(optional)[0]


def _report_mismatches(elements: Sequence[tuple[Node, Type]], most: int, issues: Issues) -> None:
    """Report up to this many elements whose type differs from the first one's."""
    wanted = elements[0][1] if elements else types.DYN
    others = [(node, found) for node, found in elements if found != wanted]
    for node, found in others[:most]:
        message = f"expected type '{describe(wanted)}' but found '{describe(found)}'"
        issues.add(node.position, message)

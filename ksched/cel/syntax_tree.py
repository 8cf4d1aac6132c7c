"""Nodes of a parsed expression.

A node may have several parents (macros use an argument twice), so a traversal must record the nodes
it has visited. ``position`` is the offset of the token that messages point to; the checker
writes ``type`` and, on calls, ``overloads``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ksched.cel.static_types import DYN, Type


class Node:
    """Any expression."""

    __slots__ = ("checked", "position", "type")

    def __init__(self, position: int) -> None:
        self.position = position
        self.type: Type = DYN
        self.checked = False

    def children(self) -> Iterator[Node]:
        """Return the direct subexpressions."""
        yield from ()


class Literal(Node):
    """A constant; the value's Python type is that of ``ksched.cel.values``."""

    __slots__ = ("value",)

    def __init__(self, position: int, value: object) -> None:
        super().__init__(position)
        self.value = value


class Ident(Node):
    """A variable or the name of a type."""

    __slots__ = ("name",)

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name


class Select(Node):
    """``operand.field``, or the test for its presence."""

    __slots__ = ("field", "operand", "test_only")

    def __init__(self, position: int, operand: Node, field: str, test_only: bool = False) -> None:
        super().__init__(position)
        self.operand = operand
        self.field = field
        self.test_only = test_only

    def children(self) -> Iterator[Node]:
        yield self.operand


class Call(Node):
    """``function(args)`` or ``target.function(args)``; operators are functions."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, position: int, function: str, target: Node | None, args: list[Node]) -> None:
        super().__init__(position)
        self.function = function
        self.target = target
        self.args = args
        self.overloads: list[str] = []

    def children(self) -> Iterator[Node]:
        if self.target is not None:
            yield self.target
        yield from self.args


class ListLiteral(Node):
    """``[a, ?b]``"""

    __slots__ = ("elements", "optional")

    def __init__(self, position: int, elements: list[Node], optional: frozenset[int]) -> None:
        super().__init__(position)
        self.elements = elements
        self.optional = optional

    def children(self) -> Iterator[Node]:
        yield from self.elements


class Entry:
    """``key: value`` of a map."""

    __slots__ = ("key", "optional", "value")

    def __init__(self, key: Node, value: Node, optional: bool) -> None:
        self.key = key
        self.value = value
        self.optional = optional


class MapLiteral(Node):
    """``{a: b, ?c: d}``"""

    __slots__ = ("entries",)

    def __init__(self, position: int, entries: list[Entry]) -> None:
        super().__init__(position)
        self.entries = entries

    def children(self) -> Iterator[Node]:
        for entry in self.entries:
            yield entry.key
            yield entry.value


class StructLiteral(Node):
    """``Name{field: value}``"""

    __slots__ = ("fields", "name")

    def __init__(self, position: int, name: str, fields: list[tuple[str, Node]]) -> None:
        super().__init__(position)
        self.name = name
        self.fields = fields

    def children(self) -> Iterator[Node]:
        for _, value in self.fields:
            yield value


class Comprehension(Node):
    """A fold over a list or map: what macros become.

    ``accumulator`` starts as ``init`` and becomes ``step`` for each element while ``condition``
    holds; ``result`` is the value. ``variable2`` is empty for folds over one variable.
    """

    __slots__ = (
        *("accumulator", "condition", "init", "range"),
        *("result", "step", "variable", "variable2"),
    )

    def __init__(
        self,
        position: int,
        *,
        over: Node,
        variables: tuple[str, str],
        accumulator: tuple[str, Node],
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(position)
        self.range = over
        self.variable, self.variable2 = variables
        self.accumulator, self.init = accumulator
        self.condition = condition
        self.step = step
        self.result = result

    def children(self) -> Iterator[Node]:
        yield from (self.range, self.init, self.condition, self.step, self.result)


def qualified_name(node: Node) -> str | None:
    """Return ``a.b.c`` as one name, if the node consists of names only."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(parts)))


def walk(root: Node) -> Iterator[Node]:
    """Yield every node once, however many parents it has."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(node.children())

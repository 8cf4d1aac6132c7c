"""Upper bounds of what an expression can cost and how long it can take, where they are simple.

Costs are counted while an expression runs only if their bound is missing or too high: counting
takes longer than most expressions do. Where the bound of the work is missing or high, an event loop
should leave the evaluation to a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from ksched.cel.macros import ACCUMULATOR
from ksched.cel.regex_program import LARGEST_PROGRAM
from ksched.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    walk,
)

LONGEST_STRING = 1024
"""Characters that an input's string is assumed to have at most; attributes have 64."""
LONGEST_ATTRIBUTE = 64
LARGEST_MAP = 64
"""Entries that an input's map is assumed to have at most; devices have 32 attributes."""
LITERAL_COST = 32
"""A list or map costs at most this beside its elements."""
HIGHEST_BOUND = 10**12
"""Bounds above are not needed exactly."""

_NO_LONGER = frozenset(
    [
        "_&&_",
        "_||_",
        "_?_:_",
        "!_",
        "@not_strictly_false",
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "_[_]",
        "_[?_]",
        "_?._",
        "-_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "@in",
        "size",
        "bool",
        "double",
        "duration",
        "dyn",
        "int",
        "timestamp",
        "type",
        "uint",
        "contains",
        "endsWith",
        "startsWith",
        "matches",
        "lowerAscii",
        "upperAscii",
        "substring",
        "trim",
        "charAt",
        "indexOf",
        "lastIndexOf",
        "quantity",
        "isQuantity",
        "sign",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "add",
        "sub",
        "semver",
        "isSemver",
        "major",
        "minor",
        "patch",
        "or",
        "orValue",
        "hasValue",
        "value",
        "optional.of",
        "optional.none",
    ]
)
"""Functions whose results are no longer than their operands."""
_CONSTANT_SIZE = frozenset({"matches", "contains"})


@dataclass(slots=True)
class _Sizes:
    """The longest values that an expression can meet."""

    text: int
    """Characters of a string."""
    literal: int = 0
    """Elements of a list or map that the expression writes down."""

    @property
    def collection(self) -> int:
        return max(self.literal, LARGEST_MAP)

    def add(self, node: Node) -> None:
        if isinstance(node, ListLiteral):
            self.literal = max(self.literal, len(node.elements))
        elif isinstance(node, MapLiteral):
            self.literal = max(self.literal, len(node.entries))
        elif isinstance(node, Literal) and isinstance(node.value, str | bytes):
            self.text = max(self.text, len(node.value))


def cost_bound(root: Node) -> int | None:
    """The highest cost, or ``None`` for functions that build something and for too many steps."""
    return _bound(root, LONGEST_STRING, _call_cost)


def work_bound(root: Node) -> int | None:
    """The most steps that evaluation takes, in units of about half a microsecond, or ``None``.

    Unlike the cost it grows with the length of patterns times that of texts, not of literals.
    """
    return _bound(root, LONGEST_ATTRIBUTE, _call_work)


def _bound(root: Node, text: int, of_call: Callable[[Call, _Sizes], int | None]) -> int | None:
    sizes = _Sizes(text)
    for node in walk(root):
        sizes.add(node)
    bounds: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if not ready:
            if isinstance(node, Literal | Ident):
                bounds[id(node)] = 2
            elif id(node) not in bounds:
                stack.append((node, True))
                stack.extend((one, False) for one in node.children())
            continue
        own: int | None = LITERAL_COST if isinstance(node, ListLiteral | MapLiteral) else 2
        if isinstance(node, Call):
            own = LITERAL_COST if _appends(node) else of_call(node, sizes)
        elif isinstance(node, Comprehension) and not _binds(node):
            own = sizes.collection * (bounds[id(node.condition)] + bounds[id(node.step)] + 2)
        if own is None:
            return None
        bounds[id(node)] = own + sum(bounds[id(one)] for one in node.children())
        if bounds[id(node)] > HIGHEST_BOUND:
            return None
    return bounds[id(root)]


def _call_cost(node: Call, sizes: _Sizes) -> int | None:
    if node.function not in _NO_LONGER:
        return None
    if node.function not in _CONSTANT_SIZE:
        return 2 + max(sizes.text, sizes.collection)
    pattern = _known_text(node)
    if pattern is None:
        return None
    return 2 + ceil((1 + sizes.text) * 0.1) * ceil(len(pattern) * 0.25)


def _call_work(node: Call, sizes: _Sizes) -> int | None:
    if node.function not in _NO_LONGER:
        return None
    if node.function != "matches":
        return 4 + sizes.literal
    pattern = _known_text(node)
    if pattern is None:
        return None
    repeated = LARGEST_PROGRAM if "{" in pattern else 0
    return 2 + (1 + sizes.text) * max(len(pattern), repeated)


def _known_text(node: Call) -> str | None:
    """The last argument, if it is a string that is written down."""
    last = node.args[-1]
    return last.value if isinstance(last, Literal) and isinstance(last.value, str) else None


def _binds(node: Comprehension) -> bool:
    """Whether this is a name for a value, not a loop."""
    return isinstance(node.condition, Literal) and node.condition.value is False


def _appends(node: Call) -> bool:
    """Whether a fold adds one element to its list, or one key to its map."""
    if node.function == "cel.@mapInsert":
        return len(node.args) == 3
    first = node.args[0] if node.args else None
    return node.function == "_+_" and isinstance(first, Ident) and first.name == ACCUMULATOR

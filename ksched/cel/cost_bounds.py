"""Upper bounds of the cost and the steps of an evaluation, where they are simple to derive.

Costs are counted during evaluation only if their bound is missing or above the limit: counting
takes longer than most evaluations. Where the bound of the steps is missing or high, an event loop
should run the evaluation in a thread.
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
"""Assumed limit of the characters of an input string; attributes have at most 64."""
LONGEST_ATTRIBUTE = 64
LARGEST_MAP = 64
"""Assumed limit of the entries of an input map; devices have at most 32 attributes."""
LITERAL_COST = 32
"""The highest cost of a list or map besides its elements."""
HIGHEST_BOUND = 10**12
"""Above this the exact bound is irrelevant."""

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
    """The sizes of the longest values during an evaluation."""

    text: int
    """Characters of a string."""
    literal: int = 0
    """Elements of a list or map literal in the expression."""

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
    """Return the highest cost; ``None`` for functions that build values and for too many steps."""
    return _bound(root, LONGEST_STRING, _call_cost)


def work_bound(root: Node) -> int | None:
    """Return the most steps of an evaluation, of about half a microsecond each, or ``None``.

    Unlike the cost it grows with a pattern's instructions (``x{100}`` has many) times the text.
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
    """Return the last argument, if it is a string literal."""
    last = node.args[-1]
    return last.value if isinstance(last, Literal) and isinstance(last.value, str) else None


def _binds(node: Comprehension) -> bool:
    """Whether a fold only binds a name to a value (``cel.bind``)."""
    return isinstance(node.condition, Literal) and node.condition.value is False


def _appends(node: Call) -> bool:
    """Whether each step of a fold adds one element to its list, or one key to its map."""
    if node.function == "cel.@mapInsert":
        return len(node.args) == 3
    first = node.args[0] if node.args else None
    return node.function == "_+_" and isinstance(first, Ident) and first.name == ACCUMULATOR

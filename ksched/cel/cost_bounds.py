"""An upper bound of what an expression can cost, where there is a simple one.

Costs are counted while an expression runs only if this bound is missing or too high: counting takes
longer than most expressions do.
"""

from __future__ import annotations

from math import ceil

from ksched.cel.syntax_tree import Call, Comprehension, ListLiteral, Literal, MapLiteral, Node, walk

LONGEST_STRING = 1024
"""Characters that an input's string is assumed to have at most; attributes have 64."""

_NO_LONGER = frozenset(
    [
        "_&&_",
        "_||_",
        "_?_:_",
        "!_",
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


def cost_bound(root: Node) -> int | None:
    """The bound, or ``None`` for folds and for functions that build something."""
    nodes = list(walk(root))
    literals = (one.value for one in nodes if isinstance(one, Literal))
    longest = max((len(one) for one in literals if isinstance(one, str | bytes)), default=0)
    longest = max(longest, LONGEST_STRING)
    total = 0
    for node in nodes:
        if isinstance(node, Comprehension | MapLiteral):
            return None
        if isinstance(node, ListLiteral):
            if not all(isinstance(one, Literal) for one in node.elements):
                return None
            longest = max(longest, len(node.elements))
    for node in nodes:
        total += 2
        if not isinstance(node, Call):
            continue
        if node.function not in _NO_LONGER:
            return None
        if node.function in _CONSTANT_SIZE:
            pattern = node.args[-1]
            if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
                return None
            total += ceil((1 + longest) * 0.1) * ceil(len(pattern.value) * 0.25)
        else:
            total += longest
    return total

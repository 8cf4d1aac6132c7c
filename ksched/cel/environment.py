"""Compiles expressions for declared variables and functions, and evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksched.cel import (
    list_functions,
    optional_functions,
    quantities,
    standard_functions,
    string_functions,
    versions,
)
from ksched.cel.checker import Declarations, check, check_literals_are_homogeneous
from ksched.cel.conversions import to_duration, to_timestamp
from ksched.cel.cost_bounds import cost_bound, work_bound
from ksched.cel.declarations import Library
from ksched.cel.errors import CompileError, EvaluationError, Issues
from ksched.cel.macros import MACROS
from ksched.cel.parser import parse
from ksched.cel.planner import Planner, Run
from ksched.cel.recursion import room_for
from ksched.cel.regex_program import RegexError
from ksched.cel.regular_expressions import compile_regex
from ksched.cel.static_types import Type
from ksched.cel.syntax_tree import Call, Literal, Node, walk
from ksched.cel.values import Value

_SHALLOW = 200
"""Stack frames of an evaluation up to which the recursion limit is not raised."""
_FRAMES_PER_NODE = 10


def kubernetes_library() -> Library:
    """Return all functions of Kubernetes' environments."""
    library = Library()
    for part in (
        standard_functions.LIBRARY,
        optional_functions.LIBRARY,
        quantities.LIBRARY,
        versions.LIBRARY,
        string_functions.LIBRARY,
        list_functions.LIBRARY,
    ):
        library.add(part)
    return library


@dataclass(slots=True)
class Environment:
    """The functions, variables and types that expressions may use."""

    library: Library
    variables: Mapping[str, Type]
    structs: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    """Types of variables with fields, by name."""

    def check(self, text: str) -> CheckedExpression:
        """Parse and type-check an expression; raises ``CompileError``."""
        issues = Issues(text)
        root = parse(text, MACROS, issues)
        if root is None:
            raise CompileError(f"compilation failed: {issues.describe()}")
        depth = _depth(root)
        with room_for(_FRAMES_PER_NODE * depth):
            declared = Declarations(
                self.variables, self.library.functions, self.library.type_names, self.structs
            )
            check(root, declared, issues)
            if not issues:
                check_literals_are_homogeneous(root, issues)
                _check_literals(root, issues)
        if issues:
            raise CompileError(f"compilation failed: {issues.describe()}")
        return CheckedExpression(self, root, depth)


@dataclass(slots=True)
class CheckedExpression:
    """A type-checked expression."""

    environment: Environment
    root: Node
    depth: int

    @property
    def type(self) -> Type:
        return self.root.type

    def plan(self, cost_limit: int) -> Program:
        """Plan the evaluation; raises ``CompileError`` for constants without a value."""
        bound = cost_bound(self.root)
        limit = cost_limit if bound is None or bound > cost_limit else None
        places = {name: place for place, name in enumerate(self.environment.variables, 1)}
        library = self.environment.library
        planner = Planner(places, library.functions, library.costs, limit)
        with room_for(_FRAMES_PER_NODE * self.depth):
            run = planner.plan(self.root).run
        return Program(self.root, run, planner.size, self.depth, work_bound(self.root))


class Program:
    """A compiled expression; several threads may evaluate it at a time."""

    def __init__(self, root: Node, run: Run, size: int, depth: int, work: int | None) -> None:
        self.root = root
        self.work = work
        """The most steps of an evaluation (``work_bound``)."""
        self._run = run
        self._spare = [None] * (size - 2)
        self._frames = 6 * depth

    def evaluate(self, variable: Value) -> Value:
        """Return the value for one input; raises ``EvaluationError`` or ``CostExceeded``."""
        frame = [0, variable, *self._spare]
        if self._frames <= _SHALLOW:
            return self._run(frame)
        with room_for(self._frames):
            return self._run(frame)


def _depth(root: Node) -> int:
    """Return the length of the longest path from the root to a leaf."""
    depths: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            depths[id(node)] = 1 + max((depths[id(one)] for one in node.children()), default=0)
        elif id(node) not in depths:
            stack.append((node, True))
            stack.extend((one, False) for one in node.children())
    return depths[id(root)]


def _check_literals(root: Node, issues: Issues) -> None:
    """Report literals that are not valid times or patterns."""
    for node in walk(root):
        if not isinstance(node, Call) or not node.args or not isinstance(node.args[0], Literal):
            continue
        literal = node.args[0]
        try:
            if node.function == "duration":
                to_duration(literal.value)
            elif node.function == "timestamp":
                to_timestamp(literal.value)
            elif node.function == "matches":
                compile_regex(str(literal.value))
        except (EvaluationError, RegexError):
            issues.add(literal.position, f"invalid {node.function} argument")

"""The planner: a checked expression to nested Python functions.

Each function takes the frame (a list: the cost so far, the variables, then the variables of folds,
each at its own place) and returns the value or raises ``EvaluationError``. With tracking, costs are
counted as in cel-go; a plan whose bound is below the limit has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ksched.cel import folds, lookups
from ksched.cel.declarations import CallCost, Function
from ksched.cel.errors import CompileError, CostExceeded, EvaluationError
from ksched.cel.macros import ACCUMULATOR
from ksched.cel.regex_program import RegexError
from ksched.cel.regular_expressions import KNOWN_PATTERN, compile_regex
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
from ksched.cel.values import (
    OpaqueValue,
    OptionalValue,
    TypeValue,
    Value,
    equal,
    map_key,
    no_such_overload,
)

Frame = list[Value]
Run = Callable[[Frame], Value]

CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
"""Functions that are evaluated by the planner if their argument is constant."""
_ATTRIBUTES = frozenset({"_[_]", "_[?_]", "_?._", "_?_:_"})
_PRIMITIVE = (bool, float, int, str)
_LIST_COST, _MAP_COST = 10, 30


class Plan(NamedTuple):
    """A planned node: ``run`` returns its value; a ``constant`` one is always ``value``."""

    run: Run
    constant: bool = False
    value: Value = None


def constant(value: Value) -> Plan:
    return Plan(lambda frame: value, True, value)


class Planner:
    """Plans one expression."""

    def __init__(
        self,
        variables: Mapping[str, int],
        functions: Mapping[str, Function],
        costs: Mapping[str, CallCost],
        cost_limit: int | None,
    ) -> None:
        self.size = len(variables) + 1
        """By variable, its place in the frame."""
        self._scope: list[dict[str, tuple[int, str]]] = [
            {name: (place, "variable") for name, place in variables.items()}
        ]
        self._functions = functions
        self._costs = costs
        self._limit = cost_limit
        self._planned: dict[tuple[int, bool], Plan] = {}

    def plan(self, node: Node, *, resolve: bool = False) -> Plan:
        """Plan a node; ``resolve`` where cel-go does not charge for reading a variable."""
        key = (id(node), resolve)
        found = self._planned.get(key)
        if found is None:
            found = self._planned[key] = self._plan(node, resolve)
        return found

    def _plan(self, node: Node, resolve: bool) -> Plan:
        if isinstance(node, Literal):
            return constant(node.value)
        if isinstance(node, Ident):
            return self._ident(node, resolve)
        if isinstance(node, Select):
            return self._select(node, resolve)
        if isinstance(node, ListLiteral):
            return self._list(node)
        if isinstance(node, MapLiteral):
            return self._map(node)
        if isinstance(node, Comprehension):
            return self._comprehension(node)
        assert isinstance(node, Call), f"{type(node).__name__} passed the checker"
        return self._call(node, resolve)

    def place(self) -> int:
        """Return an unused place in the frame."""
        self.size += 1
        return self.size - 1

    def _charged(self, run: Run, cost: int) -> Run:
        if self._limit is None or not cost:
            return run
        limit = self._limit

        def charge(frame: Frame) -> Value:
            value = run(frame)
            frame[0] += cost
            if frame[0] > limit:
                raise CostExceeded
            return value

        return charge

    def _find(self, name: str) -> tuple[int, str] | None:
        if name.startswith("."):
            return self._scope[0].get(name[1:])
        for scope in reversed(self._scope):
            if name in scope:
                return scope[name]
        return None

    def _ident(self, node: Ident, resolve: bool) -> Plan:
        found = self._find(node.name)
        if found is None:
            return constant(TypeValue(node.type.params[0].name if node.type.params else "type"))
        place, kind = found
        run = folds.READERS[kind](place)
        return Plan(self._charged(run, 0 if resolve else 1))

    def _is_attribute(self, node: Node) -> bool:
        if isinstance(node, Call):
            return node.function in _ATTRIBUTES
        return isinstance(node, Ident | Select)

    def _operand(self, node: Node) -> Plan:
        """Plan the operand of a selection; the cost of its variable is part of the chain's."""
        return self.plan(node, resolve=self._is_attribute(node))

    def _chain_cost(self, node: Node, resolve: bool) -> int:
        """Return the cost of a chain of selections besides its qualifiers."""
        if resolve:
            return 0
        while True:
            if isinstance(node, Select):
                node = node.operand
            elif isinstance(node, Call) and node.function in _ATTRIBUTES:
                if node.function == "_?_:_":
                    return 0
                node = node.args[0]
            else:
                return 1

    def _path(self, node: Node) -> tuple[int, list[str]] | None:
        """Return variable and keys of a node like ``variable.a["b"].c``."""
        keys: list[str] = []
        while True:
            if isinstance(node, Select) and not node.test_only:
                keys.append(node.field)
                node = node.operand
            elif isinstance(node, Call) and node.function == "_[_]":
                key = node.args[1]
                if not isinstance(key, Literal) or type(key.value) is not str:
                    return None
                keys.append(key.value)
                node = node.args[0]
            elif isinstance(node, Ident):
                found = self._find(node.name)
                if found is None or found[1] != "variable":
                    return None
                return found[0], keys[::-1]
            else:
                return None

    def _select(self, node: Select, resolve: bool) -> Plan:
        if node.type.kind == "type" and not node.test_only:
            return constant(TypeValue(node.type.params[0].name))
        if node.test_only:
            return self._presence(node)
        path = self._path(node)
        if path is not None:
            return self._read_path(node, path, resolve)
        operand, field = self._operand(node.operand).run, node.field
        run = self._charged(lambda frame: lookups.get(operand(frame), field), 1)
        return Plan(self._charged(run, self._chain_cost(node, resolve)))

    def _read_path(self, node: Node, path: tuple[int, list[str]], resolve: bool) -> Plan:
        place, keys = path
        run = lookups.path_reader(place, keys)
        return Plan(self._charged(run, len(keys) + self._chain_cost(node, resolve)))

    def _presence(self, node: Select) -> Plan:
        operand, field = self._operand(node.operand).run, node.field
        return Plan(self._charged(lambda frame: lookups.has(operand(frame), field), 1))

    def _index(self, node: Call, resolve: bool) -> Plan:
        path = self._path(node)
        if path is not None:
            return self._read_path(node, path, resolve)
        operand = self._operand(node.args[0]).run
        key = self._operand(node.args[1]).run
        run: Run
        if node.function == "_[_]":
            run = self._charged(lambda frame: lookups.get(operand(frame), key(frame)), 1)
        else:
            run = self._charged_if_present(
                lambda frame: lookups.get_optional(operand(frame), key(frame))
            )
        return Plan(self._charged(run, self._chain_cost(node, resolve)))

    def _charged_if_present(self, run: Run) -> Run:
        if self._limit is None:
            return run

        def charge(frame: Frame) -> Value:
            value = run(frame)
            if value.present:
                frame[0] += 1
            return value

        return charge

    def _list(self, node: ListLiteral) -> Plan:
        plans = [self.plan(element) for element in node.elements]
        runs = [(one.run, index in node.optional) for index, one in enumerate(plans)]
        build = folds.list_builder(runs)
        if not node.optional and all(one.constant for one in plans):
            return constant(build([]))
        return Plan(self._charged(build, _LIST_COST))

    def _map(self, node: MapLiteral) -> Plan:
        plans = [(self.plan(one.key), self.plan(one.value)) for one in node.entries]
        optional = [one.optional for one in node.entries]
        parts = [(*pair, flag) for pair, flag in zip(plans, optional, strict=True)]
        build = folds.map_builder([(key.run, value.run, flag) for key, value, flag in parts])
        if not any(optional) and all(key.constant and value.constant for key, value in plans):
            return constant(build([]))
        return Plan(self._charged(build, _MAP_COST))

    def _call(self, node: Call, resolve: bool) -> Plan:
        special = self._SPECIAL.get(node.function)
        if special is not None:
            return special(self, node, resolve)
        plans = [self.plan(one) for one in node.children()]
        function = self._functions[node.function]
        implementation = function.resolve(node.overloads)
        if node.function in CONVERSIONS and len(plans) == 1 and plans[0].constant:
            return self._folded(implementation, plans[0].value)
        if node.function in KNOWN_PATTERN and len(plans) >= 2 and plans[1].constant:
            implementation = self._with_pattern(node.function, plans[1].value, implementation)
        if node.function == "@in" and node.overloads == ["in_list"] and plans[1].constant:
            return self._membership(node, plans)
        if node.function == "_+_" and self._appends(node):
            return self._append(node)
        return self._plain_call(node, implementation, plans)

    def _folded(self, implementation: Callable[..., Value], value: Value) -> Plan:
        try:
            return constant(implementation(value))
        except EvaluationError as error:
            raise CompileError(f"program instantiation failed: {error}") from None

    def _with_pattern(
        self, function: str, pattern: Value, implementation: Callable[..., Value]
    ) -> Callable[..., Value]:
        if type(pattern) is not str:
            return implementation
        try:
            return KNOWN_PATTERN[function](compile_regex(pattern))
        except RegexError as error:
            raise CompileError(f"program instantiation failed: {error}") from None

    def _plain_call(
        self, node: Call, implementation: Callable[..., Value], plans: list[Plan]
    ) -> Plan:
        runs = [one.run for one in plans]
        if self._limit is not None:
            cost = self._costs.get(node.overloads[0]) if len(node.overloads) == 1 else None
            by_name = self._costs.get(node.function)
            return Plan(self._tracked_call(implementation, runs, by_name or cost))
        known = runs and all(one.constant for one in plans)
        if known and node.function not in KNOWN_PATTERN:
            try:
                return Plan(constant(implementation(*(one.value for one in plans))).run)
            except EvaluationError:
                pass
        if len(runs) == 1:
            only = runs[0]
            return Plan(lambda frame: implementation(only(frame)))
        if len(runs) == 2:
            left, right = runs
            return Plan(lambda frame: implementation(left(frame), right(frame)))
        return Plan(lambda frame: implementation(*[run(frame) for run in runs]))

    def _tracked_call(
        self, implementation: Callable[..., Value], runs: list[Run], cost: CallCost | None
    ) -> Run:
        limit = self._limit
        assert limit is not None, "costs are tracked"

        def run(frame: Frame) -> Value:
            args = [one(frame) for one in runs]
            value = implementation(*args)
            frame[0] += 1 if cost is None else cost(args, value)
            if frame[0] > limit:
                raise CostExceeded
            return value

        return run

    def _logic(self, node: Call, resolve: bool) -> Plan:
        runs = [self.plan(one).run for one in node.args]
        return Plan(folds.logic(runs, node.function == "_||_"))

    def _conditional(self, node: Call, resolve: bool) -> Plan:
        condition = self.plan(node.args[0]).run
        when_true = self._operand(node.args[1]).run
        when_false = self._operand(node.args[2]).run

        def run(frame: Frame) -> Value:
            chosen = condition(frame)
            if chosen is True:
                return when_true(frame)
            if chosen is False:
                return when_false(frame)
            raise no_such_overload()

        return Plan(run)

    def _equality(self, node: Call, resolve: bool) -> Plan:
        plans = [self.plan(one) for one in node.args]
        negated = node.function == "_!=_"
        if self._limit is not None:
            test = folds.not_equal if negated else equal
            return Plan(self._tracked_call(test, [one.run for one in plans], self._costs["equals"]))
        left, right = plans
        if right.constant and type(right.value) is str:
            return Plan(folds.equals_string(left.run, right.value, negated))
        one, other = left.run, right.run
        if negated:
            return Plan(lambda frame: folds.not_equal(one(frame), other(frame)))
        return Plan(lambda frame: equal(one(frame), other(frame)))

    def _not_strictly_false(self, node: Call, resolve: bool) -> Plan:
        operand = self.plan(node.args[0]).run

        def run(frame: Frame) -> Value:
            try:
                value = operand(frame)
            except EvaluationError:
                return True
            return value if type(value) is bool else True

        return Plan(self._charged(run, 1))

    def _optional_or(self, node: Call, resolve: bool) -> Plan:
        assert node.target is not None, "or and orValue are methods"
        first, second = self.plan(node.target).run, self.plan(node.args[0]).run
        unwrapped = node.function == "orValue"

        def run(frame: Frame) -> Value:
            value = first(frame)
            if type(value) is not OptionalValue:
                return value
            if value.present:
                return value.value if unwrapped else value
            return second(frame)

        return Plan(run)

    def _membership(self, node: Call, plans: list[Plan]) -> Plan:
        """Plan ``x in [constants]`` as a lookup in a set."""
        members = plans[1].value
        if not members:
            return constant(False)
        if not all(isinstance(one, _PRIMITIVE) for one in members):
            return self._plain_call(node, self._functions["@in"].resolve(node.overloads), plans)
        known = frozenset(map(map_key, members))
        element = plans[0].run

        def run(frame: Frame) -> Value:
            value = element(frame)
            if isinstance(value, OpaqueValue) and (problem := value.unhashable()) is not None:
                raise EvaluationError(problem)
            return map_key(value) in known

        return Plan(run)

    def _appends(self, node: Call) -> bool:
        first, second = node.args
        return (
            isinstance(first, Ident)
            and first.name == ACCUMULATOR
            and isinstance(second, ListLiteral)
            and len(second.elements) == 1
            and not second.optional
        )

    def _append(self, node: Call) -> Plan:
        """Plan ``accumulator + [element]`` in place: the accumulator has no other reader."""
        second = node.args[1]
        assert isinstance(second, ListLiteral)
        element = self.plan(second.elements[0])
        found = self._find(ACCUMULATOR)
        assert found is not None, "a fold has an accumulator"
        run = folds.appending(found[0], element.run)
        return Plan(self._charged(run, 2 + (0 if element.constant else _LIST_COST)))

    def _insert(self, node: Call, resolve: bool) -> Plan:
        found = self._find(ACCUMULATOR)
        assert found is not None, "a fold has an accumulator"
        runs = [self.plan(one).run for one in node.args[1:]]
        return Plan(self._charged(folds.inserting(found[0], runs), 2))

    def _comprehension(self, node: Comprehension) -> Plan:
        if isinstance(node.condition, Literal) and node.condition.value is False:
            return self._binding(node)
        over = self.plan(node.range).run
        init = self.plan(node.init).run
        accumulator, first, second = self.place(), self.place(), self.place()
        self._scope.append({node.accumulator: (accumulator, "accumulator")})
        inner = {node.variable: (first, "element")}
        if node.variable2:
            inner[node.variable2] = (second, "element")
        self._scope.append(inner)
        condition, step = self.plan(node.condition), self.plan(node.step)
        self._scope.pop()
        result = self.plan(node.result)
        self._scope.pop()
        fold = folds.Fold(
            over=over,
            init=init,
            condition=None if condition.constant else condition.run,
            step=step.run,
            result=result.run,
            places=(accumulator, first, second if node.variable2 else 0),
        )
        return Plan(fold.run)

    def _binding(self, node: Comprehension) -> Plan:
        """Plan a bound name, whose value is evaluated when first read."""
        init = self.plan(node.init).run
        place = self.place()
        self._scope.append({node.accumulator: (place, "lazy")})
        result = self.plan(node.result).run
        self._scope.pop()

        def run(frame: Frame) -> Value:
            frame[place] = folds.Pending(init)
            return result(frame)

        return Plan(run)

    _SPECIAL: Mapping[str, Callable[[Planner, Call, bool], Plan]] = {
        "_&&_": _logic,
        "_||_": _logic,
        "_?_:_": _conditional,
        "_==_": _equality,
        "_!=_": _equality,
        "_[_]": _index,
        "_[?_]": _index,
        "_?._": _index,
        "@not_strictly_false": _not_strictly_false,
        "or": _optional_or,
        "orValue": _optional_or,
        "cel.@mapInsert": _insert,
    }

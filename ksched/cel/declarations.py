"""Function declarations: signatures for the checker, implementations for the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ksched.cel import static_types as types
from ksched.cel.static_types import Type
from ksched.cel.values import Value, no_such_overload, type_name

Implementation = Callable[..., Value]
CallCost = Callable[[list[Value], Value], int]
"""Computes the cost of a call from its arguments and result."""

_ANY_VALUE = frozenset({"any", "dyn", "param"})


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function."""

    id: str
    args: tuple[Type, ...]
    result: Type
    member: bool = False
    implementation: Implementation | None = None
    """``None`` where the function has one implementation for all overloads."""

    def accepts(self, values: Iterable[Value]) -> bool:
        """Whether values have the signature's types, as far as types are known at run time."""
        for wanted, value in zip(self.args, values, strict=True):
            if wanted.kind not in _ANY_VALUE and wanted.name != type_name(value):
                return False
        return True

    def type_params(self) -> set[str]:
        found: set[str] = set()
        pending = [*self.args, self.result]
        while pending:
            candidate = pending.pop()
            if candidate.kind == "param":
                found.add(candidate.name)
            pending.extend(candidate.params)
        return found


@dataclass(slots=True)
class Function:
    """A function: a name with its overloads."""

    name: str
    overloads: list[Overload] = field(default_factory=list)
    implementation: Implementation | None = None
    """The implementation of all overloads; checks its operands itself."""
    guarded: bool = True
    """Whether operand types are checked before an overload's implementation is called."""

    def resolve(self, ids: list[str]) -> Implementation:
        """Return the function to call, given the overloads that the checker found possible."""
        if self.implementation is not None:
            return self.implementation
        bound = [one for one in self.overloads if one.implementation is not None]
        if len(ids) == 1:
            bound = [one for one in bound if one.id == ids[0]] or bound
        if len(bound) == 1:
            return self._direct(bound[0])
        return self._dispatching(bound)

    def _direct(self, overload: Overload) -> Implementation:
        implementation = overload.implementation
        assert implementation is not None, f"{overload.id} is bound"
        if not self.guarded:
            return implementation
        name, accepts = self.name, overload.accepts
        if not any(one.kind in _ANY_VALUE for one in overload.args):
            if len(overload.args) == 1:
                return _guarded_single(name, overload, implementation)
            if len(overload.args) == 2:
                return _guarded_pair(name, overload, implementation)

        def call(*args: Value) -> Value:
            if not accepts(args):
                raise no_such_overload(name, *args)
            return implementation(*args)

        return call

    def _dispatching(self, overloads: list[Overload]) -> Implementation:
        name = self.name

        def call(*args: Value) -> Value:
            for overload in overloads:
                if len(overload.args) == len(args) and overload.accepts(args):
                    assert overload.implementation is not None, f"{overload.id} is bound"
                    return overload.implementation(*args)
            raise no_such_overload(name, *args)

        return call


def _guarded_single(
    name: str, overload: Overload, implementation: Implementation
) -> Implementation:
    wanted = overload.args[0].name

    def call(operand: Value) -> Value:
        if type_name(operand) == wanted:
            return implementation(operand)
        raise no_such_overload(name, operand)

    return call


def _guarded_pair(name: str, overload: Overload, implementation: Implementation) -> Implementation:
    """The check of two operands, the most frequent case, without a loop."""
    first, second = (one.name for one in overload.args)

    def call(left: Value, right: Value) -> Value:
        if type_name(left) == first and type_name(right) == second:
            return implementation(left, right)
        raise no_such_overload(name, left, right)

    return call


class Library:
    """A set of functions, and the costs of their calls."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.costs: dict[str, CallCost] = {}
        """By overload id."""
        self.type_names: dict[str, Type] = {}

    def function(
        self, name: str, implementation: Implementation | None = None, *, guarded: bool = True
    ) -> Function:
        """Return a function; declares it if it is new."""
        found = self.functions.get(name)
        if found is None:
            found = self.functions[name] = Function(name, [], implementation, guarded)
        return found

    def overload(
        self,
        name: str,
        overload_id: str,
        args: tuple[Type, ...],
        result: Type,
        implementation: Implementation | None = None,
        *,
        member: bool = False,
        cost: CallCost | None = None,
    ) -> None:
        """Declare one overload of a function."""
        overload = Overload(overload_id, args, result, member, implementation)
        self.function(name).overloads.append(overload)
        if cost is not None:
            self.costs[overload_id] = cost

    def add(self, other: Library) -> None:
        """Add all declarations of another library; overloads are appended."""
        for name, function in other.functions.items():
            own = self.functions.get(name)
            if own is None:
                self.functions[name] = Function(
                    name, list(function.overloads), function.implementation, function.guarded
                )
            else:
                own.overloads.extend(function.overloads)
                own.implementation = own.implementation or function.implementation
        self.costs.update(other.costs)
        self.type_names.update(other.type_names)


A, B = types.param("A"), types.param("B")
LIST_A = types.list_of(A)
MAP_AB = types.map_of(A, B)


def fixed_cost(cost: int) -> CallCost:
    """A constant cost."""

    def charge(args: list[Value], result: Any) -> int:
        return cost

    return charge

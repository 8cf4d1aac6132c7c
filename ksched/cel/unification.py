"""Unification of types and bindings of type variables."""

from __future__ import annotations

from collections.abc import Sequence

from ksched.cel import static_types as types
from ksched.cel.static_types import Type

_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_GENERIC = frozenset({"opaque", "list", "map"})


class Substitutions:
    """Bindings of type variables; a failed unification leaves them unchanged."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._log: list[tuple[str, Type | None]] = []
        self._fresh = 0

    def fresh(self) -> Type:
        """Return a new type variable."""
        self._fresh += 1
        return types.param(f"_var{self._fresh - 1}")

    def assignable(self, given: Type, wanted: Type) -> bool:
        """Whether the types can be unified; if so, variables are bound accordingly."""
        return self.all_assignable((given,), (wanted,))

    def all_assignable(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        mark = len(self._log)
        if self._all_agree(given, wanted):
            return True
        while len(self._log) > mark:
            name, before = self._log.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def apply(self, original: Type, *, free_as_dyn: bool = False) -> Type:
        """Replace the variables of a type by their bindings."""
        if original.kind == "param":
            bound = self._bound.get(original.name)
            if bound is not None:
                return self.apply(bound, free_as_dyn=free_as_dyn)
            return types.DYN if free_as_dyn else original
        if not original.params:
            return original
        params = tuple(self.apply(param, free_as_dyn=free_as_dyn) for param in original.params)
        return types.with_params(original, params)

    def _bind(self, name: str, bound: Type) -> None:
        self._log.append((name, self._bound.get(name)))
        self._bound[name] = bound

    def _all_agree(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        if len(given) != len(wanted):
            return False
        return all(self._agree(one, other) for one, other in zip(given, wanted, strict=True))

    def _agree(self, given: Type, wanted: Type) -> bool:
        if wanted.kind == "param":
            valid, was_bound = self._substitutes(given, wanted)
            if valid or was_bound:
                return valid
        if given.kind == "param":
            return self._substitutes(wanted, given)[0]
        if types.is_dyn_or_error(given) or types.is_dyn_or_error(wanted):
            return True
        if given.kind == "null" or wanted.kind == "null":
            other = wanted if given.kind == "null" else given
            return other.kind == "null" or other.kind in _NULLABLE
        if given.kind == "type":
            return wanted.kind == "type"
        if given.kind in _GENERIC:
            same = given.kind == wanted.kind and given.name == wanted.name
            return same and self._all_agree(given.params, wanted.params)
        return given.kind == wanted.kind and given.name == wanted.name

    def _substitutes(self, candidate: Type, variable: Type) -> tuple[bool, bool]:
        """Return whether a variable can be bound to a type, and whether it was bound already."""
        if candidate == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if candidate == bound:
                return True, True
            if not self._agree(candidate, bound):
                return False, True
            general = most_general(candidate, bound)
            if not self._occurs(variable, general):
                self._bind(variable.name, general)
            return True, True
        if self._occurs(variable, candidate):
            return False, False
        self._bind(variable.name, candidate)
        return True, False

    def _occurs(self, variable: Type, within: Type) -> bool:
        if within == variable:
            return True
        if within.kind == "param":
            bound = self._bound.get(within.name)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, param) for param in within.params)


def most_general(one: Type, other: Type) -> Type:
    """Return the less specific of two types that can be unified."""
    return one if _at_most_as_specific(one, other) else other


def _at_most_as_specific(one: Type, other: Type) -> bool:
    if types.is_dyn(one) or one.kind == "param":
        return True
    if types.is_dyn(other) or other.kind == "param" or one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.name != other.name or len(one.params) != len(other.params):
        return False
    pairs = zip(one.params, other.params, strict=True)
    return all(_at_most_as_specific(first, second) for first, second in pairs)

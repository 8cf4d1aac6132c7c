"""Label selectors, compiled for fast matching and comparison.

Follows ``metav1.LabelSelectorAsSelector`` and ``labels.Requirement`` (apimachinery, v1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from ksched.api.label_syntax import (
    are_label_values,
    label_value_problems,
    qualified_name_problems,
)
from ksched.api.objects import LabelSelector

IN = "In"
NOT_IN = "NotIn"
EXISTS = "Exists"
DOES_NOT_EXIST = "DoesNotExist"

_ABSENT: frozenset[str | None] = frozenset({None})


class InvalidSelector(ValueError):
    """A selector that the API server would have rejected."""


class Requirement(NamedTuple):
    """A set of values of one label, and whether the label must be inside or outside of it.

    ``None`` in the set stands for the absent label, so that every operator is the same test:
    ``Exists`` is "not in {None}" and ``NotIn`` is satisfied by an absent label.
    """

    key: str
    values: frozenset[str | None]
    inside: bool

    def matches_value(self, value: str | None) -> bool:
        return (value in self.values) is self.inside

    def __str__(self) -> str:
        if self.values == _ABSENT:
            return f"!{self.key}" if self.inside else self.key
        values = ",".join(sorted(value for value in self.values if value is not None))
        return f"{self.key} {'in' if self.inside else 'notin'} ({values})"


class Selector(NamedTuple):
    """The requirements of a label selector, all of which must hold.

    Equal selectors select the same labels: order, repetition and notation (``matchLabels`` or
    ``In`` with one value) make no difference.
    """

    requirements: tuple[Requirement, ...]
    matches_nothing: bool = False

    @property
    def empty(self) -> bool:
        """True when it does not restrict anything; the selector of nothing is not empty."""
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.matches_nothing:
            return False
        for key, values, inside in self.requirements:
            if (labels.get(key) in values) is not inside:
                return False
        return True

    def with_labels(self, labels: Mapping[str, str]) -> Selector:
        """Return this selector with ``key=value`` added for each label (``matchLabelKeys``).

        The selector of nothing is returned unchanged.
        """
        if self.matches_nothing:
            return self
        return selector_of((*self.requirements, *from_match_labels(labels).requirements))

    def intersection(self, other: Selector) -> Selector:
        """Return the selector of what both select."""
        if self.matches_nothing or other.matches_nothing:
            return NOTHING
        return selector_of((*self.requirements, *other.requirements))

    def __str__(self) -> str:
        if self.matches_nothing:
            return "<nothing>"
        return ",".join(str(requirement) for requirement in self.requirements) or "<everything>"


EVERYTHING = Selector(())
NOTHING = Selector((), matches_nothing=True)


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile a label selector; ``None`` selects nothing, an empty one everything.

    Raises ``InvalidSelector`` naming everything that is wrong with the first bad requirement.
    """
    return NOTHING if selector is None else selector_of(requirements_of(selector))


def requirements_of(selector: LabelSelector) -> Iterator[Requirement]:
    """Compile a selector's requirements one by one; raises ``InvalidSelector`` at the first bad."""
    for key, value in selector.match_labels.items():
        yield _checked(key, IN, (value,), "matchLabels")
    for index, expression in enumerate(selector.match_expressions):
        path = f"matchExpressions[{index}]"
        yield _checked(expression.key, expression.operator, expression.values, path)


def from_match_labels(labels: Mapping[str, str]) -> Selector:
    """Compile a plain map (the selector of a Service), without validation."""
    return selector_of(Requirement(key, frozenset((value,)), True) for key, value in labels.items())


def requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """Build a requirement of one of the four operators without checking key and values."""
    if operator == IN:
        return Requirement(key, frozenset(values), True)
    if operator == NOT_IN:
        return Requirement(key, frozenset(values), False)
    if operator == EXISTS:
        return Requirement(key, _ABSENT, False)
    if operator == DOES_NOT_EXIST:
        return Requirement(key, _ABSENT, True)
    raise InvalidSelector(f'"{operator}" is not a valid label selector operator')


def requirement_problems(path: str, key: str, operator: str, values: Sequence[str]) -> list[str]:
    """Return what is wrong with key and values of a requirement, each with its field path."""
    problems = []
    if key_problems := qualified_name_problems(key):
        problems.append(f'{path}.key: Invalid value: "{key}": {"; ".join(key_problems)}')
    if operator in (IN, NOT_IN) and not values:
        problems.append(
            f"{path}.values: Invalid value: []: "
            "for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in (EXISTS, DOES_NOT_EXIST) and values:
        problems.append(
            f"{path}.values: Invalid value: {_quoted(values)}: "
            "values set must be empty for exists and does not exist"
        )
    if are_label_values(values):
        return problems
    for index, value in enumerate(values):
        if value_problems := label_value_problems(value):
            what = "; ".join(value_problems)
            problems.append(f'{path}.values[{index}][{key}]: Invalid value: "{value}": {what}')
    return problems


def aggregate(problems: Sequence[str]) -> str:
    """Join problems the way Kubernetes prints several errors as one."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _checked(key: str, operator: str, values: Sequence[str], path: str) -> Requirement:
    checked = requirement(key, operator, values)
    if problems := requirement_problems(path, key, operator, values):
        raise InvalidSelector(aggregate(problems))
    return checked


def selector_of(requirements: Iterable[Requirement]) -> Selector:
    """Return the selector with all of these requirements."""
    found = list(requirements)
    if len(set(map(_key, found))) == len(found):
        return Selector(tuple(sorted(found, key=_key)))
    # Formatting a requirement with many values is slow; only needed to break ties.
    return Selector(tuple(sorted(set(found), key=lambda one: (one.key, str(one)))))


_key = attrgetter("key")


def _quoted(values: Sequence[str]) -> str:
    return "[" + ",".join(f'"{value}"' for value in values) + "]"

"""Node selector terms, compiled for evaluation per node and per distinct label value.

A columnar caller evaluates ``requirement.matches_value`` once per distinct value of a label and
never reads a node. Follows ``component-helpers/scheduling/corev1/nodeaffinity`` (v1.36): terms are
ORed, the requirements of a term ANDed, an empty term matches nothing, and neither does a term that
cannot be parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ksched.api.label_selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    NOT_IN,
    InvalidSelector,
    aggregate,
    requirement,
    requirement_problems,
)
from ksched.api.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PreferredSchedulingTerm,
)

GT = "Gt"
LT = "Lt"
NODE_NAME_FIELD = "metadata.name"

_LABEL_OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GT, LT)
_FIELD_OPERATORS = (IN, NOT_IN)
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


class NodeRequirement(NamedTuple):
    """One condition on one label of a node, or on its name when ``is_field``.

    ``values`` and ``inside`` as in a label's ``Requirement``; with ``Gt`` and ``Lt`` the value has
    to be above ``above`` or below ``below`` instead.
    """

    key: str
    values: frozenset[str | None] = frozenset()
    inside: bool = True
    above: int | None = None
    below: int | None = None
    is_field: bool = False

    def matches_value(self, value: str | None) -> bool:
        """Whether a node with this value satisfies it; ``None`` means an absent label."""
        if self.above is None and self.below is None:
            return (value in self.values) is self.inside
        number = None if value is None else parse_int64(value)
        if number is None:
            return False
        return number > self.above if self.above is not None else number < (self.below or 0)

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        if not self.is_field:
            return self.matches_value(labels.get(self.key))
        # Fields other than the name are unknown and read as empty, as in kube-scheduler.
        return self.matches_value(node_name if self.key == NODE_NAME_FIELD else "")


class NodeTerm(NamedTuple):
    """A conjunction of requirements; with ``problems`` it could not be parsed and never matches."""

    requirements: tuple[NodeRequirement, ...]
    problems: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        if self.problems:
            return False
        return all(wanted.matches(labels, node_name) for wanted in self.requirements)


class NodeTerms(NamedTuple):
    """A node selector: a disjunction of terms. Without any it matches nothing."""

    terms: tuple[NodeTerm, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(problem for term in self.terms for problem in term.problems)

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        return any(term.matches(labels, node_name) for term in self.terms)


class RequiredNodeAffinity(NamedTuple):
    """A pod's ``nodeSelector`` and required node affinity, both of which must hold.

    ``affinity`` is ``None`` when the pod has none, which is not the same as one without terms.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeTerms | None = None

    @property
    def empty(self) -> bool:
        """True when every node matches."""
        return not self.node_selector and self.affinity is None

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        for key, value in self.node_selector:
            if labels.get(key) != value:
                return False
        return self.affinity is None or self.affinity.matches(labels, node_name)


class PreferredTerm(NamedTuple):
    weight: int
    term: NodeTerm


class PreferredTerms(NamedTuple):
    """Weighted terms of a preferred node affinity."""

    terms: tuple[PreferredTerm, ...] = ()

    def score(self, labels: Mapping[str, str], node_name: str) -> int:
        """Return the sum of the weights of the terms that match."""
        return sum(weight for weight, term in self.terms if term.matches(labels, node_name))


def compile_required(spec: PodSpec) -> RequiredNodeAffinity:
    """Compile a pod's required conditions on nodes."""
    required = None
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        required = spec.affinity.node_affinity.required
    affinity = None if required is None else compile_node_selector(required)
    return RequiredNodeAffinity(tuple(spec.node_selector.items()), affinity)


def compile_node_selector(selector: NodeSelector, path: str = "") -> NodeTerms:
    """Compile a node selector; ``problems`` lists what could not be parsed."""
    prefix = f"{path}.nodeSelectorTerms" if path else "nodeSelectorTerms"
    return NodeTerms(
        tuple(
            compile_term(term, f"{prefix}[{index}]")
            for index, term in enumerate(selector.node_selector_terms)
            if not _is_empty(term)
        )
    )


def compile_preferred(terms: Sequence[PreferredSchedulingTerm], path: str = "") -> PreferredTerms:
    """Compile preferred terms, without those of weight 0 and empty preferences.

    Raises ``InvalidSelector`` with the problems of all terms that cannot be parsed.
    """
    compiled = tuple(
        PreferredTerm(weighted.weight, compile_term(weighted.preference, f"{path}[{index}]"))
        for index, weighted in enumerate(terms)
        if weighted.weight != 0 and not _is_empty(weighted.preference)
    )
    problems = [problem for weighted in compiled for problem in weighted.term.problems]
    if problems:
        raise InvalidSelector(aggregate(problems))
    return PreferredTerms(compiled)


def compile_term(term: NodeSelectorTerm, path: str = "") -> NodeTerm:
    """Compile one term; parse errors go to its ``problems``. An empty term never matches."""
    if _is_empty(term):
        return NodeTerm((), (f"{path}: Required value: an empty term matches nothing",))
    expressions = compile_expressions(term.match_expressions, path)
    fields = compile_fields(term.match_fields, path)
    return NodeTerm(
        expressions.requirements + fields.requirements, expressions.problems + fields.problems
    )


def compile_expressions(
    wanted_by_labels: Sequence[NodeSelectorRequirement], path: str = "", first: int = 0
) -> NodeTerm:
    """Compile some of a term's ``matchExpressions``, of which the first has this index."""
    requirements: list[NodeRequirement] = []
    problems: list[str] = []
    for index, wanted in enumerate(wanted_by_labels, first):
        where = f"{path}.matchExpressions[{index}]"
        found = _label_problems(where, wanted)
        problems += found
        if not found:
            requirements.append(_label_requirement(wanted))
    return NodeTerm(tuple(requirements), tuple(problems))


def compile_fields(wanted_by_fields: Sequence[NodeSelectorRequirement], path: str = "") -> NodeTerm:
    """Compile a term's ``matchFields``."""
    requirements: list[NodeRequirement] = []
    problems: list[str] = []
    for index, wanted in enumerate(wanted_by_fields):
        where = f"{path}.matchFields[{index}]"
        found = _field_problems(where, wanted)
        problems += found
        if not found:
            inside = wanted.operator == IN
            values: frozenset[str | None] = frozenset(wanted.values)
            requirements.append(NodeRequirement(wanted.key, values, inside, is_field=True))
    return NodeTerm(tuple(requirements), tuple(problems))


def parse_int64(text: str) -> int | None:
    """Parse a decimal int64 as Go does; ``None`` if it is not one."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def _label_requirement(wanted: NodeSelectorRequirement) -> NodeRequirement:
    if wanted.operator == GT:
        return NodeRequirement(wanted.key, above=int(wanted.values[0]))
    if wanted.operator == LT:
        return NodeRequirement(wanted.key, below=int(wanted.values[0]))
    key, values, inside = requirement(wanted.key, wanted.operator, wanted.values)
    return NodeRequirement(key, values, inside)


def _label_problems(path: str, wanted: NodeSelectorRequirement) -> list[str]:
    if wanted.operator not in _LABEL_OPERATORS:
        return [_unsupported(path, wanted.operator, _LABEL_OPERATORS)]
    problems = requirement_problems(path, wanted.key, wanted.operator, wanted.values)
    if wanted.operator in (GT, LT):
        if len(wanted.values) != 1:
            problems.append(
                f"{path}.values: Invalid value: {wanted.values}: "
                "for 'Gt', 'Lt' operators, exactly one value is required"
            )
        for index, value in enumerate(wanted.values):
            if parse_int64(value) is None:
                problems.append(
                    f'{path}.values[{index}]: Invalid value: "{value}": '
                    "for 'Gt', 'Lt' operators, the value must be an integer"
                )
    return problems


def _field_problems(path: str, wanted: NodeSelectorRequirement) -> list[str]:
    if wanted.operator not in _FIELD_OPERATORS:
        return [_unsupported(path, wanted.operator, _FIELD_OPERATORS)]
    if len(wanted.values) != 1:
        return [f"{path}.values: Invalid value: {wanted.values}: must have one element"]
    return []


def _unsupported(path: str, operator: str, supported: Sequence[str]) -> str:
    names = ", ".join(f'"{name}"' for name in supported)
    return f'{path}.operator: Unsupported value: "{operator}": supported values: {names}'

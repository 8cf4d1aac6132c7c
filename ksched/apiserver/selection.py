"""Label and field selectors in the form they have in a URL.

Parsing gives a predicate over an object's labels or selectable fields; the empty selector is
``None`` so that callers can skip the evaluation altogether.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ksched.apiserver.status_errors import StatusError, bad_request, invalid_value

Predicate: TypeAlias = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(?P<key>[^\s!=<>()]+)\s+(?P<op>in|notin)\s+\((?P<values>[^()]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s!=<>()]+)\s*(?P<op>==|=|!=|<|>)\s*(?P<value>[^\s!=<>()]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s!=<>()]+)$")


def parse_label_selector(text: str) -> Predicate | None:
    """Parse ``a=b,c!=d,e in (f,g),h notin (i),j,!k``; raises a 400 for anything else."""
    terms = [term.strip() for term in _split_outside_parentheses(text)]
    if terms in ([], [""]):
        return None
    return _all_of([_label_term(term) for term in terms])


def label_selector_predicate(selector: Mapping[str, Any] | None) -> Predicate:
    """Return the predicate of a ``metav1.LabelSelector``: ``None`` selects nothing, ``{}`` all.

    Raises ``ValueError`` for an operator that does not exist.
    """
    if selector is None:
        return lambda labels: False
    terms = [_equals(key, value) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], frozenset(expression.get("values") or [])
        match expression["operator"]:
            case "In":
                terms.append(_one_of(key, values))
            case "NotIn":
                terms.append(_none_of(key, values))
            case "Exists":
                terms.append(_exists(key))
            case "DoesNotExist":
                terms.append(_absent(key))
            case other:
                raise ValueError(f'"{other}" is not a valid label selector operator')
    return _all_of(terms)


def parse_field_selector(text: str, supported: Mapping[str, str]) -> Predicate | None:
    """Parse ``a=b,c!=d``; ``supported`` maps the names of this resource to stored names."""
    terms: list[Predicate] = []
    for term in _split_unescaped(text):
        if not term:
            continue
        key, operator, value = _field_term(term, text)
        if key not in supported:
            raise bad_request(f"field label not supported: {key}")
        stored = supported[key]
        terms.append(_field_equals(stored, value, operator != "!="))
    return _all_of(terms) if terms else None


def _field_term(term: str, text: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        key, found, value = term.partition(operator)
        if found:
            return key, operator, re.sub(r"\\([\\,=])", r"\1", value)
    raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")


def _label_term(term: str) -> Predicate:
    if found := _SET.match(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return (_one_of if found["op"] == "in" else _none_of)(found["key"], values)
    if found := _EQUALITY.match(term):
        key, operator, value = found["key"], found["op"], found["value"]
        if operator in ("<", ">"):
            return _compared(key, operator, value)
        return _differs(key, value) if operator == "!=" else _equals(key, value)
    if found := _EXISTS.match(term):
        return (_absent if found["not"] else _exists)(found["key"])
    raise _unparsable(f"found '{term}', expected: in, notin, =, ==, !=, gt, lt")


def _unparsable(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _split_outside_parentheses(text: str) -> list[str]:
    terms, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            terms.append(text[start:position])
            start = position + 1
    return [*terms, text[start:]]


def _split_unescaped(text: str) -> list[str]:
    return re.split(r"(?<!\\),", text)


def _all_of(terms: list[Predicate]) -> Predicate:
    if len(terms) == 1:
        return terms[0]
    return lambda values: all(term(values) for term in terms)


def _equals(key: str, value: str) -> Predicate:
    return lambda labels: labels.get(key) == value


def _differs(key: str, value: str) -> Predicate:
    return lambda labels: labels.get(key) != value


def _one_of(key: str, values: frozenset[str]) -> Predicate:
    return lambda labels: labels.get(key) in values


def _none_of(key: str, values: frozenset[str]) -> Predicate:
    return lambda labels: labels.get(key) not in values


def _exists(key: str) -> Predicate:
    return lambda labels: key in labels


def _absent(key: str) -> Predicate:
    return lambda labels: key not in labels


def _compared(key: str, operator: str, bound: str) -> Predicate:
    try:
        limit = int(bound)
    except ValueError:
        problem = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _unparsable(str(invalid_value("values[0]", bound, problem))) from None

    def compare(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > limit if operator == ">" else value < limit

    return compare


def _field_equals(key: str, value: str, wanted: bool) -> Predicate:
    # An absent field is an empty one: fields are a projection of the object, not optional labels.
    return lambda fields: (fields.get(key, "") == value) is wanted

"""Compiled node selectors over columns: evaluated per distinct value, never per node.

A pod may have a hundred thousand requirements, most of which have the same result for all nodes (no
node has the label, or the value): these cost a look-up and no array. Evaluation stops as soon as
the result is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ksched.api.node_selectors import (
    NODE_NAME_FIELD,
    NodeRequirement,
    NodeTerm,
    NodeTerms,
    PreferredTerms,
    RequiredNodeAffinity,
    parse_int64,
)
from ksched.framework import ClassColumn, NodeRows
from ksched.tuning import LOOK_EVERY

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Matched = Bools | bool
"""An element for each node, or one value for all nodes."""


def matches_required(required: RequiredNodeAffinity, nodes: NodeRows) -> Bools:
    """Mark the nodes that satisfy both a pod's nodeSelector and its required node affinity."""
    matcher = NodeMatcher(nodes)
    matched = matcher.labelled(required.node_selector)
    if matched is not False and required.affinity is not None:
        matched = both(matched, matcher.any_of(required.affinity.terms))
    return matcher.as_array(matched)


def matches_terms(selector: NodeTerms, nodes: NodeRows) -> Bools:
    """Mark the nodes that satisfy at least one term."""
    matcher = NodeMatcher(nodes)
    return matcher.as_array(matcher.any_of(selector.terms))


def preference(preferred: PreferredTerms, nodes: NodeRows) -> Ints:
    """Return, per node, the sum of the weights of the preferred terms that it satisfies."""
    matcher = NodeMatcher(nodes)
    total = np.zeros(len(nodes), np.int64)
    for weight, term in preferred.terms:
        matched = matcher.term(term)
        if matched is not False:
            total += weight * matched
    return total


class NodeMatcher:
    """Evaluates selectors on the same nodes; shared columns are looked up once."""

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self._columns: dict[str, ClassColumn[str | None]] = {}
        self._integers: dict[str, tuple[Ints, Bools]] = {}

    def as_array(self, matched: Matched) -> Bools:
        return matched if isinstance(matched, np.ndarray) else np.full(len(self._nodes), matched)

    def any_of(self, terms: Sequence[NodeTerm]) -> Matched:
        matched: Matched = False
        evaluated = 0
        for term in terms:
            found = self.term(term)
            if found is True:
                return True
            if found is False:
                continue
            matched = found if matched is False else matched | found
            evaluated += 1
            if not evaluated % LOOK_EVERY and np.all(matched):
                return True
        return matched

    def labelled(self, labels: Sequence[tuple[str, str]]) -> Matched:
        """Mark the nodes that have all of these labels."""
        matched: Matched = True
        for key, value in labels:
            found = self._nodes.label(key).among((value,))
            if found is None:
                return False
            matched = both(matched, found)
        return matched

    def term(self, term: NodeTerm) -> Matched:
        return False if term.problems else self.all_of(term.requirements)

    def all_of(self, requirements: Sequence[NodeRequirement]) -> Matched:
        matched: Matched = True
        evaluated = 0
        for wanted in requirements:
            found = self._requirement(wanted)
            if found is False:
                return False
            if found is True:
                continue
            matched = both(matched, found)
            evaluated += 1
            if not evaluated % LOOK_EVERY and not np.any(matched):
                return False
        return matched

    def _requirement(self, wanted: NodeRequirement) -> Matched:
        if wanted.is_field:
            return self._field(wanted)
        column = self._columns.get(wanted.key)
        if column is None:
            column = self._columns[wanted.key] = self._nodes.label(wanted.key)
        if len(column.values) == 1:
            return wanted.matches_value(column.values[0])
        if wanted.above is not None or wanted.below is not None:
            return self._compared(wanted, column)
        found = column.among(wanted.values)
        if found is None:
            return not wanted.inside
        return found if wanted.inside else ~found

    def _field(self, wanted: NodeRequirement) -> Matched:
        if wanted.key != NODE_NAME_FIELD:
            return wanted.matches_value("")
        rows = self._nodes.table.rows
        named = [self._nodes.named(name) for name in wanted.values if name in rows]
        if not named:
            return not wanted.inside
        found: Bools = np.logical_or.reduce(named)
        return found if wanted.inside else ~found

    def _compared(self, wanted: NodeRequirement, column: ClassColumn[str | None]) -> Bools:
        known = self._integers.get(wanted.key)
        if known is None:
            parsed = [None if one is None else parse_int64(one) for one in column.values]
            known = self._integers[wanted.key] = (
                np.array([number or 0 for number in parsed], np.int64),
                np.array([number is not None for number in parsed], np.bool_),
            )
        numbers, are_numbers = known
        holds = (
            numbers > wanted.above if wanted.above is not None else numbers < (wanted.below or 0)
        )
        matched: Bools = (holds & are_numbers)[column.ids]
        return matched


def both(one: Matched, other: Matched) -> Matched:
    """Mark the nodes that both mark."""
    if one is True:
        return other
    if other is True:
        return one
    return False if one is False or other is False else one & other

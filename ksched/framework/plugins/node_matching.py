"""Compiled node selectors over columns: each requirement asks once per distinct label value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.api.node_selectors import (
    NODE_NAME_FIELD,
    NodeRequirement,
    NodeTerm,
    NodeTerms,
    PreferredTerms,
    RequiredNodeAffinity,
)
from ksched.framework import NodeRows

Bools = NDArray[np.bool_]


def matches_required(required: RequiredNodeAffinity, nodes: NodeRows) -> Bools:
    """Mark the nodes that satisfy both a pod's nodeSelector and its required node affinity."""
    matched = _all_of(required.node_selector, nodes)
    if required.affinity is not None:
        matched &= matches_terms(required.affinity, nodes)
    return matched


def matches_terms(selector: NodeTerms, nodes: NodeRows) -> Bools:
    """Mark the nodes that satisfy at least one term."""
    matched = np.zeros(len(nodes), np.bool_)
    for term in selector.terms:
        matched |= _matches_term(term, nodes)
    return matched


def preference(preferred: PreferredTerms, nodes: NodeRows) -> NDArray[np.int64]:
    """Add up the weights of the preferred terms that each node satisfies."""
    total = np.zeros(len(nodes), np.int64)
    for weight, term in preferred.terms:
        total += weight * _matches_term(term, nodes)
    return total


def _matches_term(term: NodeTerm, nodes: NodeRows) -> Bools:
    if term.problems:
        return np.zeros(len(nodes), np.bool_)
    return _all_of(term.requirements, nodes)


def _all_of(requirements: tuple[NodeRequirement, ...], nodes: NodeRows) -> Bools:
    matched = np.ones(len(nodes), np.bool_)
    for wanted in requirements:
        matched &= _matches_requirement(wanted, nodes)
    return matched


def _matches_requirement(wanted: NodeRequirement, nodes: NodeRows) -> Bools:
    if not wanted.is_field:
        return nodes.label(wanted.key).test(wanted.matches_value)
    if wanted.key != NODE_NAME_FIELD:
        return np.full(len(nodes), wanted.matches_value(""))
    named = np.zeros(len(nodes), np.bool_)
    for name in wanted.values:
        if name is not None:
            named |= nodes.named(name)
    return named if wanted.inside else ~named

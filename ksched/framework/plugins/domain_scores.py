"""Scores that are the same for all nodes of a topology domain."""

from __future__ import annotations

from ksched.cache.domain_counts import DomainCounts, Ids, Ints
from ksched.framework import ClassScores

FEW = 256
"""Up to this many domains are rated one by one; beyond, as with host names, nodes are."""


def score_domains(by_domain: Ints, domains: DomainCounts, ids: Ids) -> Ints | ClassScores:
    """Scores of nodes, whose domains are ``ids``, by the scores of their domains."""
    if len(by_domain) > FEW:
        return by_domain.take(ids)
    present = domains.present(ids)
    return ClassScores(by_domain.take(present), present, ids, len(by_domain))

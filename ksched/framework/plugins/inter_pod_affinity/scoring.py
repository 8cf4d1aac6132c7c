"""Preferred terms of both sides, and required ones of pods that are already there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from ksched.api.objects import Labels, Namespace
from ksched.cache.domain_counts import DomainCounts
from ksched.cache.listings import Listing
from ksched.cache.pod_counts import PodLedger
from ksched.cache.topology_domains import ABSENT, Ids, Ints, TopologyDomains
from ksched.framework import MAX_NODE_SCORE, ClassScores, NodeRows, PodTemplate, template_fact
from ksched.framework.plugins.inter_pod_affinity.filtering import pods_meant_by
from ksched.framework.plugins.inter_pod_affinity.terms import (
    AffinityTerm,
    MatchedTerms,
    TermIndex,
    Weighted,
    depends_on_namespaces,
    labels_of_namespace,
    resolve,
    terms_of,
)

NEAR, APART = 1, -1

FEW_DOMAINS = 32
"""Up to this many domains are rated one by one in plain Python."""

ScoredTerm = tuple[int, AffinityTerm]
"""``NEAR`` or ``APART``, and a term; kept apart because they must not cancel each other out."""
Factors = list[tuple[int, DomainCounts]]


@template_fact
def _preferred(template: PodTemplate) -> Mapping[ScoredTerm, int]:
    terms = terms_of(template)
    weights: Counter[ScoredTerm] = Counter()
    for weight, term in terms.preferred_affinity:
        weights[NEAR, term] += weight
    for weight, term in terms.preferred_anti_affinity:
        weights[APART, term] += weight
    return weights


@template_fact
def _required(template: PodTemplate) -> Mapping[AffinityTerm, int]:
    return Counter(terms_of(template).required_affinity)


class CarriedTerms:
    """What existing pods wish for, by term."""

    def __init__(self, ledger: PodLedger, hard_pod_affinity_weight: int) -> None:
        self.ledger = ledger
        self._hard_weight = hard_pod_affinity_weight
        self.index: TermIndex[ScoredTerm] = TermIndex(ledger, self._carried)

    def counter(self, scored: ScoredTerm) -> DomainCounts:
        """The weights of a term, added up over the pods of each domain that carry it."""
        sign, term = scored
        hard_weight = self._hard_weight if sign == NEAR else 0

        def weight(template: PodTemplate) -> int:
            preferred = _preferred(template).get(scored, 0)
            return preferred + hard_weight * _required(template).get(term, 0)

        key = ("carries", scored, hard_weight)
        pods = self.ledger.pod_counts(key, weight, include_terminating=True)
        return self.ledger.domain_counts(pods, term.topology_key)

    def _carried(self, template: PodTemplate) -> Iterable[ScoredTerm]:
        carried = dict.fromkeys(_preferred(template))
        if self._hard_weight > 0:
            carried |= dict.fromkeys((NEAR, term) for term in _required(template))
        return carried


class PreferredAffinity:
    """What one attempt needs to rate nodes."""

    def __init__(self, factors: Factors) -> None:
        self._factors = factors

    def score(self, nodes: NodeRows) -> Ints | ClassScores:
        """Raw scores; final ones where a single key divides the nodes into few domains."""
        factors = self._factors
        first = factors[0][1].topology
        if first.width <= FEW_DOMAINS and all(counter.topology is first for _, counter in factors):
            return self._score_domains(first.ids(nodes))
        by_topology: dict[TopologyDomains, Ints] = {}
        for factor, counter in factors:
            known = by_topology.get(counter.topology)
            weighted = factor * counter.counts
            by_topology[counter.topology] = weighted if known is None else known + weighted
        scores = np.zeros(len(nodes), np.int64)
        for topology, by_domain in by_topology.items():
            by_domain[ABSENT] = 0
            scores += by_domain.take(topology.ids(nodes))
        return scores

    def _score_domains(self, ids: Ids) -> ClassScores:
        present = self._factors[0][1].topology.present(ids)
        scores = [0] * len(present)
        for factor, counter in self._factors:
            counts = counter.counts.tolist()
            scores = [
                score + factor * counts[domain] if domain != ABSENT else 0
                for score, domain in zip(scores, present, strict=True)
            ]
        values = [0] * (present[-1] + 1)
        lowest, highest = min(scores), max(scores)
        if lowest != highest:
            for score, domain in zip(scores, present, strict=True):
                values[domain] = int(MAX_NODE_SCORE * ((score - lowest) / (highest - lowest)))
        return ClassScores(values, ids)


def normalize(scores: Ints) -> Ints:
    """Stretch the scores over the whole range; all alike get nothing."""
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros_like(scores)
    share = (scores - lowest) / np.float64(highest - lowest)
    return (MAX_NODE_SCORE * share).astype(np.int64)


class PreferredTerms:
    """What is kept for one incoming template: its preferences and the terms that mean it."""

    def __init__(
        self, template: PodTemplate, carried: CarriedTerms, namespaces: Listing[Namespace]
    ) -> None:
        self._template = template
        self._carried = carried
        self._namespaces = namespaces
        terms = terms_of(template)
        self._own = [
            *((NEAR, weighted) for weighted in terms.preferred_affinity),
            *((APART, weighted) for weighted in terms.preferred_anti_affinity),
        ]
        self._depends_on_namespaces = depends_on_namespaces(
            weighted.term for _, weighted in self._own
        )
        self._namespaces_generation = -1
        self._own_factors: Factors = []
        self._namespace_labels: Labels = {}
        self._matched: MatchedTerms[ScoredTerm] | None = None
        self._matched_version = -1
        self._existing_factors: Factors = []

    def catch_up(self) -> PreferredAffinity | None:
        """Counts as they are now; ``None`` if no term means any pod on a node with its label."""
        self._resolve()
        self._match()
        factors = []
        for factor, counter in (*self._own_factors, *self._existing_factors):
            counter.catch_up()
            if counter.total:
                factors.append((factor, counter))
        return PreferredAffinity(factors) if factors else None

    def _resolve(self) -> None:
        generation = self._namespaces.generation if self._depends_on_namespaces else 0
        if generation != self._namespaces_generation:
            self._namespaces_generation = generation
            self._own_factors = [
                (sign * weighted.weight, self._counter(weighted)) for sign, weighted in self._own
            ]

    def _counter(self, weighted: Weighted) -> DomainCounts:
        term = resolve(weighted.term, self._namespaces)
        pods = pods_meant_by((term,), self._carried.ledger)
        return self._carried.ledger.domain_counts(pods, term.topology_key)

    def _match(self) -> None:
        labels = labels_of_namespace(self._namespaces, self._template.namespace)
        matched = self._matched
        if matched is None or labels != self._namespace_labels:
            self._namespace_labels = labels
            template = self._template
            matched = self._matched = MatchedTerms(
                self._carried.index, lambda scored: scored[1].matches(template, labels)
            )
            self._matched_version = -1
        terms = matched.catch_up()
        if matched.version != self._matched_version:
            self._matched_version = matched.version
            self._existing_factors = [
                (scored[0], self._carried.counter(scored)) for scored in terms
            ]

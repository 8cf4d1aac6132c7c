"""Preferred terms of both sides, and required ones of existing pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ksched.api.objects import Namespace
from ksched.framework import MAX_NODE_SCORE, ClassScores, Lister, NodeRows, PodTemplate
from ksched.framework.counters import (
    ABSENT,
    DomainCounts,
    Ints,
    PodLedger,
    ScoreT,
    TopologyDomains,
    normalize_scores,
    rate_domains,
    whole,
)
from ksched.framework.plugins.inter_pod_affinity.filtering import pods_matching_all
from ksched.framework.plugins.inter_pod_affinity.term_set import counting, pods_matching_any
from ksched.framework.plugins.inter_pod_affinity.terms import (
    AffinityTerm,
    MatchedTerms,
    ResolvedTerm,
    TermIndex,
    depends_on_namespaces,
    labels_of_namespace,
    resolve,
    terms_of,
)
from ksched.steps import Steps
from ksched.tuning import MANY_TERMS, TERMS_PER_STEP

NEAR, APART = 1, -1

ScoredTerm = tuple[int, AffinityTerm]
"""``NEAR`` or ``APART``, and a term; separate because they must not cancel each other out."""
Factors = list[tuple[int, DomainCounts]]


class CarriedTerms:
    """The scored terms of existing pods. kube-scheduler: processExistingPod, processTerm."""

    def __init__(self, ledger: PodLedger, hard_pod_affinity_weight: int) -> None:
        self.ledger = ledger
        self._hard_weight = hard_pod_affinity_weight
        self.index: TermIndex[ScoredTerm] = TermIndex(ledger, self._carried, _bare)
        self._factors: WeakKeyDictionary[frozenset[ScoredTerm], Factors] = WeakKeyDictionary()

    def factors(self, terms: frozenset[ScoredTerm]) -> Factors:
        """Return counters of the scored terms of each domain's pods: one per key and sign."""
        known = self._factors.get(terms)
        if known is None:
            known = self._factors[terms] = self._make_factors(terms)
        return known

    def _make_factors(self, terms: frozenset[ScoredTerm]) -> Factors:
        grouped: dict[tuple[int, str], list[ScoredTerm]] = {}
        for scored in terms:
            grouped.setdefault((scored[0], scored[1].topology_key), []).append(scored)
        return [
            (sign, self._counter(key, frozenset(same))) for (sign, key), same in grouped.items()
        ]

    def _counter(self, key: str, terms: frozenset[ScoredTerm]) -> DomainCounts:
        """Return the weights of terms of one key, summed over the pods of each domain."""

        def weight(template: PodTemplate) -> int:
            carried = self._carried(template).get(key)
            if carried is None:
                return 0
            return sum(number for scored, number in carried.items() if scored in terms)

        counter_key = ("carries", terms, self._hard_weight)
        pods = self.ledger.pod_counts(counter_key, weight, include_terminating=True)
        return self.ledger.domain_counts(pods, key)

    def _carried(self, template: PodTemplate) -> Mapping[str, Mapping[ScoredTerm, int]]:
        """Return the scored terms of a template by topology key, with their weights."""
        known: Mapping[str, Mapping[ScoredTerm, int]] | None = template.facts.get(self)
        if known is None:
            known = template.facts[self] = _scored(template, self._hard_weight)
        return known


def _bare(scored: ScoredTerm) -> AffinityTerm:
    return scored[1]


def _scored(template: PodTemplate, hard_weight: int) -> Mapping[str, Mapping[ScoredTerm, int]]:
    terms = terms_of(template)
    weights: Counter[ScoredTerm] = Counter()
    for weight, term in terms.preferred_affinity:
        weights[NEAR, term] += weight
    for weight, term in terms.preferred_anti_affinity:
        weights[APART, term] += weight
    if hard_weight > 0:
        for term in terms.required_affinity:
            weights[NEAR, term] += hard_weight
    by_key: dict[str, dict[ScoredTerm, int]] = {}
    for scored, weight in weights.items():
        by_key.setdefault(scored[1].topology_key, {})[scored] = weight
    return by_key


class PreferredAffinity:
    """The scoring state of one attempt."""

    def __init__(self, factors: Factors) -> None:
        self._factors = factors

    def score(self, nodes: NodeRows) -> Ints | ClassScores:
        """Return raw scores; final ones where a single key divides the nodes into few domains."""
        by_topology: dict[TopologyDomains, Ints] = {}
        for factor, counter in self._factors:
            known = by_topology.get(counter.topology)
            weighted = factor * counter.counts
            by_topology[counter.topology] = weighted if known is None else known + weighted
        for by_domain in by_topology.values():
            by_domain[ABSENT] = 0
        if len(by_topology) == 1:
            ((topology, by_domain),) = by_topology.items()
            return rate_domains(topology, by_domain, nodes, stretched)
        scores = np.zeros(len(nodes), np.int64)
        for topology, by_domain in by_topology.items():
            scores += by_domain.take(topology.ids(nodes))
        return scores


def stretched(score: ScoreT, lowest: int, highest: int) -> ScoreT:
    """Scale the scores to the whole range; all equal become 0."""
    if lowest == highest:
        return score * 0
    return whole(MAX_NODE_SCORE * ((score - lowest) / (highest - lowest)))


def normalize(scores: Ints) -> Ints:
    return normalize_scores(scores, stretched)


class PreferredTerms:
    """The cached state of one incoming template: its preferences and the terms that match it."""

    def __init__(
        self, template: PodTemplate, carried: CarriedTerms, namespaces: Lister[Namespace]
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
        self._labels = carried.ledger.table.labels
        self._resolved = (-1, -1)
        self._seen = (-1, -1, -1)
        self._own_factors: Factors = []
        self.is_counted = True
        """Whether ``counting`` was finished after the own terms were resolved."""
        self._matched: MatchedTerms[ScoredTerm] | None = None
        self._found: frozenset[ScoredTerm] | None = None
        self._existing_factors: Factors = []

    @property
    def is_current(self) -> bool:
        """Whether terms and namespaces are unchanged since the last update."""
        return self._seen == (
            self._carried.index.generation,
            self._namespaces.generation,
            self._labels.generation,
        )

    def counts_now(self) -> PreferredAffinity | None:
        """Update the counts; ``None`` if no term matches any pod on a node with its label."""
        factors = []
        for factor, counter in (*self._own_factors, *self._existing_factors):
            counter.catch_up()
            if counter.total:
                factors.append((factor, counter))
        return PreferredAffinity(factors) if factors else None

    def catching_up(self) -> Steps[None]:
        """Apply new terms and namespaces."""
        index, namespaces = self._carried.index, self._namespaces
        seen = (index.generation, namespaces.generation, self._labels.generation)
        yield from self._resolving()
        labels = labels_of_namespace(self._namespaces, self._template.namespace)
        matched = self._carried.index.matched(self._template, labels, self._matched)
        self._matched = matched
        yield from matched.catching_up()
        self._seen = seen
        if matched.found is not self._found:
            self._found = matched.found
            self._existing_factors = self._carried.factors(matched.found)

    def counting(self) -> Steps[None]:
        """Count the pods of the cluster, if that may take long."""
        yield from counting(counter.pods for _, counter in self._own_factors)
        self.is_counted = True

    def _resolving(self) -> Steps[None]:
        generation = self._namespaces.generation if self._depends_on_namespaces else 0
        resolved = (generation, self._labels.generation if self._own else 0)
        if resolved == self._resolved:
            return
        own: list[tuple[int, int, ResolvedTerm]] = []
        for number, (sign, weighted) in enumerate(self._own):
            if weighted.term.topology_key in self._labels:
                own.append((sign, weighted.weight, resolve(weighted.term, self._namespaces)))
            if not number % TERMS_PER_STEP:
                yield
        self._own_factors = self._together(own) if len(own) >= MANY_TERMS else self._one_by_one(own)
        self.is_counted = len(own) < MANY_TERMS
        self._resolved = resolved

    def _one_by_one(self, own: Sequence[tuple[int, int, ResolvedTerm]]) -> Factors:
        ledger = self._carried.ledger
        return [
            (
                sign * weight,
                ledger.domain_counts(pods_matching_all((term,), ledger), term.topology_key),
            )
            for sign, weight, term in own
        ]

    def _together(self, own: Sequence[tuple[int, int, ResolvedTerm]]) -> Factors:
        """Return one counter per key and sign, however many terms there are."""
        ledger = self._carried.ledger
        grouped: dict[tuple[int, str], Counter[ResolvedTerm]] = {}
        for sign, weight, term in own:
            grouped.setdefault((sign, term.topology_key), Counter())[term] += weight
        return [
            (
                sign,
                ledger.domain_counts(
                    pods_matching_any(((weight, term) for term, weight in same.items()), ledger),
                    key,
                ),
            )
            for (sign, key), same in grouped.items()
        ]

"""Counters of the pods matched by very many terms of one incoming pod.

A few terms have a counter each, shared with other pods that carry the same. Many are counted
together, one counter per topology key: only their sum matters. They are indexed by labels of the
pods they match, so that a pod is compared only with terms that may match it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ksched.framework import PodTemplate
from ksched.framework.counters import PodCounts, PodLedger
from ksched.framework.plugins.inter_pod_affinity.terms import ResolvedTerm
from ksched.steps import Steps

WeightedTerm = tuple[int, ResolvedTerm]


class TermSet:
    """Weighted terms, indexed by a label that matching pods must have."""

    def __init__(self, weighted: Iterable[WeightedTerm]) -> None:
        self._by_label: dict[tuple[str, str], list[WeightedTerm]] = {}
        self._others: list[WeightedTerm] = []
        """Terms that require no label of a certain value."""
        for weight, term in weighted:
            if term.selector.matches_nothing:
                continue
            labels = _demanded_labels(term)
            if labels is None:
                self._others.append((weight, term))
            else:
                for label in labels:
                    self._by_label.setdefault(label, []).append((weight, term))

    def weight_of(self, template: PodTemplate) -> int:
        """Return the sum of the weights of the terms that match pods of a template."""
        namespace, labels = template.namespace, template.labels
        total = sum(weight for weight, term in self._others if term.matches(namespace, labels))
        by_label = self._by_label
        if by_label:
            for label in labels.items():
                for weight, term in by_label.get(label, ()):
                    if term.matches(namespace, labels):
                        total += weight
        return total


def _demanded_labels(term: ResolvedTerm) -> list[tuple[str, str]] | None:
    """Return labels of which a pod must have one; ``None`` if other pods may match too."""
    for key, values, inside in term.selector.requirements:
        if inside and None not in values:
            return [(key, value) for value in values if value is not None]
    return None


def pods_matching_any(weighted: Iterable[WeightedTerm], ledger: PodLedger) -> PodCounts:
    """Return the counter of pods that match weighted terms of one key, also terminating ones."""
    terms = frozenset(weighted)
    return ledger.pod_counts(
        ("matched by any", terms), TermSet(terms).weight_of, include_terminating=True
    )


def counting(counters: Iterable[PodCounts]) -> Steps[None]:
    """Count all pods of the cluster, with pauses; when restarted, it resumes where it stopped."""
    for pods in counters:
        for template in list(pods.ledger.templates()):
            if not pods.knows(template):
                pods.weight_of(template)
                yield

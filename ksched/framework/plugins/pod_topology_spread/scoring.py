"""Soft constraints: prefer domains with fewer matching pods."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ksched.framework import MAX_NODE_SCORE, ClassScores, NodeRows
from ksched.framework.counters import (
    ABSENT,
    Bools,
    Ints,
    ScoreT,
    normalize_scores,
    rate_domains,
)
from ksched.framework.plugins.pod_topology_spread.constraints import HOSTNAME, TrackedConstraint

Floats = NDArray[np.float64]


class SpreadScores:
    """Scores by soft constraints; the base scores no node: no node has the label."""

    def score(self, nodes: NodeRows) -> Ints | ClassScores:
        return np.zeros(len(nodes), np.int64)

    def normalize(self, scores: Ints) -> Ints:
        return scores


class SoftSpread(SpreadScores):
    """The soft constraints of a template over some feasible nodes.

    Valid while the same nodes are feasible and in the same domains (``is_for``); the counts are
    read again by every ``score``.
    """

    def __init__(
        self, tracked: tuple[TrackedConstraint, ...], nodes: NodeRows, *, require_all_keys: bool
    ) -> None:
        self._tracked = tracked
        self._rows = nodes.rows
        self._generations = [one.domains.topology.generation for one in tracked]
        self._ids = [one.domains.topology.ids(nodes) for one in tracked]
        self._ignored: Bools | None = None
        """Nodes that lack a label; they get no score, and do not count as domains."""
        if require_all_keys:
            unlabelled = np.logical_or.reduce([ids == ABSENT for ids in self._ids])
            self._ignored = unlabelled if unlabelled.any() else None
        self._weights = [np.float64(self._weight(index)) for index in range(len(tracked))]

    def is_for(self, nodes: NodeRows) -> bool:
        return (
            nodes.rows is not None
            and nodes.rows is self._rows
            and self._generations == [one.domains.topology.generation for one in self._tracked]
        )

    def _weight(self, index: int) -> float:
        """The more domains, the larger the weight of a pod in one of them.

        kube-scheduler: topologyNormalizingWeight.
        """
        one, ids = self._tracked[index], self._ids[index]
        if self._ignored is not None:
            ids = ids[~self._ignored]
        if one.constraint.topology_key == HOSTNAME:
            size = len(ids)
        else:
            present = np.bincount(ids, minlength=one.domains.topology.width) > 0
            size = int(np.count_nonzero(present))
            empty = one.domains.topology.find("")
            if empty > 0 and present[empty] and present[ABSENT]:
                # kube-scheduler does not distinguish an absent label from an empty one.
                size -= 1
        return math.log(size + 2)

    def score(self, nodes: NodeRows) -> Ints | ClassScores:
        """Return raw scores; final ones where a single constraint has few domains.

        kube-scheduler: scoreForCount, initPreScoreState.
        """
        if len(self._tracked) == 1 and self._tracked[0].constraint.topology_key != HOSTNAME:
            by_domain = rounded(self._by_domain(0))
            if self._ignored is not None:
                return by_domain.take(self._ids[0])
            return rate_domains(self._tracked[0].domains.topology, by_domain, nodes, emptier)
        total = np.zeros(len(nodes))
        for index, one in enumerate(self._tracked):
            if one.constraint.topology_key == HOSTNAME:
                total += self._by_host(index, nodes)
            else:
                total += self._by_domain(index).take(self._ids[index])
        return rounded(total)

    def _by_host(self, index: int, nodes: NodeRows) -> Floats:
        one = self._tracked[index]
        one.domains.pods.catch_up()
        counts = one.domains.pods.counts
        on_node = counts if nodes.rows is None else counts.take(nodes.rows)
        scores = on_node * self._weights[index] + float(one.constraint.max_skew - 1)
        scores[self._ids[index] == ABSENT] = 0.0
        return scores

    def _by_domain(self, index: int) -> Floats:
        one = self._tracked[index]
        counts = one.domains.counts
        empty = one.domains.topology.find("")
        if empty > 0:
            counts = counts.copy()
            counts[empty] += counts[ABSENT]
        scores = counts * self._weights[index] + float(one.constraint.max_skew - 1)
        scores[ABSENT] = 0.0
        return scores

    def normalize(self, scores: Ints) -> Ints:
        if self._ignored is None:
            return normalize_scores(scores, emptier)
        normalized = np.zeros_like(scores)
        if not self._ignored.all():
            normalized[~self._ignored] = normalize_scores(scores[~self._ignored], emptier)
        return normalized


def emptier(score: ScoreT, lowest: int, highest: int) -> ScoreT:
    """Invert: the lowest raw score becomes the highest."""
    if highest == 0:
        return score * 0 + MAX_NODE_SCORE
    return MAX_NODE_SCORE * (highest + lowest - score) // highest


def rounded(scores: Floats) -> Ints:
    """Round like Go's ``math.Round``: halves go up, a value just below a half does not."""
    whole = np.floor(scores)
    return (whole + (scores - whole >= 0.5)).astype(np.int64)

"""Soft constraints: fewer matching pods in a node's domains are better."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ksched.cache.domain_counts import ABSENT, Bools, Ids, Ints
from ksched.framework import MAX_NODE_SCORE, NodeRows
from ksched.framework.plugins.pod_topology_spread.constraints import HOSTNAME, TrackedConstraint


class SoftSpread:
    """The soft constraints of one attempt over its feasible nodes."""

    def __init__(
        self, tracked: tuple[TrackedConstraint, ...], nodes: NodeRows, *, require_all_keys: bool
    ) -> None:
        self._tracked = tracked
        self._ids = [one.domains.ids(nodes) for one in tracked]
        self._ignored: Bools | None = None
        """Nodes that lack a label; they get no score, and do not count as domains."""
        if require_all_keys:
            unlabelled = np.logical_or.reduce([ids == ABSENT for ids in self._ids])
            self._ignored = unlabelled if unlabelled.any() else None
        self._weights = [self._weight(index) for index in range(len(tracked))]

    def _weight(self, index: int) -> float:
        """The more domains, the more a pod in one of them weighs."""
        one, ids = self._tracked[index], self._ids[index]
        if self._ignored is not None:
            ids = ids[~self._ignored]
        if one.constraint.topology_key == HOSTNAME:
            size = len(ids)
        else:
            present = np.bincount(ids, minlength=len(one.domains.counts)) > 0
            size = int(np.count_nonzero(present))
            empty = one.domains.find("")
            if empty > 0 and present[empty] and present[ABSENT]:
                # No label and an empty one read the same upstream.
                size -= 1
        return math.log(size + 2)

    def score(self, nodes: NodeRows) -> Ints:
        total = np.zeros(len(nodes))
        for one, ids, weight in zip(self._tracked, self._ids, self._weights, strict=True):
            total += self._score_of(one, ids, weight, nodes)
        whole = np.floor(total)
        # math.Round: halves go up, and what is just below a half must not.
        return (whole + (total - whole >= 0.5)).astype(np.int64)

    def _score_of(
        self, one: TrackedConstraint, ids: Ids, weight: float, nodes: NodeRows
    ) -> NDArray[np.float64]:
        skew = float(one.constraint.max_skew - 1)
        if one.constraint.topology_key == HOSTNAME:
            counts = one.domains.pods.counts
            on_node = counts if nodes.rows is None else counts.take(nodes.rows)
            scores = on_node * np.float64(weight) + skew
            scores[ids == ABSENT] = 0.0
            return scores
        counts = one.domains.counts
        empty = one.domains.find("")
        if empty > 0:
            counts = counts.copy()
            counts[empty] += counts[ABSENT]
        by_domain = counts * np.float64(weight) + skew
        by_domain[ABSENT] = 0.0
        return by_domain.take(ids)

    def normalize(self, scores: Ints) -> Ints:
        counted = scores if self._ignored is None else scores[~self._ignored]
        if not len(counted):
            return np.zeros_like(scores)
        lowest, highest = int(counted.min()), int(counted.max())
        if highest == 0:
            normalized = np.full_like(scores, MAX_NODE_SCORE)
        else:
            normalized = MAX_NODE_SCORE * (highest + lowest - scores) // highest
        if self._ignored is not None:
            normalized[self._ignored] = 0
        return normalized

"""Hard constraints: the skew between a node's domain and the emptiest one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.cache.pod_counts import ABSENT, summarize
from ksched.framework import (
    NodeInfo,
    NodeRows,
    PodInfo,
    Verdicts,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins.pod_topology_spread.constraints import TrackedConstraint

NOT_MATCHED = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
_SKEWED, _UNLABELLED = 1, 2


class HardSpread:
    """The hard constraints of one attempt, and what a dry run changed in their counts."""

    def __init__(
        self, tracked: tuple[TrackedConstraint, ...], changes: dict[tuple[int, int], int]
    ) -> None:
        self.tracked = tracked
        self._changes = changes
        """More or fewer pods by constraint and domain."""

    def clone(self) -> HardSpread:
        return HardSpread(self.tracked, dict(self._changes))

    def epoch(self) -> tuple[object, ...]:
        return (self.tracked, *(one.domains.version for one in self.tracked))

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes; one being deleted counts here, as upstream.

        So does a pod under an empty selector, although those that were there before do not.
        """
        if other.namespace != pod.namespace or node.node is None:
            return
        for index, one in enumerate(self.tracked):
            if one.constraint.selector.matches(other.labels) and one.inclusion.includes(node.node):
                at = (index, one.domains.find(node.labels[one.constraint.topology_key]))
                self._changes[at] = self._changes.get(at, 0) + more

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        codes = np.zeros(len(nodes), np.int16)
        # Backwards, because the first constraint that rejects a node gives the reason.
        for index in reversed(range(len(self.tracked))):
            one = self.tracked[index]
            rejected = self._codes_by_domain(index).take(one.domains.ids(nodes))
            codes = (
                np.where(rejected, rejected, codes) if index + 1 < len(self.tracked) else rejected
            )
        return Verdicts(codes, (NOT_MATCHED, NO_LABEL))

    def _codes_by_domain(self, index: int) -> NDArray[np.int16]:
        one = self.tracked[index]
        counts, lowest = one.domains.counts, one.domains.lowest
        if self._changes:
            counts = counts.copy()
            for (changed, domain), more in self._changes.items():
                if changed == index:
                    counts[domain] += more
            _, lowest = summarize(counts, one.domains.nodes)
        if one.domains.domains < one.constraint.min_domains:
            lowest = 0
        codes = (counts + one.self_match - lowest > one.constraint.max_skew).astype(np.int16)
        codes[ABSENT] = _UNLABELLED
        return codes

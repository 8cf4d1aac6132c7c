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
_STATUSES = (NOT_MATCHED, NO_LABEL)
_UNLABELLED = 2


class HardSpread:
    """The hard constraints of one attempt, and what a dry run changed in their counts."""

    def __init__(
        self, tracked: tuple[TrackedConstraint, ...], changes: dict[tuple[int, int], int]
    ) -> None:
        self._tracked = tracked
        self._changes = changes
        """More or fewer pods by constraint and domain."""
        self._codes: list[NDArray[np.int16]] | None = None

    def clone(self) -> HardSpread:
        return HardSpread(self._tracked, dict(self._changes))

    @property
    def epoch(self) -> tuple[object, ...]:
        """Where the nodes are, and what is wrong with each domain: all that a verdict reads."""
        layouts = [one.domains.layout for one in self._tracked]
        return (*layouts, *(codes.tobytes() for codes in self._codes_by_domain()))

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes; one being deleted counts here, as upstream.

        So does a pod under an empty selector, although those that were there before do not.
        """
        if other.namespace != pod.namespace or node.node is None:
            return
        for index, one in enumerate(self._tracked):
            if one.constraint.selector.matches(other.labels) and one.inclusion.includes(node.node):
                at = (index, one.domains.find(node.labels[one.constraint.topology_key]))
                self._changes[at] = self._changes.get(at, 0) + more
                self._codes = None

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        codes: NDArray[np.int16] | None = None
        for one, by_domain in zip(self._tracked, self._codes_by_domain(), strict=True):
            found = by_domain.take(one.domains.ids(nodes))
            # The first constraint that rejects a node gives the reason.
            codes = found if codes is None else np.where(codes, codes, found)
        return Verdicts.passing(len(nodes)) if codes is None else Verdicts(codes, _STATUSES)

    def _codes_by_domain(self) -> list[NDArray[np.int16]]:
        if self._codes is None:
            self._codes = [self._judge(index) for index in range(len(self._tracked))]
        return self._codes

    def _judge(self, index: int) -> NDArray[np.int16]:
        """What one constraint says of each domain."""
        one = self._tracked[index]
        counts, lowest = one.domains.counts, one.domains.lowest
        if self._changes:
            counts = counts.copy()
            for (changed, domain), more in self._changes.items():
                if changed == index:
                    counts[domain] += more
            _, lowest = summarize(counts, one.domains.nodes)
        if one.domains.domains < one.constraint.min_domains:
            lowest = 0
        most = one.constraint.max_skew + lowest - one.self_match
        codes = (counts > most).astype(np.int16)
        codes[ABSENT] = _UNLABELLED
        return codes

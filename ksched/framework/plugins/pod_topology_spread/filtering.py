"""Hard constraints: the skew between a node's domain and the emptiest one."""

from __future__ import annotations

import numpy as np

from ksched.cache.domain_counts import Ids, summarize
from ksched.framework import (
    NodeInfo,
    NodeRows,
    PodInfo,
    Verdicts,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins.domain_verdicts import Codes, changes_since
from ksched.framework.plugins.pod_topology_spread.constraints import TrackedConstraint

NOT_MATCHED = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
_STATUSES = (NOT_MATCHED, NO_LABEL)


class HardSpread:
    """The hard constraints of one attempt, and what a dry run changed in their counts."""

    def __init__(
        self, tracked: tuple[TrackedConstraint, ...], changes: dict[tuple[int, int], int]
    ) -> None:
        self.tracked = tracked
        self._changes = changes
        """More or fewer pods by constraint and domain."""

    @classmethod
    def now(cls, tracked: tuple[TrackedConstraint, ...]) -> HardSpread:
        """Judge the domains as they are."""
        for one in tracked:
            one.judge_now()
        return cls(tracked, {})

    def clone(self) -> HardSpread:
        return HardSpread(self.tracked, dict(self._changes))

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
        codes: Codes | None = None
        for index, one in enumerate(self.tracked):
            found = self._codes_by_domain(index).take(one.domains.ids(nodes))
            # The first constraint that rejects a node gives the reason.
            codes = found if codes is None else np.where(codes, codes, found)
        return Verdicts.passing(len(nodes)) if codes is None else Verdicts(codes, _STATUSES)

    def changes_since(self, mark: object) -> tuple[object, Ids | None]:
        """A mark of the present verdicts, and the rows that changed since an earlier one."""
        return changes_since({n: one.verdicts for n, one in enumerate(self.tracked)}, mark)

    def _codes_by_domain(self, index: int) -> Codes:
        one = self.tracked[index]
        if not self._changes:
            return one.verdicts.codes
        counts = one.domains.counts.copy()
        for (changed, domain), more in self._changes.items():
            if changed == index:
                counts[domain] += more
        _, lowest = summarize(counts, one.domains.nodes)
        return one.judge(counts, lowest)

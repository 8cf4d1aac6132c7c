"""Hard constraints: the skew between a node's domain and the emptiest one."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from ksched.cache.counters.domain_counts import summarize
from ksched.cache.counters.topology_domains import ABSENT, Ids, Ints
from ksched.framework import (
    SUCCESS,
    ChangedVerdicts,
    NodeInfo,
    NodeRows,
    PodInfo,
    Verdicts,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins.domain_verdicts import (
    NO_CHANGES,
    ChangedDomains,
    Codes,
    DomainVerdicts,
)
from ksched.framework.plugins.pod_topology_spread.constraints import TrackedConstraint

NOT_MATCHED = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
_STATUSES = (NOT_MATCHED, NO_LABEL)
_SKEWED, _UNLABELLED = 1, 2


class HardConstraints:
    """The hard constraints of some pods, and what is wrong with each domain."""

    def __init__(self, tracked: tuple[TrackedConstraint, ...]) -> None:
        self.tracked = tracked
        self.verdicts = DomainVerdicts(
            [one.domains.topology for one in tracked], (SUCCESS, *_STATUSES)
        )
        self._changed = ChangedDomains([one.domains for one in tracked])
        self._most = [0] * len(tracked)

    def judge_now(self) -> HardSpread:
        """Bring the verdicts up to date, after the counters."""
        verdicts, changed = self.verdicts, self._changed.changes()
        counts = [one.domains.counts for one in self.tracked]
        before = self._most
        most = self._most = [one.most_pods(one.domains.lowest) for one in self.tracked]
        if changed is None or verdicts.is_outgrown:
            verdicts.start_over(list(map(_judge, counts, most)))
        else:
            verdicts.begin()
            for position, limit in enumerate(most):
                if limit != before[position]:
                    verdicts.renew(position, _judge(counts[position], limit))
            for position, domain in changed:
                is_skewed = counts[position][domain] > most[position]
                verdicts.amend(position, domain, _SKEWED if is_skewed else 0)
        self._changed.advance()
        return HardSpread(self, {})


def _judge(counts: Ints, most: int) -> Codes:
    """What is wrong with each domain, given these numbers of pods."""
    codes: Codes = (counts > most).astype(np.int16)
    codes[ABSENT] = _UNLABELLED
    return codes


class HardSpread:
    """The hard constraints of one attempt, and what a dry run changed in their counts.

    kube-scheduler: calPreFilterState, minMatchNum, criticalPaths.
    """

    def __init__(self, kept: HardConstraints, changes: dict[tuple[int, int], int]) -> None:
        self.kept = kept
        self._changes = changes
        """More or fewer pods by constraint and domain."""

    def clone(self) -> HardSpread:
        return HardSpread(self.kept, dict(self._changes))

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes; one being deleted counts here, as upstream.

        So does a pod under an empty selector, although those that were there before do not.
        """
        if other.namespace != pod.namespace or node.node is None:
            return
        for index, one in enumerate(self.kept.tracked):
            if one.constraint.selector.matches(other.labels) and one.inclusion.includes(node.node):
                at = (index, one.domains.topology.find(node.labels[one.constraint.topology_key]))
                self._changes[at] = self._changes.get(at, 0) + more

    @property
    def group(self) -> Hashable:
        """What tells the verdicts from others."""
        return self.kept

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        return self.kept.verdicts.changes_since(mark)

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        codes: Codes | None = None
        for index, topology in enumerate(self.kept.verdicts.topologies):
            found = self._codes_by_domain(index).take(topology.ids(nodes))
            # The first constraint that rejects a node gives the reason.
            codes = found if codes is None else np.where(codes, codes, found)
        return Verdicts.passing(len(nodes)) if codes is None else Verdicts(codes, _STATUSES)

    def _codes_by_domain(self, index: int) -> Codes:
        if not self._changes:
            return self.kept.verdicts.codes[index]
        one = self.kept.tracked[index]
        counts = one.domains.counts.copy()
        for (changed, domain), more in self._changes.items():
            if changed == index:
                counts[domain] += more
        _, lowest = summarize(counts, one.domains.topology.nodes)
        return _judge(counts, one.most_pods(lowest))


class Unlabelled(HardSpread):
    """For constraints over a label that no node has: all nodes are rejected for that.

    No node counts then, however many constraints there are and whatever pods a dry run moves.
    """

    _MARK = 1

    def __init__(self) -> None:
        super().__init__(HardConstraints(()), {})

    def clone(self) -> HardSpread:
        return self

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Nothing to count."""

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        return self._MARK, NO_CHANGES if mark == self._MARK else None

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        return Verdicts(np.full(len(nodes), _UNLABELLED, np.int16), _STATUSES)

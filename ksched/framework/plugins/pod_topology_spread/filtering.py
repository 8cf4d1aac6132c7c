"""Hard constraints: the skew between a node's domain and the emptiest one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial

import numpy as np

from ksched.framework import (
    ChangedVerdicts,
    NodeInfo,
    NodeRows,
    PodInfo,
    Verdicts,
    unresolvable,
    unschedulable,
)
from ksched.framework.counters import (
    Counted,
    Counts,
    DomainAttempt,
    DomainFilter,
    DomainRule,
    Holds,
    Ids,
)
from ksched.framework.plugins.pod_topology_spread.constraints import TrackedConstraint

NOT_MATCHED = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
_SKEWED, _UNLABELLED = 1, 2


class HardConstraints:
    """The hard constraints of some pods, and what is wrong with each domain."""

    def __init__(self, tracked: tuple[TrackedConstraint, ...]) -> None:
        self.tracked = tracked
        # The first constraint that rejects a node gives the reason, so each has codes of its own.
        self.filter = DomainFilter(
            [
                DomainRule(
                    one.domains.topology,
                    ((one.domains,),),
                    partial(_judge, 2 * number + _SKEWED),
                    2 * number + _UNLABELLED,
                )
                for number, one in enumerate(tracked)
            ],
            (NOT_MATCHED, NO_LABEL) * len(tracked),
            self._most_pods,
        )

    def _most_pods(self, counted: Sequence[Sequence[Counted]]) -> list[int]:
        return [one.most_pods(pods) for one, (pods,) in zip(self.tracked, counted, strict=True)]

    def judge_now(self) -> HardSpread:
        """Bring the verdicts up to date, after the counters."""
        return HardSpread(self, self.filter.judge())


def _judge(skewed: int, counts: Sequence[Counts], most_pods: int) -> Iterator[tuple[int, Holds]]:
    yield skewed, counts[0] > most_pods


class HardSpread:
    """The hard constraints of one attempt, and what a dry run changed in their counts.

    kube-scheduler: calPreFilterState, minMatchNum, criticalPaths.
    """

    def __init__(self, kept: HardConstraints, attempt: DomainAttempt) -> None:
        self.kept = kept
        self._attempt = attempt

    def clone(self) -> HardSpread:
        return HardSpread(self.kept, self._attempt.clone())

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes; one being deleted counts here, as upstream.

        So does a pod under an empty selector, although those that were there before do not.
        """
        if other.namespace != pod.namespace or node.node is None:
            return
        for number, one in enumerate(self.kept.tracked):
            if one.constraint.selector.matches(other.labels) and one.inclusion.includes(node.node):
                value = node.labels[one.constraint.topology_key]
                self._attempt.change(number, 0, value, more)

    @property
    def group(self) -> Hashable:
        """What tells the verdicts from others."""
        return self.kept

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        return self.kept.filter.changes_since(mark)

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        return self._attempt.verdicts(nodes)


class Unlabelled(HardSpread):
    """For constraints over a label that no node has: all nodes are rejected for that.

    No node counts then, however many constraints there are and whatever pods a dry run moves.
    """

    _MARK = 1

    def __init__(self) -> None:
        kept = HardConstraints(())
        super().__init__(kept, DomainAttempt(kept.filter))

    def clone(self) -> HardSpread:
        return self

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Nothing to count."""

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        return self._MARK, ChangedVerdicts(()) if mark == self._MARK else None

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        codes = np.full(len(nodes), _UNLABELLED, np.int16)
        return Verdicts(codes, (NOT_MATCHED, NO_LABEL))

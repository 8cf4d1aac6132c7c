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
    """The hard constraints of some pods, and the verdicts of each domain."""

    def __init__(self, tracked: tuple[TrackedConstraint, ...]) -> None:
        self.tracked = tracked
        # The first constraint that rejects a node gives the reason, so each has its own codes.
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
            partial(_most_pods, tracked),
        )

    def judge_now(self) -> HardSpread:
        """Update the verdicts, after the counters."""
        return HardSpread(self, self.filter.judge())


def _most_pods(
    tracked: Sequence[TrackedConstraint], counted: Sequence[Sequence[Counted]]
) -> list[int]:
    return [one.most_pods(pods) for one, (pods,) in zip(tracked, counted, strict=True)]


def _judge(skewed: int, counts: Sequence[Counts], most_pods: int) -> Iterator[tuple[int, Holds]]:
    yield skewed, counts[0] > most_pods


class HardSpread:
    """The hard constraints of one attempt, and a dry run's changes of their counts.

    kube-scheduler: calPreFilterState, minMatchNum, criticalPaths.
    """

    def __init__(self, constraints: HardConstraints, attempt: DomainAttempt) -> None:
        self.constraints = constraints
        self._attempt = attempt

    def clone(self) -> HardSpread:
        return HardSpread(self.constraints, self._attempt.clone())

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes; terminating ones count, as in kube-scheduler.

        So does a pod under an empty selector, although those that were there before do not.
        """
        if other.namespace != pod.namespace or node.node is None:
            return
        for number, one in enumerate(self.constraints.tracked):
            if one.constraint.selector.matches(other.labels) and one.inclusion.includes(node.node):
                value = node.labels[one.constraint.topology_key]
                self._attempt.change(number, 0, value, more)

    @property
    def group(self) -> Hashable:
        """Return what distinguishes these verdicts from others."""
        return self.constraints

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        return self.constraints.filter.changes_since(mark)

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        return self._attempt.verdicts(nodes)


class Unlabelled(HardSpread):
    """For constraints over a label that no node has: rejects all nodes.

    No node counts then, whatever the constraints and whatever pods a dry run moves.
    """

    _MARK = 1

    def __init__(self) -> None:
        constraints = HardConstraints(())
        super().__init__(constraints, DomainAttempt(constraints.filter))

    def clone(self) -> HardSpread:
        return self

    def update(self, pod: PodInfo, other: PodInfo, node: NodeInfo, more: int) -> None:
        """Nothing to count."""

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        return self._MARK, ChangedVerdicts(()) if mark == self._MARK else None

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        codes = np.full(len(nodes), _UNLABELLED, np.int16)
        return Verdicts(codes, (NOT_MATCHED, NO_LABEL))

"""Compiled spread constraints and their counters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ksched.api.label_selectors import InvalidSelector, Selector, compile_selector
from ksched.api.objects import Labels, Node, TopologySpreadConstraint
from ksched.api.tolerations import Tolerations, find_untolerated
from ksched.framework import NodeRows, PodTemplate, template_fact
from ksched.framework.counters import Bools, Counted, DomainCounts, PodLedger
from ksched.framework.plugins.node_demand import NodeDemand, node_demand
from ksched.framework.time_slices import resuming
from ksched.steps import Steps, at_once
from ksched.tuning import TERMS_PER_STEP

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
HONOR = "Honor"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)


class Constraint(NamedTuple):
    """A spread constraint with its defaults filled in and its selector compiled."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


def compile_constraints(
    constraints: Sequence[TopologySpreadConstraint], labels: Labels, action: str
) -> tuple[Constraint, ...]:
    """Compile the constraints with this ``whenUnsatisfiable``; raises ``InvalidSelector``.

    kube-scheduler: filterTopologySpreadConstraints.
    """
    return at_once(_compiling(constraints, labels, action))


def _compiling(
    constraints: Sequence[TopologySpreadConstraint], labels: Labels, action: str
) -> Steps[tuple[Constraint, ...]]:
    compiled: list[Constraint] = []
    for constraint in constraints:
        if constraint.when_unsatisfiable == action:
            compiled.append(
                Constraint(
                    constraint.max_skew,
                    constraint.topology_key,
                    _selector(constraint, labels),
                    1 if constraint.min_domains is None else constraint.min_domains,
                    constraint.node_affinity_policy in (None, HONOR),
                    constraint.node_taints_policy == HONOR,
                )
            )
            if not len(compiled) % TERMS_PER_STEP:
                yield
    return tuple(compiled)


def _selector(constraint: TopologySpreadConstraint, labels: Labels) -> Selector:
    """kube-scheduler: mergeLabelSetWithSelector."""
    selector = compile_selector(constraint.label_selector)
    return selector.with_labels(
        {key: labels[key] for key in constraint.match_label_keys if key in labels}
    )


def own_constraints(template: PodTemplate, action: str) -> tuple[Constraint, ...]:
    """Return the pod's own constraints with this action; raises ``InvalidSelector``.

    kube-scheduler: getConstraints, buildDefaultConstraints.
    """
    return _hard(template) if action == DO_NOT_SCHEDULE else _soft(template)


@template_fact
def _hard(template: PodTemplate) -> tuple[Constraint, ...]:
    constraints = template.spec.topology_spread_constraints
    return compile_constraints(constraints, template.labels, DO_NOT_SCHEDULE)


@template_fact
def _soft(template: PodTemplate) -> tuple[Constraint, ...]:
    constraints = template.spec.topology_spread_constraints
    return compile_constraints(constraints, template.labels, SCHEDULE_ANYWAY)


def are_to_be_compiled(template: PodTemplate) -> bool:
    """Whether a pod has many constraints of its own that no plugin compiled yet."""
    many = len(template.spec.topology_spread_constraints) > TERMS_PER_STEP
    return many and _hard not in template.facts


def compiling_own_constraints(template: PodTemplate) -> Steps[None]:
    """Compile a pod's own constraints with pauses; problems are left to ``own_constraints``."""
    constraints, labels = template.spec.topology_spread_constraints, template.labels
    try:
        for fact, action in ((_soft, SCHEDULE_ANYWAY), (_hard, DO_NOT_SCHEDULE)):
            if fact not in template.facts:
                begin = partial(_compiling, constraints, labels, action)
                template.facts[fact] = yield from resuming(template.facts, (fact, action), begin)
    except InvalidSelector:
        return


def has_all_keys(labels: Labels, constraints: Sequence[Constraint]) -> bool:
    """kube-scheduler: nodeLabelsMatchSpreadConstraints."""
    return all(constraint.topology_key in labels for constraint in constraints)


class Inclusion(NamedTuple):
    """The nodes that count for a constraint: those with all keys that no policy excludes.

    Policies refer to the incoming pod. A cordoned node counts unless it also has the taint.

    kube-scheduler: matchNodeInclusionPolicies.
    """

    keys: tuple[str, ...]
    affinity: NodeDemand | None
    tolerations: Tolerations | None

    @classmethod
    def of(cls, constraint: Constraint, template: PodTemplate, keys: tuple[str, ...]) -> Inclusion:
        affinity = node_demand(template) if constraint.honors_affinity else None
        return cls(
            keys,
            None if affinity is None or affinity.is_empty else affinity,
            template.tolerations if constraint.honors_taints else None,
        )

    def mark(self, nodes: NodeRows) -> Bools:
        marked = np.ones(len(nodes), np.bool_)
        for key in self.keys:
            marked &= nodes.label(key).ids != 0
        if self.affinity is not None:
            marked &= self.affinity.matches(nodes)
        tolerations = self.tolerations
        if tolerations is not None:
            marked &= nodes.taints.test(
                lambda taints: find_untolerated(taints, tolerations) is None
            )
        return marked

    def includes(self, node: Node) -> bool:
        labels = node.metadata.labels
        return (
            all(key in labels for key in self.keys)
            and (self.affinity is None or self.affinity.allows(node))
            and (
                self.tolerations is None
                or find_untolerated(node.spec.taints, self.tolerations) is None
            )
        )


class Matching(NamedTuple):
    """The pods that a constraint counts. kube-scheduler: countPodsMatchSelector."""

    namespace: str
    selector: Selector

    def count(self, template: PodTemplate) -> int:
        # An empty selector counts nothing although it matches everything, as in kube-scheduler.
        return (
            template.namespace == self.namespace
            and not self.selector.empty
            and self.selector.matches(template.labels)
        )


class TrackedConstraint:
    """A constraint of a template with its counters."""

    __slots__ = ("constraint", "domains", "inclusion", "self_match")

    def __init__(
        self,
        constraint: Constraint,
        template: PodTemplate,
        keys: tuple[str, ...],
        ledger: PodLedger,
    ) -> None:
        self.constraint = constraint
        self.inclusion = Inclusion.of(constraint, template, keys)
        matching = Matching(template.namespace, constraint.selector)
        pods = ledger.pod_counts(matching, matching.count, include_terminating=False)
        self.domains: DomainCounts = ledger.domain_counts(
            pods, constraint.topology_key, self.inclusion, self.inclusion.mark
        )
        self.self_match = int(constraint.selector.matches(template.labels))

    def most_pods(self, counted: Counted) -> int:
        """Return the maximum number of pods in a domain before the incoming one."""
        lowest = 0 if counted.domains < self.constraint.min_domains else counted.lowest
        return self.constraint.max_skew + lowest - self.self_match


def track(
    constraints: Sequence[Constraint],
    template: PodTemplate,
    ledger: PodLedger,
    *,
    require_all_keys: bool,
) -> tuple[TrackedConstraint, ...]:
    """Attach counters to each constraint."""
    keys = tuple(dict.fromkeys(one.topology_key for one in constraints)) if require_all_keys else ()
    return tuple(TrackedConstraint(one, template, keys, ledger) for one in constraints)

"""NodeAffinity: required and preferred node affinity of a pod or its profile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ksched.api.label_selectors import IN, InvalidSelector, aggregate
from ksched.api.node_selectors import (
    NODE_NAME_FIELD,
    NodeTerms,
    PreferredTerms,
    compile_node_selector,
    compile_preferred,
)
from ksched.api.objects import Node, NodeSelectorTerm
from ksched.api.objects import NodeAffinity as NodeAffinitySpec
from ksched.clock import stopwatch
from ksched.configuration.plugin_args import NodeAffinityArgs
from ksched.errors import ConfigError
from ksched.framework import (
    PASS_TEMPLATE,
    SKIP_TEMPLATE,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    PodTemplate,
    PreFilterResult,
    QueueingHint,
    Resource,
    Scope,
    ScoreDependsOn,
    Snapshot,
    Status,
    Verdicts,
    default_normalize,
    error,
    template_fact,
    unresolvable,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.node_demand import (
    NodeDemand,
    NodePreference,
    node_affinity,
    node_demand,
    node_preference,
)
from ksched.framework.plugins.node_matching import matches_terms, preference
from ksched.framework.time_slices import in_slices, within_budget
from ksched.steps import Steps

log = logging.getLogger(__name__)

Answer: TypeAlias = Status | PreFilterResult

MAX_LOGGED_PROBLEMS: Final = 100
"""How many different unparsable expressions are logged."""

ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
POD = unresolvable("node(s) didn't match Pod's node affinity/selector")
CONFLICT = unresolvable("pod affinity terms conflict")


class NodeAffinity:
    """Restricts a pod to nodes that its ``nodeSelector`` and required node affinity allow.

    The argument ``addedAffinity`` is a node affinity that every pod of the profile has to satisfy
    besides its own. Reasons: ``node(s) didn't match scheduler-enforced node affinity`` for the
    added one, ``node(s) didn't match Pod's node affinity/selector`` for the pod's own, and ``pod
    affinity terms conflict`` when the pod's terms name nodes in ways that exclude each other.

    The score is the sum of the weights of the preferred terms that match, the pod's and the added
    ones, scaled so that the best node gets 100.
    """

    name: ClassVar[str] = names.NODE_AFFINITY
    filter_depends_on: ClassVar = FilterDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )
    score_depends_on: ClassVar = ScoreDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=False
    )

    def __init__(
        self, args: NodeAffinityArgs | None = None, now: Callable[[], float] = stopwatch
    ) -> None:
        self._now = now
        added = args.added_affinity if args is not None else None
        self._added_required = _compile_added_required(added)
        self._added_preferred = _compile_added_preferred(added)
        self._logged: set[str] = set()

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Answer | Coroutine[Any, Any, Answer]:
        demand = node_demand(pod.template)
        if self._added_required is None and demand.is_empty:
            return SKIP_TEMPLATE
        if demand.is_current:
            return self._demanded(pod, demand)
        steps = within_budget(self._pre_filtering(pod, demand, snapshot), self._now)
        return in_slices(steps, self._now)

    def _pre_filtering(self, pod: PodInfo, demand: NodeDemand, snapshot: Snapshot) -> Steps[Answer]:
        yield from demand.catching_up(snapshot.table)
        return self._demanded(pod, demand)

    def _demanded(self, pod: PodInfo, demand: NodeDemand) -> Answer:
        if problems := demand.problems:
            self._log_once(pod, problems)
        node_names = _only_node_names(pod.template)
        if node_names is None:
            # Very many terms are evaluated for changed nodes before every cycle.
            return SUCCESS if demand.is_large else PASS_TEMPLATE
        return PreFilterResult(node_names=node_names) if node_names else CONFLICT

    def _log_once(self, pod: PodInfo, problems: str) -> None:
        """Log what the reason does not say: the affinity is invalid and so matches no node."""
        if problems in self._logged or len(self._logged) >= MAX_LOGGED_PROBLEMS:
            return
        self._logged.add(problems)
        log.warning(
            "node affinity cannot be parsed, its term matches no node",
            extra={"pod": pod.key, "err": problems},
        )

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        mismatched = ~node_demand(pod.template).matches(nodes)
        codes = 2 * mismatched.astype(np.int16)
        if self._added_required is not None:
            codes[~matches_terms(self._added_required, nodes)] = 1
        return Verdicts(codes, (ENFORCED, POD))

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> Status | Coroutine[Any, Any, Status]:
        try:
            preferred = node_preference(pod.template)
        except InvalidSelector as problem:
            return error(str(problem))
        if preferred.is_large:
            return in_slices(within_budget(_pre_scoring(preferred, nodes), self._now), self._now)
        has_none = preferred.is_empty and self._added_preferred is None
        return SKIP_TEMPLATE if has_none else PASS_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        scores = np.zeros(len(nodes), np.int64)
        if self._added_preferred is not None:
            scores += preference(self._added_preferred, nodes)
        preferred = node_preference(pod.template)
        if not preferred.is_empty:
            scores += preferred.score(nodes)
        return scores

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return default_normalize(scores)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        event = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (ClusterEventWithHint(event, self._is_schedulable_after_node_change, per_pod=False),)

    def _is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node
    ) -> QueueingHint:
        if node_demand(pod.template).is_large:
            # Evaluating all of its terms takes longer than an attempt with most nodes cached.
            return QueueingHint.QUEUE
        # The added affinity counts on both sides: a node that only now satisfies it matters, also
        # for a pod whose own affinity the node satisfied before.
        matched_before = old is not None and self._allows(old, pod)
        if self._allows(new, pod) and not matched_before:
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _allows(self, node: Node, pod: PodInfo) -> bool:
        labels, name = node.metadata.labels, node.metadata.name
        if self._added_required is not None and not self._added_required.matches(labels, name):
            return False
        return node_demand(pod.template).allows(node)


def _pre_scoring(preferred: NodePreference, nodes: NodeRows) -> Steps[Status]:
    """kube-scheduler: getPodPreferredNodeAffinity."""
    try:
        yield from preferred.catching_up(nodes.table)
    except InvalidSelector as problem:
        return error(str(problem))
    return SUCCESS


@template_fact
def _only_node_names(template: PodTemplate) -> frozenset[str] | None:
    """Return the nodes that the required terms name; ``None`` if some term names none."""
    affinity = node_affinity(template)
    if affinity is None or affinity.required is None or not affinity.required.node_selector_terms:
        return None
    found: set[str] = set()
    for term in affinity.required.node_selector_terms:
        named = _names_in_term(term)
        if named is None:
            return None
        found |= named
    return frozenset(found)


def _names_in_term(term: NodeSelectorTerm) -> frozenset[str] | None:
    value_sets = [
        frozenset(wanted.values)
        for wanted in term.match_fields
        if wanted.key == NODE_NAME_FIELD and wanted.operator == IN
    ]
    return frozenset.intersection(*value_sets) if value_sets else None


def _compile_added_required(added: NodeAffinitySpec | None) -> NodeTerms | None:
    if added is None or added.required is None:
        return None
    path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    selector = compile_node_selector(added.required, path)
    if selector.problems:
        raise ConfigError([f"parsing {path}: {aggregate(selector.problems)}"])
    return selector


def _compile_added_preferred(added: NodeAffinitySpec | None) -> PreferredTerms | None:
    if added is None or added.preferred is None:
        return None
    path = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    try:
        return compile_preferred(added.preferred, path)
    except InvalidSelector as problem:
        raise ConfigError([f"parsing {path}: {problem}"]) from problem

"""InterPodAffinity: required and preferred affinity and anti-affinity between pods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from ksched.api.label_selectors import aggregate
from ksched.api.objects import Labels, Namespace, Node, Pod
from ksched.configuration.plugin_args import InterPodAffinityArgs
from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ChangedVerdicts,
    ClassScores,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    Listers,
    NodeInfo,
    NodeRows,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    ScoreDependsOn,
    Snapshot,
    Status,
    Verdicts,
    error,
    template_fact,
    unresolvable,
)
from ksched.framework.counters import Ids, Ints, PerTemplate, PodLedger, counters_of
from ksched.framework.plugins import names
from ksched.framework.plugins.inter_pod_affinity.filtering import (
    IncomingTemplate,
    RequiredAffinity,
    RequiredTerms,
    carried_anti_affinity,
)
from ksched.framework.plugins.inter_pod_affinity.scoring import (
    CarriedTerms,
    PreferredAffinity,
    PreferredTerms,
    normalize,
)
from ksched.framework.plugins.inter_pod_affinity.terms import (
    UNKNOWN,
    AffinityTerm,
    ResolvedTerm,
    TermIndex,
    Terms,
    compile_terms,
    compiling_terms,
    depends_on_namespaces,
    labels_of_namespace,
    resolve,
    terms_of,
)
from ksched.framework.time_slices import in_slices, within_budget
from ksched.steps import Steps

Resolved = tuple[ResolvedTerm, ...]

ALWAYS_VALID = -1
"""Replaces the generation of the namespaces where these do not matter."""

_SCORES = f"{names.INTER_POD_AFFINITY}/score"


class InterPodAffinity:
    """Places pods near, or away from, other pods, by labels of the nodes those run on.

    A node is rejected if no pod that satisfies all required affinity terms at once runs in its
    domains (``node(s) didn't match pod affinity rules``), if a pod that matches a required
    anti-affinity term does (``node(s) didn't match pod anti-affinity rules``), or if a pod there
    has a required anti-affinity term that matches the incoming one (``node(s) didn't satisfy
    existing pods anti-affinity rules``). The first of a group of pods with affinity to each other
    may go anywhere. A selector that cannot be parsed rejects the pod on all nodes (``parsing pod:
    ...``).

    The score is the sum of the weights of preferred terms, the pod's own and those of existing pods
    that match it, scaled from 0 for the worst node to 100 for the best. Arguments:
    ``hardPodAffinityWeight`` (1) is the weight of a required affinity term of an existing pod;
    ``ignorePreferredTermsOfExistingPods`` (false) leaves pods without preferences unscored.
    """

    name: ClassVar[str] = names.INTER_POD_AFFINITY
    score_depends_on: ClassVar = ScoreDependsOn(Scope.CLUSTER)

    def __init__(
        self, args: InterPodAffinityArgs | None, listers: Listers, now: Callable[[], float]
    ) -> None:
        self.filter_depends_on = FilterDependsOn(
            Scope.CLUSTER,
            changes=self._filter_changes,
            group=self._filter_group,
            reads_claim_names=False,
        )
        self._now = now
        self._args = args or InterPodAffinityArgs()
        self._namespaces = listers.require(Namespace)
        self._incoming: PerTemplate[IncomingTemplate] = PerTemplate()
        self._required: WeakValueDictionary[Hashable, RequiredTerms] = WeakValueDictionary()
        self._preferred: PerTemplate[PreferredTerms] = PerTemplate()
        self._ledger: PodLedger | None = None
        self._indexes: tuple[TermIndex[AffinityTerm], CarriedTerms] | None = None
        self._last_deleted: tuple[Pod, frozenset[AffinityTerm]] | None = None
        """Evaluated once per deleted pod instead of once per group of waiting pods."""

    def sweep(self) -> None:
        self._incoming.sweep()
        self._preferred.sweep()
        self._last_deleted = None
        if self._indexes is not None:
            index, carried = self._indexes
            index.forget_gone()
            carried.index.forget_gone()

    def _terms_in(self, ledger: PodLedger) -> tuple[TermIndex[AffinityTerm], CarriedTerms]:
        """The terms of the cluster's pods: required anti-affinity, and those that are scored."""
        if self._indexes is None or self._ledger is not ledger:
            self._ledger = ledger
            self._indexes = (
                TermIndex(ledger, carried_anti_affinity, lambda term: term),
                CarriedTerms(ledger, self._args.hard_pod_affinity_weight),
            )
        return self._indexes

    # -- filter ---------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | Coroutine[Any, Any, Status]:
        template, ledger = pod.template, counters_of(snapshot.table)
        index, _ = self._terms_in(ledger)
        if index.is_current:
            terms: Terms = template.facts.get(terms_of, UNKNOWN)
            if not index and terms.require_nothing:
                # State cached from when there were terms is left to the sweep.
                return SKIP
            incoming = self._incoming.get(ledger, template)
            required = None if incoming is None else incoming.required
            if incoming and required and required.is_counted and incoming.is_current:
                return self._answer(state, incoming, required)
        return in_slices(self._pre_filtering(state, template, ledger, index), self._now)

    def _pre_filtering(
        self,
        state: CycleState,
        template: PodTemplate,
        ledger: PodLedger,
        index: TermIndex[AffinityTerm],
    ) -> Steps[Status]:
        """Apply changes, with pauses; other pods may have any number of terms."""
        terms: Terms | None = template.facts.get(terms_of)
        if terms is None:
            terms = yield from within_budget(compiling_terms(template), self._now)
        if terms.problems:
            return unresolvable(f"parsing pod: {aggregate(terms.problems)}")
        yield from index.catching_up()
        if not index and terms.require_nothing:
            return SKIP
        incoming = self._incoming.get(ledger, template)
        if incoming is None:
            labels = ledger.table.labels
            incoming = IncomingTemplate(template, index, labels, self._namespaces)
            self._incoming.put(template, incoming)
        if (yield from incoming.catching_up()) or incoming.required is None:
            incoming.required = self._required_terms(incoming, ledger)
        if not incoming.required.is_counted:
            yield from within_budget(incoming.required.counting(), self._now)
        return self._answer(state, incoming, incoming.required)

    def _answer(
        self, state: CycleState, incoming: IncomingTemplate, required: RequiredTerms
    ) -> Status:
        affinity = required.catch_up(incoming)
        if affinity is None:
            return SKIP
        state.write(self.name, affinity)
        return SUCCESS

    def _required_terms(self, incoming: IncomingTemplate, ledger: PodLedger) -> RequiredTerms:
        key = (incoming.own, incoming.existing)
        required = self._required.get(key)
        if required is None or required.ledger is not ledger:
            required = self._required[key] = RequiredTerms(incoming.own, incoming.existing, ledger)
        return required

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        state.read(self.name, RequiredAffinity).update(added.template, node, 1)
        return SUCCESS

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        state.read(self.name, RequiredAffinity).update(removed.template, node, -1)
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return state.read(self.name, RequiredAffinity).verdicts(nodes)

    def _filter_changes(
        self, state: CycleState, pod: PodInfo, mark: object
    ) -> tuple[object, ChangedVerdicts | Ids | None]:
        return state.read(self.name, RequiredAffinity).required.filter.changes_since(mark)

    def _filter_group(self, state: CycleState, pod: PodInfo) -> RequiredTerms:
        return state.read(self.name, RequiredAffinity).required

    # -- score ----------------------------------------------------------------------------------

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> Status | Coroutine[Any, Any, Status]:
        template, ledger = pod.template, counters_of(nodes.table)
        _, carried = self._terms_in(ledger)
        if carried.index.is_current:
            terms: Terms = template.facts.get(terms_of, UNKNOWN)
            if not carried.index and terms.prefer_nothing:
                return SKIP
            preferred = self._preferred.get(ledger, template)
            if preferred is not None and preferred.is_current and preferred.is_counted:
                return self._rate(state, preferred)
        return in_slices(self._pre_scoring(state, template, carried), self._now)

    def _pre_scoring(
        self, state: CycleState, template: PodTemplate, carried: CarriedTerms
    ) -> Steps[Status]:
        terms: Terms | None = template.facts.get(terms_of)
        if terms is None:
            terms = yield from within_budget(compiling_terms(template), self._now)
        if terms.problems:
            return error(f"failed to parse pod: {aggregate(terms.problems)}")
        yield from carried.index.catching_up()
        ignores_others = self._args.ignore_preferred_terms_of_existing_pods
        if terms.prefer_nothing and (not carried.index or ignores_others):
            return SKIP
        preferred = self._preferred.get(carried.ledger, template)
        if preferred is None:
            preferred = PreferredTerms(template, carried, self._namespaces)
            self._preferred.put(template, preferred)
        yield from preferred.catching_up()
        if not preferred.is_counted:
            yield from within_budget(preferred.counting(), self._now)
        return self._rate(state, preferred)

    def _rate(self, state: CycleState, preferred: PreferredTerms) -> Status:
        affinity = preferred.counts_now()
        if affinity is None:
            return SKIP
        state.write(_SCORES, affinity)
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints | ClassScores:
        return state.read(_SCORES, PreferredAffinity).score(nodes)

    def normalize(self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: Ints) -> Ints:
        return normalize(scores)

    # -- wake-ups -------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # kube-scheduler has one registration for all changes of pods; see PodTopologySpread.
        came_or_went = ClusterEvent(Resource.POD, Action.ADD | Action.DELETE)
        relabelled = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
        pending = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (
            ClusterEventWithHint(came_or_went, self._after_pod_change, per_pod=False),
            ClusterEventWithHint(relabelled, self._after_pod_change, per_pod=False),
            ClusterEventWithHint(pending, self._after_pending_pod_change),
            ClusterEventWithHint(node, self._after_node_change, per_pod=False),
        )

    def _after_pending_pod_change(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        if new.metadata.uid == pod.uid:
            # Terms of others may no longer match it, or its own may now match itself.
            return QueueingHint.QUEUE
        return self._after_pod_change(pod, old, new)

    def _after_pod_change(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> QueueingHint:
        """kube-scheduler: isSchedulableAfterPodChange."""
        if not all(_has_node(one) for one in (old, new) if one is not None):
            return QueueingHint.SKIP
        near, apart = self._resolved(pod.template)
        was_near, is_near = _matches_all(near, old), _matches_all(near, new)
        was_apart, is_apart = _matches_all(apart, old), _matches_all(apart, new)
        if is_near and not was_near:
            return QueueingHint.QUEUE
        if was_apart and not is_apart:
            return QueueingHint.QUEUE
        if old is not None and new is None and self._was_blocked_by(pod.template, old):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _resolved(self, template: PodTemplate) -> tuple[Resolved, Resolved]:
        """Required affinity and anti-affinity terms of a waiting pod; hints read them often."""
        generation = self._namespaces.generation
        known: tuple[int, tuple[Resolved, Resolved]] | None = template.facts.get(self)
        if known is None or known[0] not in (generation, ALWAYS_VALID):
            terms = terms_of(template)
            required = (terms.required_affinity, terms.required_anti_affinity)
            if not depends_on_namespaces((*required[0], *required[1])):
                generation = ALWAYS_VALID
            near, apart = (
                tuple(dict.fromkeys(resolve(term, self._namespaces) for term in own))
                for own in required
            )
            known = template.facts[self] = (generation, (near, apart))
        return known[1]

    def _was_blocked_by(self, template: PodTemplate, deleted: Pod) -> bool:
        """Whether all required anti-affinity terms of a deleted pod matched the waiting one."""
        affinity = deleted.spec.affinity
        if affinity is None or affinity.pod_anti_affinity is None:
            return False
        if self._last_deleted is None or self._last_deleted[0] is not deleted:
            namespace, required = deleted.metadata.namespace, affinity.pod_anti_affinity.required
            compiled = compile_terms(namespace, required)
            # The topology key is irrelevant here, and a pod's terms often differ only in it.
            terms = frozenset(term._replace(topology_key="") for term in compiled)
            self._last_deleted = (deleted, terms)
        terms = self._last_deleted[1]
        labels = labels_of_namespace(self._namespaces, template.namespace)
        return bool(terms) and all(term.matches(template, labels) for term in terms)

    def _after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        near, apart = _keys(pod.template)
        after = new.metadata.labels
        if old is None:
            # Without own affinity it was rejected because of the pods on existing nodes.
            return _queue_if(not near or bool(apart) or _any_in(near, after))
        before = old.metadata.labels
        if not near and not apart:
            # Rejected by terms of other pods, whose topology keys are not known here.
            return _queue_if(any(after.get(key) != value for key, value in before.items()))
        gained = any(key in after and before.get(key) != after[key] for key in near)
        lost = any(key in before and before[key] != after.get(key) for key in apart)
        return _queue_if(gained or lost)


@template_fact
def _keys(template: PodTemplate) -> tuple[frozenset[str], frozenset[str]]:
    """Return the topology keys of required affinity and anti-affinity."""
    terms = terms_of(template)
    return (
        frozenset(term.topology_key for term in terms.required_affinity),
        frozenset(term.topology_key for term in terms.required_anti_affinity),
    )


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _has_node(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _matches_all(terms: Sequence[ResolvedTerm], pod: Pod | None) -> bool:
    """Whether a pod satisfies all terms at once; false without terms."""
    if pod is None or not terms:
        return False
    metadata = pod.metadata
    return all(term.matches(metadata.namespace, metadata.labels) for term in terms)


def _any_in(keys: Iterable[str], labels: Labels) -> bool:
    return any(key in labels for key in keys)

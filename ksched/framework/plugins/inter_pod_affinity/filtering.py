"""Required terms: those of the incoming pod and those of existing pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ksched.api.objects import Labels, Namespace
from ksched.framework import (
    Lister,
    NodeInfo,
    NodeRows,
    PodTemplate,
    Verdicts,
    template_fact,
    unresolvable,
    unschedulable,
)
from ksched.framework.counters import (
    Counted,
    Counts,
    DomainAttempt,
    DomainCounts,
    DomainFilter,
    DomainRule,
    Holds,
    PodCounts,
    PodLedger,
)
from ksched.framework.freshness import RecentlyUsed
from ksched.framework.node_columns import NodeLabels
from ksched.framework.plugins.inter_pod_affinity.term_set import counting, pods_matching_any
from ksched.framework.plugins.inter_pod_affinity.terms import (
    AffinityTerm,
    MatchedTerms,
    ResolvedTerm,
    TermIndex,
    depends_on_namespaces,
    labels_of_namespace,
    resolve,
    terms_of,
)
from ksched.steps import Steps
from ksched.tuning import MANY_TERMS, TERMS_PER_STEP, WEIGHTS_CACHED

NO_AFFINITY = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
_STATUSES = (NO_AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY)
_NO_AFFINITY, _ANTI_AFFINITY, _EXISTING_ANTI_AFFINITY = 1, 2, 3

_NEAR, _APART, _EXISTING = 0, 1, 2
"""Groups of counters: pods that match all affinity terms, pods that match an anti-affinity term,
and pods with such a term that matches the incoming one."""

ByKey = Mapping[str, tuple[DomainCounts, ...]]
TermT = TypeVar("TermT", AffinityTerm, ResolvedTerm)

_NOTHING: Mapping[str, int] = {}


def pods_matching_all(terms: Iterable[ResolvedTerm], ledger: PodLedger) -> PodCounts:
    """Return the counter of pods that match all of the terms, terminating ones included."""
    conditions = frozenset((term.namespaces, term.selector) for term in terms)
    wanted = tuple(dict.fromkeys(term._replace(topology_key="") for term in terms))

    def are_met(template: PodTemplate) -> int:
        for one in wanted:
            if not one.matches(template.namespace, template.labels):
                return 0
        return 1

    return ledger.pod_counts(("matched by all", conditions), are_met, include_terminating=True)


@template_fact
def carried_anti_affinity(template: PodTemplate) -> Mapping[str, Mapping[AffinityTerm, int]]:
    """Return a template's required anti-affinity terms by topology key, with their multiplicity.

    kube-scheduler: getExistingAntiAffinityCounts.
    """
    carried: dict[str, dict[AffinityTerm, int]] = {}
    for term in terms_of(template).required_anti_affinity:
        same_key = carried.setdefault(term.topology_key, {})
        same_key[term] = same_key.get(term, 0) + 1
    return carried


class RequiredAffinity:
    """The state of one attempt; cloned for dry runs.

    The counts by topology key and value are kube-scheduler's topologyToMatchedTermCount.
    """

    def __init__(
        self,
        incoming: IncomingTemplate,
        required: RequiredTerms,
        attempt: DomainAttempt,
        rules: Mapping[str, int],
    ) -> None:
        self._incoming = incoming
        self.required = required
        self._attempt = attempt
        self._rules = rules
        """By topology key."""

    def clone(self) -> RequiredAffinity:
        return RequiredAffinity(self._incoming, self.required, self._attempt.clone(), self._rules)

    def update(self, other: PodTemplate, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes. kube-scheduler: updateWithPod."""
        labels, required = node.labels, self.required
        for key, terms in self._incoming.matched_by(other).items():
            self._change(key, _EXISTING, labels, more * terms)
        if required.own.affinity and required.own.satisfied_by(other):
            for key in required.affinity:
                self._change(key, _NEAR, labels, more)
        for key, terms in required.anti_affinity_matches(other).items():
            self._change(key, _APART, labels, more * terms)

    def _change(self, key: str, group: int, labels: Labels, more: int) -> None:
        """Count a pod on a node with these labels; a node without the key has no such pair."""
        if key not in labels:
            return
        if key not in self._rules:
            number = self._attempt.add_rule(self.required.rule_without_pods(key))
            self._rules = {**self._rules, key: number}
        self._attempt.change(self._rules[key], group, labels[key], more)

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        return self._attempt.verdicts(nodes)


def _judge(
    wants_near: bool, counts: Sequence[Counts], is_first: bool
) -> Iterator[tuple[int, Holds]]:
    """Return what rejects a domain; the first of pods with mutual affinity may go anywhere.

    kube-scheduler: satisfyPodAffinity, satisfyPodAntiAffinity, satisfyExistingPodsAntiAffinity.
    """
    if wants_near and not is_first:
        yield _NO_AFFINITY, counts[_NEAR] <= 0
    yield _ANTI_AFFINITY, counts[_APART] > 0
    yield _EXISTING_ANTI_AFFINITY, counts[_EXISTING] > 0


class OwnTerms(NamedTuple):
    """The required terms of an incoming pod, with namespaces resolved to names."""

    affinity: tuple[ResolvedTerm, ...] = ()
    anti_affinity: tuple[ResolvedTerm, ...] = ()
    """Those with keys that some node has; the others concern no node."""
    matches_itself: bool = False
    absent_key: str = ""
    """A key of an affinity term that no node has: no node satisfies it."""

    def satisfied_by(self, other: PodTemplate) -> bool:
        """Whether a pod satisfies all required affinity terms at once.

        kube-scheduler: podMatchesAllAffinityTerms.
        """
        return all(term.matches(other.namespace, other.labels) for term in self.affinity)


class IncomingTemplate:
    """The required terms relevant to pods of one template: its own, and those that match it."""

    def __init__(
        self,
        template: PodTemplate,
        index: TermIndex[AffinityTerm],
        labels: NodeLabels,
        namespaces: Lister[Namespace],
    ) -> None:
        self.template = template
        self._index = index
        self._labels = labels
        self._labels_generation = -1
        self._namespaces = namespaces
        self._seen = (-1, -1, -1)
        terms = terms_of(template)
        self._terms = (terms.required_affinity, terms.required_anti_affinity)
        self._depends_on_namespaces = depends_on_namespaces((*self._terms[0], *self._terms[1]))
        self._resolved = (-1, -1)
        """Generation of the namespaces and of the labels for which ``own`` is valid."""
        self.own = OwnTerms()
        self.namespace_labels: Labels = {}
        self._matched: MatchedTerms[AffinityTerm] | None = None
        self._found: frozenset[AffinityTerm] | None = None
        self.existing: frozenset[AffinityTerm] = frozenset()
        """Terms that match this template: of pods in the cluster, and its own, which the next pod
        of this template will find there."""
        self._matched_by: RecentlyUsed[int, Mapping[str, int]] = RecentlyUsed()
        self.required: RequiredTerms | None = None

    @property
    def is_current(self) -> bool:
        """Whether terms, labels and namespaces are unchanged since the last update."""
        return self._seen == (
            self._index.generation,
            self._labels.generation,
            self._namespaces.generation,
        )

    def catching_up(self) -> Steps[bool]:
        """Apply new terms and namespaces; returns whether ``own`` or ``existing`` changed."""
        seen = (self._index.generation, self._labels.generation, self._namespaces.generation)
        is_resolved = yield from self._resolving()
        labels = labels_of_namespace(self._namespaces, self.template.namespace)
        if labels != self.namespace_labels:
            self.namespace_labels, self._found = labels, None
            self._matched_by.clear()
        matched = self._matched = self._index.matched(self.template, labels, self._matched)
        yield from matched.catching_up()
        self._seen = seen
        return self._take(matched.found) or is_resolved

    def _resolving(self) -> Steps[bool]:
        generation = self._namespaces.generation if self._depends_on_namespaces else 0
        resolved = (generation, self._labels.generation if any(self._terms) else 0)
        if resolved == self._resolved:
            return False
        near: dict[ResolvedTerm, None] = {}
        apart: dict[ResolvedTerm, None] = {}
        absent = ""
        for number, term in enumerate(self._terms[0]):
            near[resolve(term, self._namespaces)] = None
            if not absent and term.topology_key not in self._labels:
                absent = term.topology_key
            if not number % TERMS_PER_STEP:
                yield
        for number, term in enumerate(self._terms[1]):
            if term.topology_key in self._labels:
                apart[resolve(term, self._namespaces)] = None
            if not number % TERMS_PER_STEP:
                yield
        own = OwnTerms(tuple(near), tuple(apart), absent_key=absent)
        before, self.own = (
            self.own,
            own._replace(matches_itself=bool(near) and own.satisfied_by(self.template)),
        )
        self._resolved = resolved
        return before != self.own

    def _take(self, found: frozenset[AffinityTerm]) -> bool:
        if found is self._found and self._labels_generation == self._labels.generation:
            return False
        if self._labels_generation != self._labels.generation:
            self._matched_by.clear()
        self._found, self._labels_generation = found, self._labels.generation
        own = [
            term
            for term in self._terms[1]
            if term.topology_key in self._labels
            and term.matches(self.template, self.namespace_labels)
        ]
        existing = self._index.share(found.union(own)) if own else found
        before, self.existing = self.existing, existing
        return before is not existing and before != existing

    def matched_by(self, other: PodTemplate) -> Mapping[str, int]:
        """Count required anti-affinity terms of another template that match this one, by key."""
        carried = carried_anti_affinity(other)
        if not carried:
            return _NOTHING
        found = self._matched_by.get(other.number)
        if found is None:
            template, labels = self.template, self.namespace_labels
            found = {
                key: sum(number for term, number in terms.items() if term.matches(template, labels))
                for key, terms in carried.items()
                if key in self._labels
            }
            self._matched_by.put(other.number, found, WEIGHTS_CACHED)
        return found


class RequiredTerms:
    """Verdicts that follow from some terms; shared by templates with the same relevant terms.

    kube-scheduler: getIncomingAffinityAntiAffinityCounts.
    """

    def __init__(self, own: OwnTerms, existing: frozenset[AffinityTerm], ledger: PodLedger) -> None:
        self.own = own
        self.ledger = ledger
        pods = pods_matching_all(own.affinity, ledger)
        keys = dict.fromkeys(term.topology_key for term in own.affinity)
        # If no node has one of the keys, that one decides.
        wanted = [own.absent_key] if own.absent_key else list(keys)
        self.affinity = _by_key(ledger.domain_counts(pods, key) for key in wanted)
        self._together: list[PodCounts] = []
        self._anti_affinity = _by_key(self._anti_affinity_counters(own.anti_affinity))
        existing_by_key = _by_key(
            _carriers(key, terms, ledger) for key, terms in _terms_by_key(existing).items()
        )
        groups = (self.affinity, self._anti_affinity, existing_by_key)
        keys = dict.fromkeys(key for group in groups for key in group)
        self._rules = {key: number for number, key in enumerate(keys)}
        self.filter = DomainFilter(
            [_rule(*(group.get(key, ()) for group in groups)) for key in keys],
            _STATUSES,
            partial(_are_first, own.matches_itself),
        )
        """The verdicts of the domains of each key, as of the last ``catch_up``."""

        self.is_counted = not self._together
        """Whether ``counting`` has finished once; later updates are small."""

    def _anti_affinity_counters(self, terms: Sequence[ResolvedTerm]) -> Iterator[DomainCounts]:
        """Return the counters of pods that match anti-affinity terms."""
        ledger = self.ledger
        if len(terms) < MANY_TERMS:
            for term in terms:
                yield ledger.domain_counts(pods_matching_all((term,), ledger), term.topology_key)
            return
        for key, same in _terms_by_key(terms).items():
            pods = pods_matching_any(((1, term) for term in same), ledger)
            self._together.append(pods)
            yield ledger.domain_counts(pods, key)

    def anti_affinity_matches(self, other: PodTemplate) -> Mapping[str, int]:
        """Count the own anti-affinity terms that match pods of a template, by key."""
        return {
            key: number
            for key, counters in self._anti_affinity.items()
            if (number := sum(one.pods.weight_of(other) for one in counters))
        }

    def counting(self) -> Steps[None]:
        """Count the pods of the cluster, if that may take long."""
        yield from counting(self._together)
        self.is_counted = True

    def catch_up(self, incoming: IncomingTemplate) -> RequiredAffinity | None:
        """Update the counts; ``None`` if nothing could reject a node."""
        has_pods = self.filter.count()
        if not has_pods and not self.own.affinity and not self.own.anti_affinity:
            return None
        return RequiredAffinity(incoming, self, self.filter.judge(), self._rules)

    def rule_without_pods(self, key: str) -> DomainRule:
        """Return a rule for a key that only pods added by a dry run have."""
        no_pods = self.ledger.pod_counts("no_pods", lambda template: 0, include_terminating=False)
        counter = self.ledger.domain_counts(no_pods, key)
        counter.catch_up()
        return _rule((), (), (counter,))


def _are_first(matches_itself: bool, counted: Sequence[Sequence[Counted]]) -> Sequence[bool]:
    """Whether no pod satisfies the terms yet, and the pod itself does."""
    is_first = matches_itself and not any(groups[_NEAR].total for groups in counted)
    return (is_first,) * len(counted)


def _rule(
    near: tuple[DomainCounts, ...],
    apart: tuple[DomainCounts, ...],
    existing: tuple[DomainCounts, ...],
) -> DomainRule:
    """Build the rule for one topology key."""
    topology = (*near, *apart, *existing)[0].topology
    judge = partial(_judge, bool(near))
    return DomainRule(topology, (near, apart, existing), judge, _NO_AFFINITY if near else 0)


def _terms_by_key(terms: Iterable[TermT]) -> Mapping[str, frozenset[TermT]]:
    grouped: dict[str, list[TermT]] = {}
    for term in terms:
        grouped.setdefault(term.topology_key, []).append(term)
    return {key: frozenset(same_key) for key, same_key in grouped.items()}


def _carriers(key: str, terms: frozenset[AffinityTerm], ledger: PodLedger) -> DomainCounts:
    """Return the counter of pods that carry some of these required anti-affinity terms of one key.

    One counter for all of them: it only matters whether a domain has any.
    """

    def number_of(template: PodTemplate) -> int:
        carried = carried_anti_affinity(template).get(key)
        if carried is None:
            return 0
        return sum(number for term, number in carried.items() if term in terms)

    pods = ledger.pod_counts(
        ("carries required anti-affinity", terms), number_of, include_terminating=True
    )
    return ledger.domain_counts(pods, key)


def _by_key(counters: Iterable[DomainCounts]) -> ByKey:
    grouped: dict[str, dict[DomainCounts, None]] = {}
    for counter in counters:
        grouped.setdefault(counter.topology.topology_key, {})[counter] = None
    return {key: tuple(found) for key, found in grouped.items()}

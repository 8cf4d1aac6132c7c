"""Required terms: the incoming pod's own, and those of pods that are already there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ksched.api.objects import Labels, Namespace
from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.pod_counts import PodCounts, PodLedger
from ksched.cache.counters.topology_domains import ABSENT, Ints, TopologyDomains
from ksched.cache.labels import NodeLabels
from ksched.cache.listers import Lister
from ksched.cache.recently_used import RecentlyUsed
from ksched.framework import (
    SUCCESS,
    NodeInfo,
    NodeRows,
    PodTemplate,
    Verdicts,
    template_fact,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins.domain_verdicts import ChangedDomains, Codes, DomainVerdicts
from ksched.framework.plugins.inter_pod_affinity.meant import counting, pods_meant_by_any
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
from ksched.framework.time_slices import Steps
from ksched.tuning import MANY_TERMS, TERMS_PER_STEP, WEIGHTS_CACHED

NO_AFFINITY = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
_STATUSES = (NO_AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY)
_BY_CODE = (SUCCESS, *_STATUSES, SUCCESS)
_NO_AFFINITY, _ANTI_AFFINITY, _EXISTING_ANTI_AFFINITY, _PASSES = 1, 2, 3, 4

ByKey = Mapping[str, tuple[DomainCounts, ...]]
TermT = TypeVar("TermT", AffinityTerm, ResolvedTerm)
CodesByKey = dict[str, tuple[TopologyDomains, Codes]]

_NOTHING: Mapping[str, int] = {}


def pods_meant_by(terms: Iterable[ResolvedTerm], ledger: PodLedger) -> PodCounts:
    """The counter of the pods that all of the terms mean, those being deleted included."""
    meant = frozenset((term.namespaces, term.selector) for term in terms)
    wanted = tuple(dict.fromkeys(term._replace(topology_key="") for term in terms))

    def are_met(template: PodTemplate) -> int:
        for one in wanted:
            if not one.matches(template.namespace, template.labels):
                return 0
        return 1

    return ledger.pod_counts(("meant by", meant), are_met, include_terminating=True)


@template_fact
def carried_anti_affinity(template: PodTemplate) -> Mapping[str, Mapping[AffinityTerm, int]]:
    """The required anti-affinity terms of a template by topology key, and how often each is.

    kube-scheduler: getExistingAntiAffinityCounts.
    """
    carried: dict[str, dict[AffinityTerm, int]] = {}
    for term in terms_of(template).required_anti_affinity:
        same_key = carried.setdefault(term.topology_key, {})
        same_key[term] = same_key.get(term, 0) + 1
    return carried


class PairCounts:
    """Numbers of pods by topology key and value, and what a dry run changed in them.

    kube-scheduler: topologyToMatchedTermCount.
    """

    def __init__(self, by_key: ByKey, changes: dict[tuple[str, str], int] | None = None) -> None:
        self.by_key = by_key
        self._changes = changes or {}

    def clone(self) -> PairCounts:
        return PairCounts(self.by_key, dict(self._changes))

    def change(self, key: str, labels: Labels, more: int, ledger: PodLedger) -> None:
        """Count a pod on a node with these labels; a node without the key has no such pair."""
        if key not in labels:
            return
        if key not in self.by_key:
            nobody = ledger.pod_counts("nobody", lambda template: 0, include_terminating=False)
            counter = ledger.domain_counts(nobody, key)
            counter.catch_up()
            self.by_key = {**self.by_key, key: (counter,)}
        pair = (key, labels[key])
        self._changes[pair] = self._changes.get(pair, 0) + more

    def by_domain(self, key: str) -> Ints:
        """The numbers of one key, by domain; 0 for nodes without it."""
        counters = self.by_key[key]
        counts = counters[0].counts.copy()
        counts[ABSENT] = 0
        for other in counters[1:]:
            counts[ABSENT + 1 :] += other.counts[ABSENT + 1 :]
        for (changed, value), more in self._changes.items():
            if changed == key:
                counts[counters[0].topology.find(value)] += more
        return counts

    @property
    def is_empty(self) -> bool:
        if self._changes:
            return not any(self.by_domain(key).any() for key in self.by_key)
        return not any(one.total for counters in self.by_key.values() for one in counters)


class RequiredAffinity:
    """What one attempt needs to judge nodes; cloned for dry runs."""

    def __init__(
        self,
        incoming: IncomingTemplate,
        kept: RequiredTerms,
        affinity: PairCounts,
        anti_affinity: PairCounts,
        existing: PairCounts,
    ) -> None:
        self._incoming = incoming
        self.kept = kept
        self._affinity = affinity
        self._anti_affinity = anti_affinity
        self._existing = existing
        self._is_changed = False

    def clone(self) -> RequiredAffinity:
        copy = RequiredAffinity(
            self._incoming,
            self.kept,
            self._affinity.clone(),
            self._anti_affinity.clone(),
            self._existing.clone(),
        )
        copy._is_changed = self._is_changed
        return copy

    def update(self, other: PodTemplate, node: NodeInfo, more: int) -> None:
        """Count a pod that a dry run adds or removes. kube-scheduler: updateWithPod."""
        incoming, labels, ledger = self._incoming, node.labels, self.kept.ledger
        own = self.kept.own
        for key, terms in incoming.meant_by(other).items():
            self._existing.change(key, labels, more * terms, ledger)
        if own.affinity and own.wants(other):
            for key in self._affinity.by_key:
                self._affinity.change(key, labels, more, ledger)
        for key, terms in self.kept.kept_from(other).items():
            self._anti_affinity.change(key, labels, more * terms, ledger)
        self._is_changed = True

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        codes: Codes | None = None
        kept = self.kept.verdicts
        for topology, by_domain in (
            self.judge().values()
            if self._is_changed
            else zip(kept.topologies, kept.codes, strict=True)
        ):
            found = by_domain.take(topology.ids(nodes))
            codes = found if codes is None else np.minimum(codes, found)
        if codes is None:
            return Verdicts.passing(len(nodes))
        codes[codes == _PASSES] = 0
        return Verdicts(codes, _STATUSES)

    @property
    def is_first(self) -> bool:
        """The first of pods that want to be together may go anywhere its labels are."""
        return self.kept.own.wants_itself and self._affinity.is_empty

    def judge(self) -> CodesByKey:
        """By key what is wrong with each domain; a smaller code owns the reason.

        kube-scheduler: satisfyPodAffinity, satisfyPodAntiAffinity, satisfyExistingPodsAntiAffinity.
        """
        found: CodesByKey = {}
        for code, pairs in (
            (_EXISTING_ANTI_AFFINITY, self._existing),
            (_ANTI_AFFINITY, self._anti_affinity),
        ):
            for key in pairs.by_key:
                _codes(found, key, pairs)[pairs.by_domain(key) > 0] = code
        is_first = self.is_first
        for key in self._affinity.by_key:
            codes = _codes(found, key, self._affinity)
            if not is_first:
                codes[self._affinity.by_domain(key) <= 0] = _NO_AFFINITY
            codes[ABSENT] = _NO_AFFINITY
        return found


def _codes(found: CodesByKey, key: str, pairs: PairCounts) -> Codes:
    if key not in found:
        topology = pairs.by_key[key][0].topology
        found[key] = (topology, np.full(topology.width, _PASSES, np.int16))
    return found[key][1]


class OwnTerms(NamedTuple):
    """The required terms of an incoming pod, with the namespaces by name."""

    affinity: tuple[ResolvedTerm, ...] = ()
    anti_affinity: tuple[ResolvedTerm, ...] = ()
    """Those of keys that some node has; the others mean no node."""
    wants_itself: bool = False
    absent_key: str = ""
    """A key of an affinity term that no node has: no node satisfies it."""

    def wants(self, other: PodTemplate) -> bool:
        """Whether a pod satisfies all required affinity terms at once."""
        return all(term.matches(other.namespace, other.labels) for term in self.affinity)


class IncomingTemplate:
    """Which required terms matter to the pods of one template: its own, and those that mean it."""

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
        """Generation of the namespaces and of the labels for which ``own`` holds."""
        self.own = OwnTerms()
        self.namespace_labels: Labels = {}
        self._matched: MatchedTerms[AffinityTerm] | None = None
        self._found: frozenset[AffinityTerm] | None = None
        self.existing: frozenset[AffinityTerm] = frozenset()
        """Terms that mean this template: of pods in the cluster, and its own, which the next pod of
        this template will find there."""
        self._meant_by: RecentlyUsed[int, Mapping[str, int]] = RecentlyUsed()
        self.kept: RequiredTerms | None = None

    @property
    def is_current(self) -> bool:
        """Whether there are no other terms, labels or namespaces than when it caught up."""
        return self._seen == (
            self._index.generation,
            self._labels.generation,
            self._namespaces.generation,
        )

    def catching_up(self) -> Steps[bool]:
        """Look at new terms and namespaces; tells whether ``own`` or ``existing`` changed."""
        seen = (self._index.generation, self._labels.generation, self._namespaces.generation)
        is_resolved = yield from self._resolving()
        labels = labels_of_namespace(self._namespaces, self.template.namespace)
        if labels != self.namespace_labels:
            self.namespace_labels, self._found = labels, None
            self._meant_by.clear()
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
            own._replace(wants_itself=bool(near) and own.wants(self.template)),
        )
        self._resolved = resolved
        return before != self.own

    def _take(self, found: frozenset[AffinityTerm]) -> bool:
        if found is self._found and self._labels_generation == self._labels.generation:
            return False
        if self._labels_generation != self._labels.generation:
            self._meant_by.clear()
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

    def meant_by(self, other: PodTemplate) -> Mapping[str, int]:
        """How many required anti-affinity terms of another template mean this one, by key."""
        carried = carried_anti_affinity(other)
        if not carried:
            return _NOTHING
        found = self._meant_by.get(other.number)
        if found is None:
            template, labels = self.template, self.namespace_labels
            found = {
                key: sum(number for term, number in terms.items() if term.matches(template, labels))
                for key, terms in carried.items()
                if key in self._labels
            }
            self._meant_by.put(other.number, found, WEIGHTS_CACHED)
        return found


class RequiredTerms:
    """Verdicts that follow from some terms; shared by the templates to which the same matter."""

    def __init__(self, own: OwnTerms, existing: frozenset[AffinityTerm], ledger: PodLedger) -> None:
        self.own = own
        self.ledger = ledger
        pods = pods_meant_by(own.affinity, ledger)
        keys = dict.fromkeys(term.topology_key for term in own.affinity)
        # Where no node has one of the keys, that one decides.
        wanted = [own.absent_key] if own.absent_key else list(keys)
        self._affinity = _by_key(ledger.domain_counts(pods, key) for key in wanted)
        self._together: list[PodCounts] = []
        self._anti_affinity = _by_key(self._kept_apart(own.anti_affinity))
        self._existing = _by_key(
            _carriers(key, terms, ledger) for key, terms in _terms_by_key(existing).items()
        )
        groups = (self._affinity, self._anti_affinity, self._existing)
        counters = [one for group in groups for found in group.values() for one in found]
        self._counters = tuple(dict.fromkeys(counters))
        self._pairs = (PairCounts(groups[0]), PairCounts(groups[1]), PairCounts(groups[2]))
        self._changed = ChangedDomains(self._counters)
        self._is_first = False
        topologies = {one.topology.topology_key: one.topology for one in self._counters}
        self._positions = {key: position for position, key in enumerate(topologies)}
        self.verdicts = DomainVerdicts(list(topologies.values()), _BY_CODE)
        """What is wrong with the domains of each key, as of the last ``catch_up``."""

        self.is_counted = not self._together
        """Whether ``counting`` was finished once; what comes later is little."""

    def _kept_apart(self, terms: Sequence[ResolvedTerm]) -> Iterator[DomainCounts]:
        """Counters of the pods that anti-affinity terms mean."""
        ledger = self.ledger
        if len(terms) < MANY_TERMS:
            for term in terms:
                yield ledger.domain_counts(pods_meant_by((term,), ledger), term.topology_key)
            return
        for key, same in _terms_by_key(terms).items():
            pods = pods_meant_by_any(((1, term) for term in same), ledger)
            self._together.append(pods)
            yield ledger.domain_counts(pods, key)

    def kept_from(self, other: PodTemplate) -> Mapping[str, int]:
        """How many own anti-affinity terms mean pods of a template, by key."""
        return {
            key: number
            for key, counters in self._anti_affinity.items()
            if (number := sum(one.pods.weight_of(other) for one in counters))
        }

    def counting(self) -> Steps[None]:
        """Look at the pods of the cluster, if that may take long."""
        yield from counting(self._together)
        self.is_counted = True

    def catch_up(self, incoming: IncomingTemplate) -> RequiredAffinity | None:
        """Counts as they are now; ``None`` if nothing could reject a node."""
        for counter in self._counters:
            counter.catch_up()
        has_own = self.own.affinity or self.own.anti_affinity
        if not has_own and not any(counter.total for counter in self._counters):
            return None
        now = RequiredAffinity(incoming, self, *self._pairs)
        self._judge(now)
        return now

    def _judge(self, now: RequiredAffinity) -> None:
        """Bring the verdicts up to date."""
        verdicts = self.verdicts
        was_first, self._is_first = self._is_first, now.is_first
        changed = self._changed.changes()
        if changed is None or verdicts.is_outgrown:
            found = now.judge()
            verdicts.start_over([found[key][1] for key in self._positions])
        elif was_first != self._is_first:
            verdicts.begin()
            for key, (_, codes) in now.judge().items():
                verdicts.renew(self._positions[key], codes)
        else:
            verdicts.begin()
            for counter, domain in changed:
                key = self._counters[counter].topology.topology_key
                verdicts.amend(self._positions[key], domain, self._code_of(key, domain))
        self._changed.advance()

    def _code_of(self, key: str, domain: int) -> int:
        """What ``RequiredAffinity.judge`` says of a domain, when only numbers changed."""
        near = self._affinity.get(key)
        if near and not self._is_first and near[0].counts[domain] <= 0:
            return _NO_AFFINITY
        for one in self._anti_affinity.get(key, ()):
            if one.counts[domain] > 0:
                return _ANTI_AFFINITY
        for one in self._existing.get(key, ()):
            if one.counts[domain] > 0:
                return _EXISTING_ANTI_AFFINITY
        return _PASSES


def _terms_by_key(terms: Iterable[TermT]) -> Mapping[str, frozenset[TermT]]:
    grouped: dict[str, list[TermT]] = {}
    for term in terms:
        grouped.setdefault(term.topology_key, []).append(term)
    return {key: frozenset(same_key) for key, same_key in grouped.items()}


def _carriers(key: str, terms: frozenset[AffinityTerm], ledger: PodLedger) -> DomainCounts:
    """The counter of pods that carry some of these required anti-affinity terms of one key.

    One for all of them, however many there are: what matters is whether a domain has any.
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

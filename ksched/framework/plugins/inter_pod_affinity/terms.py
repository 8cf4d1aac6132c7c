"""Affinity terms: compiled, resolved for an incoming pod, and indexed over the cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from ksched.api.label_selectors import (
    NOTHING,
    InvalidSelector,
    Requirement,
    Selector,
    compile_selector,
    requirements_of,
    selector_of,
)
from ksched.api.objects import (
    Affinity,
    Labels,
    LabelSelector,
    Namespace,
    PodAffinity,
    PodAffinityTerm,
)
from ksched.framework import Lister, PodTemplate
from ksched.framework.counters import PodLedger
from ksched.framework.freshness import NEVER, ChangeLog
from ksched.framework.time_slices import resuming
from ksched.steps import Steps, at_once
from ksched.tuning import TERMS_LOGGED, TERMS_PER_STEP

T = TypeVar("T", bound=Hashable)


class Kind(NamedTuple):
    """Pods that no term can distinguish: their namespace, and the labels that terms use."""

    namespace: str
    labels: Labels


class AffinityTerm(NamedTuple):
    """A term as a pod carries it; equal terms of different pods are equivalent."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def matches(self, template: PodTemplate | Kind, namespace_labels: Labels) -> bool:
        """Whether it matches pods of a template, whose namespace has these labels."""
        in_namespace = template.namespace in self.namespaces or self.namespace_selector.matches(
            namespace_labels
        )
        return in_namespace and self.selector.matches(template.labels)


class ResolvedTerm(NamedTuple):
    """A term of an incoming pod with its namespaces by name; ``None`` stands for all of them."""

    topology_key: str
    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, namespace: str, labels: Labels) -> bool:
        in_namespace = self.namespaces is None or namespace in self.namespaces
        return in_namespace and self.selector.matches(labels)


class Weighted(NamedTuple):
    weight: int
    term: AffinityTerm


class Terms(NamedTuple):
    """All terms of a template; a list that could not be compiled is empty."""

    required_affinity: tuple[AffinityTerm, ...]
    required_anti_affinity: tuple[AffinityTerm, ...]
    preferred_affinity: tuple[Weighted, ...]
    preferred_anti_affinity: tuple[Weighted, ...]
    problems: tuple[str, ...]

    @property
    def require_nothing(self) -> bool:
        return not (self.required_affinity or self.required_anti_affinity or self.problems)

    @property
    def prefer_nothing(self) -> bool:
        return not (self.preferred_affinity or self.preferred_anti_affinity or self.problems)


def terms_of(template: PodTemplate) -> Terms:
    """Compile a template's terms (framework/types.go: PodInfo.Update, v1.36)."""
    known: Terms | None = template.facts.get(terms_of)
    return at_once(compiling_terms(template)) if known is None else known


def compiling_terms(template: PodTemplate) -> Steps[Terms]:
    """Like ``terms_of``, with pauses: a pod may have tens of thousands of terms."""
    known: Terms | None = template.facts.get(terms_of)
    if known is None:
        affinity = template.spec.affinity
        if affinity is None or not template.has_pod_affinity:
            known = NO_TERMS
        else:
            # Not of the template, which keeps it: that would be a reference cycle.
            begin = partial(_compiling, template.namespace, affinity)
            known = yield from resuming(template.facts, _compiling, begin)
        template.facts[terms_of] = known
    return known


def _compiling(namespace: str, affinity: Affinity) -> Steps[Terms]:
    problems: list[str] = []
    near, apart = affinity.pod_affinity or _NO_RULES, affinity.pod_anti_affinity or _NO_RULES
    required, preferred = [], []
    for rules, name in ((near, "AffinityTerms"), (apart, "AntiAffinityTerms")):
        found = yield from _compiled(namespace, rules.required, f"required{name}", problems)
        required.append(found)
    for rules, name in ((near, "AffinityTerms"), (apart, "AntiAffinityTerms")):
        bare = [weighted.pod_affinity_term for weighted in rules.preferred]
        found = yield from _compiled(namespace, bare, f"preferred{name}", problems)
        weights = [weighted.weight for weighted in rules.preferred]
        preferred.append(tuple(map(Weighted, weights, found)))
    return Terms(required[0], required[1], preferred[0], preferred[1], tuple(problems))


_NO_RULES = PodAffinity()
NO_TERMS = Terms((), (), (), (), ())
UNKNOWN = Terms((), (), (), (), ("not compiled yet",))
"""Placeholder for terms that are not compiled yet."""


def _compiled(
    namespace: str, terms: Sequence[PodAffinityTerm], path: str, problems: list[str]
) -> Steps[tuple[AffinityTerm, ...]]:
    found: list[AffinityTerm] = []
    try:
        work = 0
        for term in terms:
            requirements = _size(term)
            if requirements > TERMS_PER_STEP:
                found.append((yield from _compiling_large(namespace, term)))
            else:
                found.append(_compile(namespace, term))
            work += 1 + requirements
            if work >= TERMS_PER_STEP:
                work = 0
                yield
    except InvalidSelector as problem:
        problems.append(f"{path}: {problem}")
        return ()
    return tuple(found)


def compile_terms(namespace: str, terms: Iterable[PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
    """Compile terms of a pod in a namespace; raises ``InvalidSelector``."""
    return tuple(_compile(namespace, term) for term in terms)


def _compile(namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    # kube-scheduler compiles the pod selector first, and a problem there hides one here.
    selector = compile_selector(term.label_selector)
    return AffinityTerm(
        term.topology_key,
        _namespaces(namespace, term),
        compile_selector(term.namespace_selector),
        selector,
    )


def _compiling_large(namespace: str, term: PodAffinityTerm) -> Steps[AffinityTerm]:
    selector = yield from _compiling_selector(term.label_selector)
    namespaces = yield from _compiling_selector(term.namespace_selector)
    return AffinityTerm(term.topology_key, _namespaces(namespace, term), namespaces, selector)


def _compiling_selector(selector: LabelSelector | None) -> Steps[Selector]:
    if selector is None:
        return NOTHING
    found: list[Requirement] = []
    for requirement in requirements_of(selector):
        found.append(requirement)
        if not len(found) % TERMS_PER_STEP:
            yield
    yield
    return selector_of(found)


def _namespaces(namespace: str, term: PodAffinityTerm) -> frozenset[str]:
    if term.namespaces or term.namespace_selector is not None:
        return frozenset(term.namespaces)
    return frozenset((namespace,))


def _size(term: PodAffinityTerm) -> int:
    """Return the number of requirements in a term's selectors."""
    selectors = (term.label_selector, term.namespace_selector)
    return sum(len(one.match_labels) + len(one.match_expressions) for one in selectors if one)


def resolve(term: AffinityTerm, namespaces: Iterable[Namespace]) -> ResolvedTerm:
    """Replace a namespace selector by the names it selects now.

    A selector that an empty set of labels satisfies selects every namespace, whatever its labels:
    kube-scheduler resolves the names, then evaluates the selector again without any labels.

    kube-scheduler: mergeAffinityTermNamespacesIfNotEmpty.
    """
    if term.namespace_selector.matches({}):
        return ResolvedTerm(term.topology_key, None, term.selector)
    names = term.namespaces
    if not term.namespace_selector.matches_nothing:
        selected = (
            namespace.metadata.name
            for namespace in namespaces
            if term.namespace_selector.matches(namespace.metadata.labels)
        )
        names = names.union(selected)
    return ResolvedTerm(term.topology_key, names, term.selector)


def depends_on_namespaces(terms: Iterable[AffinityTerm]) -> bool:
    """Whether the result of resolving the terms may change."""
    return any(
        not term.namespace_selector.matches_nothing and not term.namespace_selector.matches({})
        for term in terms
    )


def labels_of_namespace(namespaces: Lister[Namespace], name: str) -> Labels:
    """Return the labels of a namespace; empty if it is not known (yet).

    kube-scheduler: GetNamespaceLabelsSnapshot.
    """
    namespace = namespaces.get(name)
    return namespace.metadata.labels if namespace is not None else {}


_NONE: frozenset[Any] = frozenset()


class TermIndex(Generic[T]):
    """The distinct terms that pods in the cluster carry and that some node can satisfy.

    ``carried`` returns the terms of a template by topology key; terms with a key that no node has
    are omitted until one has it. Added and removed terms are logged.
    """

    def __init__(
        self,
        ledger: PodLedger,
        carried: Callable[[PodTemplate], Mapping[str, Iterable[T]]],
        bare: Callable[[T], AffinityTerm],
    ) -> None:
        self._ledger = ledger
        self._carried = carried
        self._bare = bare
        self._changes = ledger.log.cursor()
        self._affinity_generation = NEVER
        self._labels_generation = NEVER
        self._carriers: dict[PodTemplate, list[T]] = {}
        self._keys: dict[str, int] = {}
        """Templates by topology key of their terms."""
        self._keys_there: set[str] = set()
        """Those of them that some node had."""
        self._templates: dict[T, int] = {}
        self._label_keys: dict[str, int] = {}
        """Terms by the pod labels that their selectors use."""
        self._matched: WeakValueDictionary[Hashable, MatchedTerms[T]] = WeakValueDictionary()
        self._sets: WeakValueDictionary[int, frozenset[T]] = WeakValueDictionary()
        self.log: ChangeLog[T] = ChangeLog(TERMS_LOGGED)
        """Terms added or removed."""
        self._swept = 0

    def __contains__(self, term: T) -> bool:
        return term in self._templates

    def __len__(self) -> int:
        return len(self._templates)

    def __iter__(self) -> Iterator[T]:
        return iter(self._templates)

    @property
    def generation(self) -> int:
        """Grows whenever the terms change."""
        return self.log.generation

    @property
    def is_current(self) -> bool:
        """Whether there are no changes to apply."""
        ledger = self._ledger
        return (
            ledger.affinity_generation == self._affinity_generation
            and ledger.table.labels.generation == self._labels_generation
        )

    def share(self, terms: frozenset[T]) -> frozenset[T]:
        """Return an equal set of another template, if any."""
        known = self._sets.get(hash(terms))
        if known == terms:
            return known
        self._sets[hash(terms)] = terms
        return terms

    def matched(
        self, template: PodTemplate, namespace_labels: Labels, before: MatchedTerms[T] | None
    ) -> MatchedTerms[T]:
        """Return the finder of terms that match a template, shared by indistinguishable ones.

        ``before`` is the previous finder. Call after the index is up to date.
        """
        asked_for = self._label_keys
        labels = {key: value for key, value in template.labels.items() if key in asked_for}
        scope = (template.namespace, frozenset(namespace_labels.items()))
        signature = (scope, frozenset(labels.items()))
        if before is not None and before.signature == signature:
            return before
        matched = self._matched.get(signature)
        if matched is None:
            kind, bare = Kind(template.namespace, labels), self._bare
            matched = MatchedTerms(
                self, lambda term: bare(term).matches(kind, namespace_labels), signature
            )
            if before is not None and before.signature[0] == scope:
                matched.take_over(before)
            self._matched[signature] = matched
        return matched

    def catching_up(self) -> Steps[None]:
        """Apply added and removed templates; may be interrupted at any pause and restarted."""
        if self.is_current:
            return
        ledger = self._ledger
        affinity_generation, changes = ledger.affinity_generation, self._changes.changes()
        if changes is None or self._has_other_keys():
            yield from self._starting_over()
        else:
            for template in {change[1]: None for change in changes}:
                if not template.has_pod_affinity:
                    continue
                is_known = template in self._carriers
                if not ledger.has(template):
                    if is_known:
                        self._remove(template)
                elif not is_known:
                    yield from compiling_terms(template)
                    self._add(template)
        self._changes.advance()
        self._affinity_generation = affinity_generation
        self._labels_generation = ledger.table.labels.generation

    def forget_gone(self) -> None:
        """Drop templates without pods although nothing is read; not during a cycle."""
        for template in [one for one in self._carriers if not self._ledger.has(one)]:
            self._remove(template)
        self.log.drop_before(self._swept)
        self._swept = self.log.generation

    def _has_other_keys(self) -> bool:
        labels = self._ledger.table.labels
        return labels.generation != self._labels_generation and any(
            (key in labels) is not (key in self._keys_there) for key in self._keys
        )

    def _starting_over(self) -> Steps[None]:
        self._changes.start_over()
        self._carriers, self._templates = {}, {}
        self._keys, self._keys_there, self._label_keys = {}, set(), {}
        self.log.forget()
        for template in list(self._ledger.templates()):
            if template.has_pod_affinity:
                yield from compiling_terms(template)
                self._add(template)
                yield

    def _add(self, template: PodTemplate) -> None:
        found = self._carriers[template] = []
        labels = self._ledger.table.labels
        for key, terms in self._carried(template).items():
            self._keys[key] = self._keys.get(key, 0) + 1
            if key in labels:
                self._keys_there.add(key)
                found.extend(terms)
        for term in found:
            if term not in self._templates:
                self._templates[term] = 0
                self.log.append(term)
                self._count_label_keys(term, 1)
            self._templates[term] += 1

    def _remove(self, template: PodTemplate) -> None:
        for term in self._carriers.pop(template):
            self._templates[term] -= 1
            if not self._templates[term]:
                del self._templates[term]
                self.log.append(term)
                self._count_label_keys(term, -1)
        for key in self._carried(template):
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]
                self._keys_there.discard(key)

    def _count_label_keys(self, term: T, more: int) -> None:
        label_keys = self._label_keys
        for requirement in self._bare(term).selector.requirements:
            key = requirement.key
            terms = label_keys[key] = label_keys.get(key, 0) + more
            if not terms:
                del label_keys[key]


class MatchedTerms(Generic[T]):
    """The terms of an index that match certain incoming pods; each is evaluated once.

    ``signature`` identifies these pods: the scope of their namespace, and labels.
    """

    def __init__(
        self,
        index: TermIndex[T],
        matches: Callable[[T], bool],
        signature: tuple[Hashable, Hashable] = (None, None),
    ) -> None:
        self.signature = signature
        self._index = index
        self._matches = matches
        self._changes = index.log.cursor()
        self._pending: list[T] = []
        self._new: list[T] = []
        self.found: frozenset[T] = _NONE
        """As of the last update."""

    def take_over(self, other: MatchedTerms[T]) -> None:
        """Start with what was found for the same pods when terms used other labels."""
        self._changes.go_to(other._changes)
        self._pending, self._new, self.found = (
            list(other._pending),
            list(other._new),
            other.found,
        )

    def catching_up(self) -> Steps[None]:
        """Evaluate new terms, after the index; may be interrupted at any pause and restarted."""
        index = self._index
        if not self._changes.is_current:
            self._apply_changes()
        while self._pending:
            part = self._pending[-TERMS_PER_STEP:]
            self._new += [term for term in part if term in index and self._matches(term)]
            del self._pending[-TERMS_PER_STEP:]
            yield
        if self._new:
            self.found, self._new = index.share(self.found.union(self._new)), []

    def _apply_changes(self) -> None:
        index, changed = self._index, self._changes.changes()
        if changed is None:
            self._pending, self._new, self.found = list(index), [], _NONE
        else:
            gone = {term for term in changed if term not in index}
            if gone:
                self._new = [term for term in self._new if term not in gone]
                self.found = index.share(self.found - gone)
            self._pending += [term for term in changed if term not in gone]
        self._changes.advance()

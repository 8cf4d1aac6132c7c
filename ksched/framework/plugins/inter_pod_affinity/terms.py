"""Affinity terms: compiled, resolved for an incoming pod, and found in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ksched.api.label_selectors import InvalidSelector, Selector, compile_selector
from ksched.api.objects import Labels, Namespace, PodAffinity, PodAffinityTerm
from ksched.cache.listings import Listing
from ksched.cache.pod_counts import PodLedger
from ksched.framework import PodTemplate, template_fact

T = TypeVar("T", bound=Hashable)


class AffinityTerm(NamedTuple):
    """A term as a pod carries it; equal terms of different pods mean the same."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def matches(self, template: PodTemplate, namespace_labels: Labels) -> bool:
        """Whether it means pods of a template, whose namespace has these labels."""
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


@template_fact
def terms_of(template: PodTemplate) -> Terms:
    """Compile a template's terms (framework/types.go: PodInfo.Update, v1.36)."""
    affinity = template.spec.affinity
    if affinity is None:
        return _NO_TERMS
    problems: list[str] = []
    near, apart = affinity.pod_affinity or _NO_RULES, affinity.pod_anti_affinity or _NO_RULES
    required = [
        _compiled(template, rules.required, f"required{name}", problems)
        for rules, name in ((near, "AffinityTerms"), (apart, "AntiAffinityTerms"))
    ]
    preferred = []
    for rules, name in ((near, "AffinityTerms"), (apart, "AntiAffinityTerms")):
        bare = [weighted.pod_affinity_term for weighted in rules.preferred]
        compiled = _compiled(template, bare, f"preferred{name}", problems)
        weights = [weighted.weight for weighted in rules.preferred]
        preferred.append(tuple(map(Weighted, weights, compiled)))
    return Terms(required[0], required[1], preferred[0], preferred[1], tuple(problems))


_NO_RULES = PodAffinity()
_NO_TERMS = Terms((), (), (), (), ())


def _compiled(
    template: PodTemplate, terms: Sequence[PodAffinityTerm], path: str, problems: list[str]
) -> tuple[AffinityTerm, ...]:
    try:
        return compile_terms(template.namespace, terms)
    except InvalidSelector as problem:
        problems.append(f"{path}: {problem}")
        return ()


def compile_terms(namespace: str, terms: Iterable[PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
    """Compile terms of a pod in a namespace; raises ``InvalidSelector``."""
    return tuple(_compile(namespace, term) for term in terms)


def _compile(namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((namespace,))
    # Upstream compiles the selector of pods first, and a problem there hides one here.
    selector = compile_selector(term.label_selector)
    return AffinityTerm(
        term.topology_key, namespaces, compile_selector(term.namespace_selector), selector
    )


def resolve(term: AffinityTerm, namespaces: Iterable[Namespace]) -> ResolvedTerm:
    """Replace a namespace selector by the names it selects now.

    A selector that an empty set of labels satisfies selects every namespace, whatever its labels:
    upstream resolves the names, then asks the selector again without any labels.
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
    """Whether resolving the terms again may give another answer."""
    return any(
        not term.namespace_selector.matches_nothing and not term.namespace_selector.matches({})
        for term in terms
    )


def labels_of_namespace(namespaces: Listing[Namespace], name: str) -> Labels:
    """Labels of a namespace; none if it is not known (yet)."""
    namespace = namespaces.get(name)
    return namespace.metadata.labels if namespace is not None else {}


class TermIndex(Generic[T]):
    """The distinct terms that pods in the cluster carry.

    ``carried`` says which terms a template carries. New terms are appended to ``added``; a new
    ``generation`` says that ``added`` was written anew.
    """

    def __init__(self, ledger: PodLedger, carried: Callable[[PodTemplate], Iterable[T]]) -> None:
        self._ledger = ledger
        self._carried = carried
        self._position = -1
        self._affinity_changes = -1
        self._carriers: dict[PodTemplate, tuple[T, ...]] = {}
        self._templates: dict[T, int] = {}
        self.added: list[T] = []
        self.generation = 0
        self.removals = 0
        """How often a term ceased to be in the index."""

    def __contains__(self, term: T) -> bool:
        return term in self._templates

    def __len__(self) -> int:
        return len(self._templates)

    def catch_up(self) -> None:
        ledger = self._ledger
        if ledger.affinity_changes == self._affinity_changes:
            return
        changes = ledger.since(self._position)
        self._position = ledger.position
        self._affinity_changes = ledger.affinity_changes
        if changes is None:
            self._start_over()
            return
        for _, template, _, _ in changes:
            if not template.has_pod_affinity:
                continue
            is_known = template in self._carriers
            if ledger.has(template):
                if not is_known:
                    self._add(template)
            elif is_known:
                self._remove(template)
        if len(self.added) > 1024 + 2 * len(self._templates):
            self.added = list(self._templates)
            self.generation += 1

    def _start_over(self) -> None:
        self._carriers, self._templates, self.added = {}, {}, []
        self.generation += 1
        for template in self._ledger.templates():
            if template.has_pod_affinity:
                self._add(template)

    def _add(self, template: PodTemplate) -> None:
        terms = self._carriers[template] = tuple(self._carried(template))
        for term in terms:
            if term not in self._templates:
                self._templates[term] = 0
                self.added.append(term)
            self._templates[term] += 1

    def _remove(self, template: PodTemplate) -> None:
        for term in self._carriers.pop(template):
            self._templates[term] -= 1
            if not self._templates[term]:
                del self._templates[term]
                self.removals += 1


class MatchedTerms(Generic[T]):
    """Those terms of an index that mean one incoming template; each is asked once."""

    def __init__(self, index: TermIndex[T], is_meant: Callable[[T], bool]) -> None:
        self._index = index
        self._is_meant = is_meant
        self._generation = -1
        self._read = 0
        self._removals = 0
        self._found: dict[T, None] = {}
        self.version = 0
        """Changes whenever the terms do."""

    def catch_up(self) -> Iterable[T]:
        """Return the terms, after the index has caught up."""
        index = self._index
        if self._generation != index.generation:
            self._generation, self._read, self._found = index.generation, 0, {}
            self.version += 1
        if self._removals != index.removals:
            self._removals = index.removals
            self._found = {term: None for term in self._found if term in index}
            self.version += 1
        if self._read < len(index.added):
            for term in index.added[self._read :]:
                if term in index and self._is_meant(term):
                    self._found[term] = None
                    self.version += 1
            self._read = len(index.added)
        return self._found

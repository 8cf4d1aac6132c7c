"""A pod's required and preferred conditions on node objects, of any size.

A few terms are compiled at once and evaluated like any selector. A pod may have tens of thousands:
these are compiled and evaluated in time slices, over all nodes, and the result per node is cached.
Nodes that change later are re-evaluated, so an interrupted attempt resumes where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ksched.api.label_selectors import InvalidSelector, aggregate
from ksched.api.node_selectors import (
    NodeRequirement,
    NodeTerm,
    PreferredTerm,
    PreferredTerms,
    RequiredNodeAffinity,
    compile_expressions,
    compile_fields,
    compile_preferred,
    compile_required,
    compile_term,
)
from ksched.api.objects import Node, NodeAffinity, NodeSelectorTerm
from ksched.framework import NodeRows, PodTemplate, template_fact
from ksched.framework.freshness import Cursor
from ksched.framework.node_columns import NodeTable
from ksched.framework.plugins.node_matching import (
    Bools,
    Ints,
    Matched,
    NodeMatcher,
    both,
    matches_required,
    preference,
)
from ksched.steps import Steps, at_once
from ksched.tuning import FEW_CHANGED_NODES, LARGE_SELECTOR, REQUIREMENTS_PER_STEP

MAX_PROBLEMS = 16
"""How many problems of a selector are reported."""


class LargeTerms:
    """Very many weighted terms, and the sum of the weights of those that match, by node."""

    def __init__(self, weighted: Sequence[tuple[int, NodeSelectorTerm]], path: str) -> None:
        self._weighted = weighted
        self._path = path
        self.problems: list[str] = []
        """Terms that could not be parsed."""
        self._compiled: list[PreferredTerm] = []
        self._read = 0
        self._read_expressions = 0
        """How many expressions of the next term are compiled; to these two lists."""
        self._part_requirements: list[NodeRequirement] = []
        self._part_problems: list[str] = []
        self._table: NodeTable | None = None
        self._changes: Cursor[int] | None = None
        self._sums: Ints = np.zeros(0, np.int64)
        self._matcher: NodeMatcher | None = None
        self._asked = 0
        self._asked_requirements = 0
        """How many requirements of the next term are evaluated, and the nodes that met them."""
        self._matched: Matched = True
        self._dirty: set[int] = set()

    @property
    def is_current(self) -> bool:
        """Whether the sums reflect the current nodes."""
        return (
            self._changes is not None
            and self._changes.is_current
            and self._matcher is None
            and not self._dirty
        )

    def catching_up(self, table: NodeTable) -> Steps[None]:
        """Evaluate what is missing; interrupted at a pause and restarted, it resumes there."""
        yield from self._compiling()
        changes = self._changes
        if table is not self._table or changes is None:
            changes = self._begin(table)
        yield from self._asking()
        changed = changes.changes()
        if changed is None or len(changed) > FEW_CHANGED_NODES:
            self._begin(table)
            yield from self._asking()
        else:
            self._dirty.update(changed)
            changes.advance()
            yield from self._asking_again(table)

    def of(self, nodes: NodeRows) -> Ints:
        """Return the sums of some nodes; they may be copies with other pods."""
        if self._table is None or nodes.table is self._table:
            if not self.is_current:
                at_once(self.catching_up(nodes.table))
            return self._sums[nodes.index]
        sums = [0 if info.node is None else self.of_node(info.node) for info in nodes.infos]
        return np.array(sums, np.int64)

    def of_node(self, node: Node) -> int:
        """Return the sum of one node; cached if it is unchanged in the table, else evaluated."""
        name, table = node.metadata.name, self._table
        row = -1 if table is None else table.rows.get(name, -1)
        if table is not None and 0 <= row < len(self._sums) and table.infos[row].node is node:
            return int(self._sums[row])
        return self._count(node)

    def _count(self, node: Node) -> int:
        labels, name = node.metadata.labels, node.metadata.name
        return sum(weight for weight, term in self._compiled if term.matches(labels, name))

    def _compiling(self) -> Steps[None]:
        weighted = self._weighted
        work = 0
        while self._read < len(weighted):
            weight, term = weighted[self._read]
            if weight and (term.match_expressions or term.match_fields):
                found = yield from self._compiling_term(term, f"{self._path}[{self._read}]")
                if not found.problems:
                    self._compiled.append(PreferredTerm(weight, found))
                elif len(self.problems) < MAX_PROBLEMS:
                    self.problems += found.problems[:MAX_PROBLEMS]
            self._read_expressions = 0
            self._part_requirements, self._part_problems = [], []
            self._read += 1
            work += _size(term)
            if work >= REQUIREMENTS_PER_STEP:
                work = 0
                yield

    def _compiling_term(self, term: NodeSelectorTerm, path: str) -> Steps[NodeTerm]:
        expressions = term.match_expressions
        if len(expressions) <= REQUIREMENTS_PER_STEP:
            return compile_term(term, path)
        requirements, problems = self._part_requirements, self._part_problems
        while self._read_expressions < len(expressions):
            first = self._read_expressions
            some = expressions[first : first + REQUIREMENTS_PER_STEP]
            found = compile_expressions(some, path, first)
            requirements += found.requirements
            problems += found.problems
            self._read_expressions += REQUIREMENTS_PER_STEP
            yield
        fields = compile_fields(term.match_fields, path)
        return NodeTerm((*requirements, *fields.requirements), (*problems, *fields.problems))

    def _begin(self, table: NodeTable) -> Cursor[int]:
        self._table = table
        changes = self._changes = table.node_log.cursor()
        changes.go_to_end()
        count = len(table)
        # Its own row numbers: whatever is added, removed or moved meanwhile is re-evaluated.
        self._matcher = NodeMatcher(NodeRows(table, np.arange(count, dtype=np.intp)))
        self._sums = np.zeros(count, np.int64)
        self._asked = self._asked_requirements = 0
        self._matched = True
        self._dirty.clear()
        return changes

    def _asking(self) -> Steps[None]:
        matcher, compiled = self._matcher, self._compiled
        if matcher is None:
            return
        work = 0
        while self._asked < len(compiled):
            weight, term = compiled[self._asked]
            first = self._asked_requirements
            part = term.requirements[first : first + REQUIREMENTS_PER_STEP]
            self._matched = matched = both(self._matched, matcher.all_of(part))
            self._asked_requirements += len(part)
            if matched is False or self._asked_requirements == len(term.requirements):
                if matched is not False:
                    self._sums += weight * matched
                self._asked += 1
                self._asked_requirements, self._matched = 0, True
            work += len(part)
            if work >= REQUIREMENTS_PER_STEP:
                work = 0
                yield
        self._matcher = None

    def _asking_again(self, table: NodeTable) -> Steps[None]:
        count = len(table)
        if count != len(self._sums):
            more = np.zeros(max(count - len(self._sums), 0), np.int64)
            self._sums = np.concatenate((self._sums[:count], more))
        while self._dirty:
            row = self._dirty.pop()
            if row < count:
                node = table.infos[row].node
                self._sums[row] = 0 if node is None else self._count(node)
            yield


class NodeDemand:
    """A pod's ``nodeSelector`` and required node affinity."""

    __slots__ = ("_compiled", "_large")

    def __init__(self, template: PodTemplate) -> None:
        spec = template.spec
        affinity = node_affinity(template)
        required = None if affinity is None else affinity.required
        terms = required.node_selector_terms if required is not None else []
        self._large: LargeTerms | None = None
        if sum(map(_size, terms)) < LARGE_SELECTOR:
            self._compiled = compile_required(spec)
        else:
            self._compiled = RequiredNodeAffinity(tuple(spec.node_selector.items()))
            self._large = LargeTerms([(1, term) for term in terms], "nodeSelectorTerms")

    @property
    def is_empty(self) -> bool:
        """Whether every node matches."""
        return self._large is None and self._compiled.empty

    @property
    def is_large(self) -> bool:
        return self._large is not None

    @property
    def problems(self) -> str:
        """Return what cannot be parsed and therefore matches no node."""
        if self._large is not None:
            problems: Sequence[str] = self._large.problems
        else:
            affinity = self._compiled.affinity
            problems = () if affinity is None else affinity.problems
        return aggregate(problems) if problems else ""

    @property
    def is_current(self) -> bool:
        """Whether it can be evaluated for all nodes without ``catching_up``."""
        return self._large is None or self._large.is_current

    def catching_up(self, table: NodeTable) -> Steps[None]:
        if self._large is not None:
            yield from self._large.catching_up(table)

    def matches(self, nodes: NodeRows) -> Bools:
        matched = matches_required(self._compiled, nodes)
        if self._large is not None:
            matched &= self._large.of(nodes) > 0
        return matched

    def allows(self, node: Node) -> bool:
        """Whether one node matches."""
        if not self._compiled.matches(node.metadata.labels, node.metadata.name):
            return False
        return self._large is None or self._large.of_node(node) > 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, NodeDemand)
            and self._large is None
            and other._large is None
            and self._compiled == other._compiled
        )

    def __hash__(self) -> int:
        return hash(self._compiled) if self._large is None else id(self)


class NodePreference:
    """A pod's preferred node affinity; raises ``InvalidSelector`` if it is small and invalid."""

    __slots__ = ("_compiled", "_large")

    def __init__(self, template: PodTemplate) -> None:
        affinity = node_affinity(template)
        terms = affinity.preferred if affinity is not None else None
        self._compiled: PreferredTerms | None = None
        self._large: LargeTerms | None = None
        if terms is not None and sum(_size(one.preference) for one in terms) >= LARGE_SELECTOR:
            self._large = LargeTerms([(one.weight, one.preference) for one in terms], "")
        elif terms is not None:
            self._compiled = compile_preferred(terms)

    @property
    def is_empty(self) -> bool:
        return self._compiled is None and self._large is None

    @property
    def is_large(self) -> bool:
        return self._large is not None

    def catching_up(self, table: NodeTable) -> Steps[None]:
        """As of ``NodeDemand``; raises ``InvalidSelector``."""
        if self._large is not None:
            yield from self._large.catching_up(table)
            if self._large.problems:
                raise InvalidSelector(aggregate(self._large.problems))

    def score(self, nodes: NodeRows) -> Ints:
        if self._large is not None:
            return self._large.of(nodes)
        assert self._compiled is not None
        return preference(self._compiled, nodes)


@template_fact
def node_demand(template: PodTemplate) -> NodeDemand:
    return NodeDemand(template)


@template_fact
def node_preference(template: PodTemplate) -> NodePreference:
    return NodePreference(template)


def _size(term: NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions) + len(term.match_fields)


def node_affinity(template: PodTemplate) -> NodeAffinity | None:
    affinity = template.spec.affinity
    return None if affinity is None else affinity.node_affinity

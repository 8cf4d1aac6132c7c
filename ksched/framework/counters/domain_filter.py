"""Rules about topology domains: stated once, evaluated for one domain or all, and cached.

A ``DomainRule`` derives from the pod counts of a domain what is wrong with its nodes, in plain
comparisons that work on a number and on an array. A ``DomainFilter`` caches the results of some
rules by domain: an update evaluates the domains whose counts changed, one by one, or all of them
when something changed that affects all (``facts``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ksched.cache.change_log import ChangeLog
from ksched.cache.counters.domain_counts import DomainCounts, summarize
from ksched.cache.counters.topology_domains import ABSENT, Bools, Ids, Ints, TopologyDomains
from ksched.cache.node_table import NodeRows
from ksched.framework.status import SUCCESS, Status
from ksched.framework.verdicts import ChangedVerdicts, Verdicts

Counts = int | Ints
"""The number of pods in a domain, or those of all domains."""

Holds = bool | Bools
"""Whether a condition holds for a domain, or for each of all domains."""

Codes = NDArray[np.int16]
Changed = tuple[int, list[int]]
"""A rule, and domains of its topology."""

NO_CHANGES = ChangedVerdicts(())


class Counted(Protocol):
    """Numbers of pods by domain; those of a dry run may differ from the cluster's."""

    @property
    def counts(self) -> Ints: ...
    @property
    def total(self) -> int: ...
    @property
    def domains(self) -> int: ...
    @property
    def lowest(self) -> int: ...


Judge = Callable[[Sequence[Counts], Any], Iterable[tuple[int, Holds]]]
"""Yields codes (1-based positions among the statuses) in order of precedence, and where each holds.

Its arguments are the counts of each group of counters, and the rule's facts.
"""

Facts = Callable[[Sequence[Sequence[Counted]]], Sequence[Hashable]]
"""Returns, by rule, what a rule needs besides the counts of a domain; its argument has the counters
by rule and group, of the cluster or of a dry run."""


class DomainRule(NamedTuple):
    """A rule that rejects domains of one topology."""

    topology: TopologyDomains
    groups: tuple[tuple[DomainCounts, ...], ...]
    """Counters of this topology, at least one; those of a group are added up."""
    judge: Judge
    unlabelled: int = 0
    """The code of nodes without the label; 0 if they pass."""


class _Sum:
    """A sum of counters, with the pods that a dry run added or removed."""

    def __init__(
        self, topology: TopologyDomains, counters: Sequence[DomainCounts], more: Mapping[int, int]
    ) -> None:
        self._topology = topology
        self._counters = counters
        self._more = more

    @property
    def counts(self) -> Ints:
        counts: Ints = np.zeros(self._topology.width, np.int64)
        for counter in self._counters:
            counts += counter.counts
        for domain, more in self._more.items():
            counts[domain] += more
        return counts

    @property
    def total(self) -> int:
        if not self._counters and not self._more:
            return 0
        return int(self.counts[ABSENT + 1 :].sum())

    @property
    def domains(self) -> int:
        return summarize(self.counts, self._topology.nodes)[0]

    @property
    def lowest(self) -> int:
        return summarize(self.counts, self._topology.nodes)[1]


def _no_facts(counted: Sequence[Sequence[Counted]]) -> Sequence[Hashable]:
    return (None,) * len(counted)


class DomainFilter:
    """The verdicts of some rules for every domain, as of the last ``catch_up``.

    Of several codes the smallest determines a node's reason. A node's move to another domain is not
    recorded: the runtime evaluates changed nodes anyway.
    """

    def __init__(
        self, rules: Iterable[DomainRule], statuses: Sequence[Status], facts: Facts = _no_facts
    ) -> None:
        self.rules = tuple(rules)
        self.statuses = tuple(statuses)
        self.facts_of = facts
        # Passing is the largest code, so that the minimum over rules is the deciding rejection.
        self._passes = len(self.statuses) + 1
        self._counted = [
            [
                group[0] if len(group) == 1 else _Sum(rule.topology, group, {})
                for group in rule.groups
            ]
            for rule in self.rules
        ]
        rules_of: dict[DomainCounts, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for counter in {one: None for group in rule.groups for one in group}:
                rules_of.setdefault(counter, []).append(number)
        self.counters = tuple(rules_of)
        self._cursors = [(one.log.cursor(), numbers) for one, numbers in rules_of.items()]
        self._facts: Sequence[Hashable] = ()
        self.codes: list[Codes] = [np.zeros(0, np.int16) for _ in self.rules]
        """By rule and domain."""
        # An equal pod missed the last change at most, and one change may be long.
        self._log: ChangeLog[list[Changed]] = ChangeLog(limit=1)
        self._noted: list[Changed] | None = None

    # -- updates --------------------------------------------------------------------------------

    def catch_up(self) -> DomainAttempt:
        """Update counters and verdicts."""
        self.count()
        return self.judge()

    def count(self) -> bool:
        """Update the counters; returns whether any pod counts."""
        for counter in self.counters:
            counter.catch_up()
        return any(counter.total for counter in self.counters)

    def judge(self) -> DomainAttempt:
        """Update the verdicts, after the counters."""
        facts, changed = self.facts_of(self._counted), self._changes()
        if changed is None:
            self.codes = [
                self.judge_all(rule, counted, fact)
                for rule, counted, fact in zip(self.rules, self._counted, facts, strict=True)
            ]
            self._log.forget()
        else:
            self._noted = None
            if facts != self._facts:
                for number, fact in enumerate(facts):
                    if fact != self._facts[number]:
                        self._renew(number, fact)
            for number, domain in changed:
                self._amend(number, domain, facts[number])
        self._facts = facts
        for cursor, _ in self._cursors:
            cursor.go_to_end()
        return DomainAttempt(self)

    def _changes(self) -> Iterable[tuple[int, int]] | None:
        """Return rules and domains whose counts changed since the last update; ``None`` for all."""
        found: dict[tuple[int, int], None] = {}
        for cursor, numbers in self._cursors:
            domains = cursor.changes()
            if domains is None:
                return None
            for domain in domains:
                if domain != ABSENT:
                    for number in numbers:
                        found[number, domain] = None
        return found

    def judge_all(self, rule: DomainRule, counted: Sequence[Counted], fact: Hashable) -> Codes:
        """Evaluate a rule for all domains."""
        codes: Codes = np.full(rule.topology.width, self._passes, np.int16)
        judged = list(rule.judge([one.counts for one in counted], fact))
        for code, holds in reversed(judged):
            codes[holds] = code
        codes[ABSENT] = rule.unlabelled or self._passes
        return codes

    def _judge_one(self, rule: DomainRule, domain: int, fact: Hashable) -> int:
        """Evaluate a rule for one domain, as ``judge_all`` would."""
        counts: list[Counts] = []
        for group in rule.groups:
            count = 0
            for counter in group:
                count += counter.counts.item(domain)
            counts.append(count)
        for code, holds in rule.judge(counts, fact):
            if holds:
                return code
        return self._passes

    def _renew(self, number: int, fact: Hashable) -> None:
        before = self.codes[number]
        codes = self.codes[number] = self.judge_all(self.rules[number], self._counted[number], fact)
        changed = (before != codes).nonzero()[0].tolist()
        if changed:
            self._note(number, changed)

    def _amend(self, number: int, domain: int, fact: Hashable) -> None:
        codes, code = self.codes[number], self._judge_one(self.rules[number], domain, fact)
        if codes.item(domain) != code:
            codes[domain] = code
            self._note(number, [domain])

    def _note(self, number: int, domains: list[int]) -> None:
        if self._noted is None:
            self._noted = []
            self._log.append(self._noted)
        self._noted.append((number, domains))

    # -- reading --------------------------------------------------------------------------------

    def changes_since(self, mark: object) -> tuple[object, ChangedVerdicts | Ids | None]:
        """Return the current mark, and what changed since an earlier one; see ``FilterDependsOn``.

        The verdicts themselves if there is a single rule, otherwise the rows.
        """
        now = (self, self._log.generation)
        if mark == now:
            return mark, NO_CHANGES
        changes = None
        if isinstance(mark, tuple) and mark[0] is self:
            changes = self._log.since(mark[1])
        if changes is None:
            return now, None
        if len(self.rules) > 1:
            found = [
                self.rules[number].topology.rows_in(domains)
                for noted in changes
                for number, domains in noted
            ]
            return now, np.unique(np.concatenate(found))
        rows_in, codes = self.rules[0].topology.rows_in, self.codes[0]
        by_code: dict[int, dict[int, None]] = {}
        for noted in changes:
            for _, domains in noted:
                for domain in domains:
                    by_code.setdefault(codes.item(domain), {})[domain] = None
        return now, ChangedVerdicts(
            [(rows_in(list(domains)), self._status(code)) for code, domains in by_code.items()]
        )

    def _status(self, code: int) -> Status:
        return SUCCESS if code == self._passes else self.statuses[code - 1]

    def verdicts(
        self, rules: Sequence[DomainRule], codes: Sequence[Codes], nodes: NodeRows
    ) -> Verdicts:
        """Return the verdicts of nodes, given the codes of the domains of some rules."""
        result: Codes | None = None
        for rule, by_domain in zip(rules, codes, strict=True):
            found = by_domain.take(rule.topology.ids(nodes))
            result = found if result is None else np.minimum(result, found)
        if result is None:
            return Verdicts.passing(len(nodes))
        result[result == self._passes] = 0
        return Verdicts(result, self.statuses)


class DomainAttempt:
    """The verdicts of one attempt, and a dry run's changes of the counts; cloned for each."""

    __slots__ = ("_changes", "_rules", "filter")

    def __init__(self, domain_filter: DomainFilter) -> None:
        self.filter = domain_filter
        self._rules = domain_filter.rules
        self._changes: dict[tuple[int, int], dict[int, int]] = {}
        """Changes of counts by rule, group and domain."""

    def clone(self) -> DomainAttempt:
        copy = DomainAttempt(self.filter)
        copy._rules = self._rules
        copy._changes = {key: dict(more) for key, more in self._changes.items()}
        return copy

    @property
    def rules(self) -> tuple[DomainRule, ...]:
        return self._rules

    def add_rule(self, rule: DomainRule) -> int:
        """Add a topology for the rest of this dry run."""
        self._rules = (*self._rules, rule)
        return len(self._rules) - 1

    def change(self, rule: int, group: int, value: str, more: int) -> None:
        """Count pods that a dry run adds or removes on nodes with this label value."""
        changes = self._changes.setdefault((rule, group), {})
        domain = self._rules[rule].topology.find(value)
        changes[domain] = changes.get(domain, 0) + more

    def verdicts(self, nodes: NodeRows) -> Verdicts:
        domain_filter = self.filter
        if not self._changes:
            return domain_filter.verdicts(domain_filter.rules, domain_filter.codes, nodes)
        counted = [
            [
                _Sum(rule.topology, counters, self._changes.get((number, group), {}))
                for group, counters in enumerate(rule.groups)
            ]
            for number, rule in enumerate(self._rules)
        ]
        codes = [
            domain_filter.judge_all(rule, sums, fact)
            for rule, sums, fact in zip(
                self._rules, counted, domain_filter.facts_of(counted), strict=True
            )
        ]
        return domain_filter.verdicts(self._rules, codes, nodes)

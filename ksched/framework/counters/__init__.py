"""Public API of pod counters, for plugins that decide by the number of matching pods.

``counters_of(nodes.table)`` provides incrementally updated counters: ``pod_counts``
of matching pods, ``domain_counts`` of their sums by the value of a node label. A filter states one
rule over such counts (``DomainFilter``), a score one over the counts of a domain
(``rate_domains``); this package evaluates the rule for one domain or all of them and tracks which
domains changed. ``PerTemplate`` caches both for later pods. See docs/counters.md. Does not belong
here: the rules of plugins.
"""

from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.per_template import PerTemplate
from ksched.cache.counters.pod_counts import PodCounts
from ksched.cache.counters.pod_ledger import PodLedger, counters_of
from ksched.cache.counters.topology_domains import ABSENT, Bools, Ids, Ints, TopologyDomains
from ksched.framework.counters.domain_filter import (
    Counted,
    Counts,
    DomainAttempt,
    DomainFilter,
    DomainRule,
    Holds,
)
from ksched.framework.counters.domain_scores import ScoreT, normalize_scores, rate_domains, whole

__all__ = [
    "ABSENT",
    "Bools",
    "Counted",
    "Counts",
    "DomainAttempt",
    "DomainCounts",
    "DomainFilter",
    "DomainRule",
    "Holds",
    "Ids",
    "Ints",
    "PerTemplate",
    "PodCounts",
    "PodLedger",
    "ScoreT",
    "TopologyDomains",
    "counters_of",
    "normalize_scores",
    "rate_domains",
    "whole",
]

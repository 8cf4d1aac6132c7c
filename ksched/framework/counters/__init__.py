"""How many pods of a kind run where, for plugins whose answers hang on it: a public room.

``snapshot.counters`` and ``nodes.counters`` make counters that follow the cluster change by change:
``pod_counts`` of the pods that match, ``domain_counts`` of their sums by the value of a node label.
A filter states one rule over such numbers (``DomainFilter``), a score one over the numbers of a
domain (``rate_domains``); the room decides whether to ask about one domain or all of them, and
knows which domains changed. ``PerTemplate`` keeps both for the pods that come next. See
docs/counters.md. Does not belong here: what a plugin makes of the numbers.
"""

from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.per_template import PerTemplate
from ksched.cache.counters.pod_counts import PodCounts, PodLedger
from ksched.cache.counters.topology_domains import ABSENT, Bools, Ids, Ints, TopologyDomains
from ksched.framework.counters.domain_filter import (
    Counted,
    Counts,
    DomainAttempt,
    DomainFilter,
    DomainRule,
    Holds,
)
from ksched.framework.counters.domain_scores import normalize_scores, rate_domains, whole

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
    "TopologyDomains",
    "normalize_scores",
    "rate_domains",
    "whole",
]

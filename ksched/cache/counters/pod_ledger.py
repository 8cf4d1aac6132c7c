"""The counters of one node table: made on request, shared while equal, dropped when unused."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakValueDictionary

from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.pod_counts import PodCounts, PodsByTemplate
from ksched.cache.counters.topology_domains import Eligible, TopologyDomains
from ksched.cache.node_table import NodeTable
from ksched.tuning import CHANGES_LOGGED


class PodLedger(PodsByTemplate):
    """The pods of a node table by template, and the counters that follow them.

    Equal counters are shared. They reflect the state of the ledger: that of ``counters_of`` is up
    to date, a stored ledger may not be.
    """

    def __init__(self, table: NodeTable, limit: int = CHANGES_LOGGED) -> None:
        super().__init__(table, limit)
        self._topologies: WeakValueDictionary[Hashable, TopologyDomains] = WeakValueDictionary()
        self._domains: WeakValueDictionary[Hashable, DomainCounts] = WeakValueDictionary()

    def domain_counts(
        self,
        pods: PodCounts,
        topology_key: str,
        eligible_key: Hashable = None,
        eligible: Eligible | None = None,
    ) -> DomainCounts:
        """Return a counter's sums by topology value; ``eligible_key`` identifies ``eligible``."""
        key = (pods, topology_key, eligible_key)
        counts = self._domains.get(key)
        if counts is None:
            topology = self._topologies.get(key[1:])
            if topology is None:
                topology = TopologyDomains(self.table, topology_key, eligible)
                self._topologies[key[1:]] = topology
            counts = DomainCounts(pods, topology)
            self._domains[key] = counts
        return counts


def counters_of(table: NodeTable) -> PodLedger:
    """Return the counters of a table's pods, up to date; created for the first caller."""
    ledger = table.ledger
    if ledger is None:
        ledger = table.ledger = PodLedger(table)
    assert isinstance(ledger, PodLedger)
    ledger.catch_up()
    return ledger

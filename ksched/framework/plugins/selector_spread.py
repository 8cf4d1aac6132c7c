"""SelectorSpread: spreads pods of one service or controller over hosts and zones."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from ksched.api.label_selectors import Selector
from ksched.framework import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    CycleState,
    Listers,
    NodeRows,
    PodInfo,
    PodTemplate,
    Scope,
    ScoreDependsOn,
    Status,
)
from ksched.framework.counters import Ids, Ints, PerTemplate, PodCounts, PodLedger, counters_of
from ksched.framework.node_columns import REGION_KEYS, ZONE_KEYS, zone_of
from ksched.framework.plugins import names
from ksched.framework.plugins.default_selector import DefaultSelectors

ZONE_WEIGHT = 2.0 / 3.0
"""The weight of zones, where there are zones; the host has the rest."""
_NO_ZONE = 0


class SelectorSpread:
    """Prefers nodes, and zones, with few pods of the pod's services and controller.

    Off by default: superseded by the system default constraints of PodTopologySpread. Does not
    score pods with spread constraints of their own. No arguments.
    """

    name: ClassVar[str] = names.SELECTOR_SPREAD
    score_depends_on: ClassVar = ScoreDependsOn(Scope.CLUSTER)

    def __init__(self, args: None, listers: Listers) -> None:
        self._selectors = DefaultSelectors(listers)
        self._cached: PerTemplate[_CachedTerms] = PerTemplate()

    def sweep(self) -> None:
        self._cached.sweep()

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        if pod.template.spec.topology_spread_constraints:
            return SKIP
        ledger, template = counters_of(nodes.table), pod.template
        selector = self._selectors.of(template)
        cached = self._cached.get(ledger, template)
        if cached is None or cached.selector != selector:
            cached = _CachedTerms(selector, _counter(template.namespace, selector, ledger))
            self._cached.put(template, cached)
        cached.pods.catch_up()
        state.write(self.name, cached)
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints:
        counts = state.read(self.name, _CachedTerms).pods.counts
        return counts.copy() if nodes.rows is None else counts[nodes.rows]

    def normalize(self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: Ints) -> Ints:
        rated = _share_below(scores)
        zones = _zones(nodes)
        in_zone = zones != _NO_ZONE
        if in_zone.any():
            pods_by_zone = np.bincount(zones, scores).astype(np.int64)
            pods_by_zone[_NO_ZONE] = 0
            by_zone = _share_below(pods_by_zone)[zones]
            blended = rated * (1.0 - ZONE_WEIGHT) + ZONE_WEIGHT * by_zone
            rated = np.where(in_zone, blended, rated)
        return rated.astype(np.int64)


class _CachedTerms(NamedTuple):
    selector: Selector
    pods: PodCounts


def _counter(namespace: str, selector: Selector, ledger: PodLedger) -> PodCounts:
    def count(template: PodTemplate) -> int:
        is_meant = template.namespace == namespace and selector.matches(template.labels)
        return is_meant and not selector.empty

    key = ("selector spread", namespace, selector)
    return ledger.pod_counts(key, count, include_terminating=False)


def _share_below(counts: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How far each count is below the highest, from 0 to 100."""
    highest = int(counts.max())
    if highest == 0:
        return np.full(len(counts), float(MAX_NODE_SCORE))
    return MAX_NODE_SCORE * ((highest - counts) / np.float64(highest))


def _zones(nodes: NodeRows) -> Ids:
    """Number the zones of the nodes; 0 for none.

    Two labels may name a zone and two a region, so that one zone has several spellings: nodes are
    grouped by their label values, and each group is evaluated once.
    """
    groups: Ids = np.zeros(len(nodes), np.intp)
    for key in (*ZONE_KEYS, *REGION_KEYS):
        column = nodes.label(key)
        groups = groups * len(column.values) + column.ids
    _, examples, inverse = np.unique(groups, return_index=True, return_inverse=True)
    numbers: dict[str, int] = {"": _NO_ZONE}
    infos = nodes.infos
    found = [
        numbers.setdefault(zone_of(infos[example].labels), len(numbers)) for example in examples
    ]
    return np.array(found, np.intp)[inverse]

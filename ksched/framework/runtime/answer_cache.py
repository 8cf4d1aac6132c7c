"""The results that a profile caches between cycles, and for which pods they are valid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeAlias
from weakref import WeakValueDictionary

from ksched.cache.node_table import NodeTable
from ksched.cache.pod_info import PodInfo, PodSignature
from ksched.cache.recently_used import RecentlyUsed, room_for
from ksched.cache.snapshot import Snapshot
from ksched.configuration.extension_points import POST_FILTER, PRE_FILTER, PRE_SCORE
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import CACHED_SCOPES
from ksched.framework.plugins.names import DEFAULT_PREEMPTION, DYNAMIC_RESOURCES
from ksched.framework.runtime.filter_columns import FilterColumns, FilterEntry, Work
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.score_columns import ScoreColumns, ScoreEntry
from ksched.tuning import COLUMNS_BYTES

MakeFilters: TypeAlias = Callable[
    [Sequence[FilterEntry], NodeTable, Work, FilterColumns | None], FilterColumns
]
MakeScores: TypeAlias = Callable[
    [list[ScoreEntry], Snapshot, FilterColumns, Work, ScoreColumns | None], ScoreColumns
]

WANTED_GROUP = "a group that can be looked up"


class CachedColumns:
    """Cached verdicts and scores for pods with equal ``AnswerCache._key``."""

    __slots__ = ("__weakref__", "filters", "scores")

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        work: Work,
        seed: CachedColumns | None,
        make_filters: MakeFilters,
        make_scores: MakeScores,
    ) -> None:
        filters = [entry for entry in framework.filters if entry.is_cached]
        scores = [entry for entry in framework.scores if entry.is_cached]
        self.filters: FilterColumns = make_filters(
            filters, snapshot.table, work, seed.filters if seed else None
        )
        self.scores: ScoreColumns = make_scores(
            scores, snapshot, self.filters, work, seed.scores if seed else None
        )


class ActivePlugins:
    """The PreFilter and PreScore plugins that still have to run for pods of a template."""

    __slots__ = ("pre_filter", "pre_score", "skip_filter", "skip_score")

    def __init__(self, framework: Framework) -> None:
        self.pre_filter = list(framework.hooks[PRE_FILTER])
        self.pre_score = list(framework.hooks[PRE_SCORE])
        self.skip_filter: set[str] = set()
        """Plugins that returned SKIP_TEMPLATE."""
        self.skip_score: set[str] = set()


class AnswerCache:
    """Looks up the cached columns of a pod, and bounds their number."""

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        work: Work,
        make_filters: MakeFilters = FilterColumns,
        make_scores: MakeScores = ScoreColumns,
    ) -> None:
        self._make_columns = partial(
            CachedColumns,
            framework,
            snapshot,
            work,
            make_filters=make_filters,
            make_scores=make_scores,
        )
        self._framework = framework
        self._group_names = frozenset(one.plugin for one in framework.groups or ())
        self._skippable = frozenset(
            one.name for one in framework.filters if one.changes is not None and one.group is None
        )
        """Plugins that may be skipped for one of two pods with the same claimless signature."""
        self._per_template = frozenset(
            one.name for one in framework.filters if one.scope in CACHED_SCOPES
        )
        self._snapshot = snapshot
        self._columns: RecentlyUsed[Hashable, CachedColumns] = RecentlyUsed()
        self._newest: WeakValueDictionary[PodSignature, CachedColumns] = WeakValueDictionary()

    def active_plugins(self, pod: PodInfo) -> ActivePlugins:
        active_plugins: ActivePlugins | None = pod.template.facts.get(self)
        if active_plugins is None:
            active_plugins = pod.template.facts[self] = ActivePlugins(self._framework)
        return active_plugins

    def columns(self, state: CycleState, pod: PodInfo) -> CachedColumns:
        """Return the columns for pods equal to this one; least recently used ones are evicted."""
        columns = self.known_columns(state, pod)
        if columns is None:
            key, signature = self._key(state, pod), self._signature(pod)
            seed = self._newest.get(signature) if self._framework.groups else None
            columns = self._make_columns(seed)
            self._newest[signature] = columns
            per_node = 8 * (len(self._framework.scores) + 5)
            room = room_for(COLUMNS_BYTES, per_node * max(len(self._snapshot), 1))
            self._columns.put(key, columns, room)
        return columns

    def known_columns(self, state: CycleState, pod: PodInfo) -> CachedColumns | None:
        """The same, if such a pod was tried before."""
        key = self._key(state, pod)
        try:
            return self._columns.get(key)
        except Exception as problem:
            raise self._blame(state, pod, problem) from problem

    def are_per_template(self, state: CycleState, pod: PodInfo, plugins: frozenset[str]) -> bool:
        """Whether what some filters reject for a pod, they reject for all of its template.

        So it is for verdicts on a template and a node, unless PreFilter may skip the filter for
        another pod. What PostFilter plugins do must not differ between the pods either.
        """
        if not plugins <= self._per_template:
            return False
        if any(hook.plugin in plugins for hook in self.active_plugins(pod).pre_filter):
            return False
        return all(
            hook.plugin == DEFAULT_PREEMPTION
            # It deals with the claims of the pod.
            or (hook.plugin == DYNAMIC_RESOURCES and hook.plugin in state.skip_filter)
            for hook in self._framework.hooks[POST_FILTER]
        )

    def sweep(self) -> None:
        """Drop columns that no recent pod used."""
        self._columns.sweep()

    def _key(self, state: CycleState, pod: PodInfo) -> Hashable:
        """Pods with equal keys get equal results from every plugin whose results are cached."""
        groups = self._framework.groups
        if groups is None:
            return pod.template
        skipped, signature, template = state.skip_filter, self._signature(pod), pod.template
        key: Hashable = signature
        if template.claim_names or template.signature is not template.claimless_signature:
            key = (signature, self._skippable & skipped)
        if self._group_names <= skipped:
            return key
        return (
            key,
            *[None if one.plugin in skipped else one.call(state, pod) for one in groups],
        )

    def _signature(self, pod: PodInfo) -> PodSignature:
        template = pod.template
        is_exact = self._framework.reads_claim_names
        return template.signature if is_exact else template.claimless_signature

    def _blame(self, state: CycleState, pod: PodInfo, problem: Exception) -> PluginFailure:
        """Find the plugin whose group cannot be hashed or compared."""
        groups = self._framework.groups or ()
        candidates = [one for one in groups if one.plugin not in state.skip_filter]
        for one in candidates:
            group = one.call(state, pod)
            try:
                hash(group)
            except Exception as unhashable:
                raise one.unusable(group, WANTED_GROUP, unhashable) from unhashable
        return candidates[-1].unusable(candidates[-1].call(state, pod), WANTED_GROUP, problem)

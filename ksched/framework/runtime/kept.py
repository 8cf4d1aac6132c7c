"""What a profile keeps between cycles, and for which pods it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.filter_columns import FilterColumns, Work
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.score_columns import ScoreColumns

KEPT_GROUPS = 1024

KEPT_BYTES = 48 << 20
"""Memory for all kept columns of a profile."""


class KeptColumns:
    """Everything kept for pods that the plugins of a profile cannot tell apart."""

    __slots__ = ("filters", "scores")

    def __init__(self, framework: Framework, snapshot: Snapshot, work: Work) -> None:
        kept_filters = [entry for entry in framework.filters if entry.is_kept]
        kept_scores = [entry for entry in framework.scores if entry.is_kept]
        self.filters = FilterColumns(kept_filters, snapshot.table, work)
        self.scores = ScoreColumns(kept_scores, snapshot, self.filters, work)


class Askers:
    """The PreFilter and PreScore plugins that still want to be asked about pods of a template."""

    __slots__ = ("pre_filter", "pre_score", "skip_filter", "skip_score")

    def __init__(self, framework: Framework) -> None:
        self.pre_filter = list(framework.pre_filter)
        self.pre_score = list(framework.pre_score)
        self.skip_filter: set[str] = set()
        """Plugins that waved the template through for good."""
        self.skip_score: set[str] = set()


class Kept:
    """Finds what is kept for a pod, and bounds it."""

    def __init__(self, framework: Framework, snapshot: Snapshot, work: Work) -> None:
        self._framework = framework
        self._snapshot = snapshot
        self._work = work
        self._columns: OrderedDict[Hashable, KeptColumns] = OrderedDict()

    def askers(self, pod: PodInfo) -> Askers:
        askers: Askers | None = pod.template.facts.get(self)
        if askers is None:
            askers = pod.template.facts[self] = Askers(self._framework)
        return askers

    def columns(self, state: CycleState, pod: PodInfo) -> KeptColumns:
        """What is kept for pods like this one; what was unused for longest makes room."""
        key = self._key(state, pod)
        columns = self._columns.get(key)
        if columns is None:
            columns = KeptColumns(self._framework, self._snapshot, self._work)
            self._columns[key] = columns
            per_node = 8 * (len(self._framework.scores) + 5)
            room = KEPT_BYTES // (per_node * max(len(self._snapshot), 1))
            while len(self._columns) > min(max(room, 8), KEPT_GROUPS):
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(key)
        return columns

    def _key(self, state: CycleState, pod: PodInfo) -> Hashable:
        """Pods with equal keys get equal answers from every plugin whose answers are kept."""
        groups = self._framework.groups
        if groups is None:
            return pod.template
        skipped = state.skip_filter
        return (
            pod.template.shape,
            *[None if one.plugin in skipped else one.call(state, pod) for one in groups],
        )

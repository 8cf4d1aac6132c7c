"""What the plugins of a profile decide for a pod, on a copy of the cluster as it is now."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ksched.api.objects import Pod
from ksched.cache.pod_info import PodInfo
from ksched.explain.cluster_copy import ClusterCopy
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.node_search import Feasibility
from ksched.framework.runtime.profiles import Profile
from ksched.shadow.live_decisions import LiveDecision

PREEMPTION_TRIES: Final = 8
"""Candidates for preemption that are equally good are told apart by chance."""
_NO_CLAIMS: Final = "no new claims to deallocate, "
_FAILED_POST_FILTER: Final = ". not found"
_MIN_FEASIBLE_NODES: Final = 100
_RESCORINGS: Final = 8


class Judgement(Struct, frozen=True):
    """A decision: nodes of the best score, or the message of a rejection."""

    best: frozenset[str] = frozenset()
    message: str = ""
    nominated: str = ""
    feasible: int = 0
    """How many nodes fit."""

    def agrees_with(self, live: LiveDecision) -> bool:
        if live.node:
            return live.node in self.best
        if self.best or not is_same_message(live.message, self.message):
            return False
        return not live.nominated or live.nominated == self.nominated

    def __str__(self) -> str:
        if self.best:
            return min(self.best)
        return f"nominated to {self.nominated}" if self.nominated else "no node"


class Comparison(Struct, frozen=True):
    """Why a profile does not choose a node: the plugin that decides it, in words too."""

    plugin: str
    detail: str


class Judge:
    """Judges pods by one profile; nothing is placed."""

    def __init__(self, copy: ClusterCopy, profile: Profile) -> None:
        self._copy, self._profile = copy, profile

    async def decide(self, pod: Pod) -> Judgement:
        self._copy.cache.update_snapshot()
        info = self._copy.cache.pod_info(pod)
        try:
            state, fit = await self._find_nodes(info)
            if isinstance(fit, Diagnosis):
                return await self._reject(state, info, fit)
            rows = fit.rows
            if len(rows) > 1 and self._profile.framework.scores:
                totals = await self._totals(state, info, fit)
                rows = rows[totals == totals.max()]
        except PluginFailure as failed:
            return Judgement(message=failed.status.message)
        infos = self._copy.cache.snapshot.table.infos
        best = frozenset(infos[row].name for row in rows.tolist())
        return Judgement(best=best, feasible=len(fit.rows))

    async def nominations(self, pod: Pod) -> frozenset[str]:
        """The nodes that preemption may choose."""
        tries = [await self.decide(pod) for _ in range(PREEMPTION_TRIES)]
        return frozenset(one.nominated for one in tries)

    async def _find_nodes(self, pod: PodInfo) -> tuple[CycleState, Feasibility | Diagnosis]:
        state = CycleState()
        return state, await self._copy.cycle.find_nodes(self._profile, state, pod)

    async def _reject(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis) -> Judgement:
        rejected = await self._copy.cycle.run_post_filter(
            self._profile, state, QueuedPodInfo(pod, 0.0), diagnosis
        )
        self._copy.victims.by_preemptor.clear()
        return Judgement(message=rejected.message, nominated=rejected.nominated_node_name or "")

    async def _totals(self, state: CycleState, pod: PodInfo, fit: Feasibility) -> np.ndarray:
        """Scores in the order of ``fit.rows``."""
        rows, totals = await self._profile.pipeline.prioritize_nodes(state, pod, fit)
        return totals[fit.rows] if rows is None else totals

    # -- a node that was not chosen -------------------------------------------------------------

    async def compare(self, pod: Pod, node: str) -> Comparison:
        """Say why a node is not chosen: who rejects it, or who prefers another."""
        info = self._copy.cache.pod_info(pod)
        table = self._copy.cache.snapshot.table
        row = table.rows.get(node)
        if row is None:
            return Comparison("", f"node {node} is not known")
        try:
            state, fit = await self._find_nodes(info)
            if isinstance(fit, Diagnosis):
                assert fit.node_statuses is not None
                status = fit.node_statuses.get(node)
                return Comparison(status.plugin, f"rejects {node}: {status.message}")
            if row not in fit.rows:
                status = fit.book.status(int(fit.codes[row]))
                return Comparison(status.plugin, f"rejects {node}: {status.message}")
            return await self._compare_scores(state, info, fit, row)
        except PluginFailure as failed:
            return Comparison(failed.status.plugin, failed.status.message)

    async def _compare_scores(
        self, state: CycleState, pod: PodInfo, fit: Feasibility, row: int
    ) -> Comparison:
        totals = await self._totals(state, pod, fit)
        by_plugin = await self._profile.pipeline.scores_by_plugin(state, pod, fit)
        best, own = int(totals.argmax()), int(np.flatnonzero(fit.rows == row)[0])
        leads = {name: int(one[best] - one[own]) for name, one in by_plugin.items()}
        plugin = max(leads, key=lambda name: leads[name], default="")
        infos = self._copy.cache.snapshot.table.infos
        ours, theirs = infos[int(fit.rows[best])].name, infos[row].name
        scores = by_plugin.get(plugin)
        detail = f"{ours} scores {int(totals[best])}, {theirs} {int(totals[own])}"
        if scores is not None:
            detail += f"; of that {plugin} {int(scores[best])} and {int(scores[own])}"
        return Comparison(plugin, detail)

    async def may_be_sampled(self, pod: Pod, node: str, percentage: int) -> bool:
        """Whether the node is the best of a set of nodes that ends kube-scheduler's search.

        Found by leaving out the better ones: scores depend on which nodes are compared.
        """
        info = self._copy.cache.pod_info(pod)
        table = self._copy.cache.snapshot.table
        row, least = table.rows.get(node), nodes_to_find(percentage, len(table))
        try:
            _, fit = await self._find_nodes(info)
            if isinstance(fit, Diagnosis) or row not in fit.rows:
                return False
            rows = fit.rows
            for _ in range(_RESCORINGS):
                if len(rows) < least or len(rows) <= 1:
                    return False
                state, fit = await self._find_nodes(info)
                assert isinstance(fit, Feasibility)
                part = replace(fit, rows=rows, is_cached=False)
                totals = await self._totals(state, info, part)
                own = totals[rows == row][0]
                if totals.max() == own:
                    return True
                rows = rows[totals <= own]
        except PluginFailure:
            pass
        return False


def nodes_to_find(percentage: int, nodes: int) -> int:
    """How many feasible nodes end kube-scheduler's search: numFeasibleNodesToFind, v1.36.

    Of 0 it makes a percentage that falls with the number of nodes; ksched looks at all then.
    """
    if nodes < _MIN_FEASIBLE_NODES:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, 5)
    return min(nodes, max(nodes * percentage // 100, _MIN_FEASIBLE_NODES))


def is_same_message(live: str, ours: str) -> bool:
    """Whether two conditions say the same, but for what docs/deviations.md sets aside."""
    if live.endswith(_FAILED_POST_FILTER):
        # PostFilter of DynamicResources fails after a rejection at PreFilter.
        ours = ours.removesuffix(_FAILED_POST_FILTER).partition(" preemption: ")[0]
        ours = ours.replace(f" {_NO_CLAIMS.rstrip(', ')},", "").removesuffix(".")
        return live.removesuffix(_FAILED_POST_FILTER) == ours
    return live.replace(_NO_CLAIMS, "") == ours.replace(_NO_CLAIMS, "")

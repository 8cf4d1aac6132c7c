"""Explains one pod: the decision of the scheduling cycle, and what its plugins say of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
from msgspec.structs import replace

from ksched.api.objects import Pod
from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodInfo
from ksched.errors import ConfigError
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explanation import Change, Explanation, NodeVerdict, Preemption, Rejection
from ksched.explain.smallest_change import MAX_NODES, listed, smallest_changes
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.codes import CodeBook
from ksched.framework.runtime.filter_columns import FilterEntry
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.node_search import Feasibility
from ksched.framework.runtime.profiles import Profile
from ksched.framework.status import Status
from ksched.framework.verdicts import Verdicts
from ksched.redaction import without_credentials

CHANGES_PER_KIND = 2


async def explain(cluster: ClusterCopy, pod: Pod, seconds: float = inf) -> Explanation:
    """Explain a pod on a cluster; a placed pod is taken off it first and put back after.

    Changes that would make it fit are sought for so many seconds at most.
    """
    return await _Explaining(cluster, pod, seconds).run()


class _Explaining:
    def __init__(self, cluster: ClusterCopy, pod: Pod, seconds: float) -> None:
        self._cluster, self._cache, self._seconds = cluster, cluster.cache, seconds
        self._notes: list[str] = list(cluster.invalid)
        self._placed_on = pod.spec.node_name
        self._nominated = pod.status.nominated_node_name
        if self._placed_on:
            pod = replace(
                pod,
                spec=replace(pod.spec, node_name=""),
                status=replace(pod.status, nominated_node_name=""),
            )
        self._pod = self._cache.pod_info(pod)
        self._profile = self._find_profile()

    def _find_profile(self) -> Profile:
        name, profiles = self._pod.template.spec.scheduler_name, self._cluster.profiles
        if name in profiles:
            return profiles[name]
        if len(profiles) > 1:
            known = ", ".join(profiles)
            raise ConfigError([f"pod {self._pod.key}: schedulerName is {name}, profiles: {known}"])
        (profile,) = profiles.values()
        self._notes.append(
            f"schedulerName is {name}: explained with the plugins of {profile.name}; "
            "--config has another scheduler's"
        )
        return profile

    async def run(self) -> Explanation:
        for extender in self._cluster.configuration.extenders:
            name = without_credentials(extender.url_prefix)
            self._notes.append(f"extender {name} is not called")
        gates = [] if self._placed_on else self._cluster.gates(self._profile, self._pod)
        removed = self._cache.remove_pod(self._pod.uid) if self._placed_on else None
        try:
            return await self._decide(gates)
        finally:
            if removed is not None:
                self._cache.add_pod(removed)

    async def _decide(self, gates: list[str]) -> Explanation:
        self._cache.update_snapshot()
        pod, message, preemption, changes = self._pod, "", None, list[Change]()
        try:
            state, fit = await self._find_nodes(pod)
            if isinstance(fit, Feasibility) and self._nominated and not self._placed_on:
                # The nominated node was tried alone.
                self._notes.append("it fits on its nominated node: no other would be tried")
                pod = self._without_nomination(pod)
                state, fit = await self._find_nodes(pod)
            if isinstance(fit, Diagnosis):
                message, preemption = await self._post_filter(state, pod, fit)
                nodes = await self._rejected(state, pod, fit)
                changes = await self._changes(nodes)
            else:
                nodes = await self._scored(state, pod, fit)
        except PluginFailure as failed:
            message, nodes = failed.status.message, []
        return Explanation(
            pod=pod.key,
            node=self._placed_on,
            profile=self._profile.name,
            priority=pod.priority,
            nominated_node=self._nominated,
            gates=gates,
            notes=self._notes,
            message=message,
            num_all_nodes=len(self._cache.snapshot),
            nodes=nodes,
            preemption=preemption,
            changes=changes,
        )

    async def _find_nodes(self, pod: PodInfo) -> tuple[CycleState, Feasibility | Diagnosis]:
        state = CycleState()
        return state, await self._cluster.cycle.find_nodes(self._profile, state, pod)

    def _without_nomination(self, pod: PodInfo) -> PodInfo:
        self._cluster.nominator.delete(pod.uid)
        status = replace(pod.pod.status, nominated_node_name="")
        return self._cache.pod_info(replace(pod.pod, status=status))

    async def _post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[str, Preemption | None]:
        self._cluster.victims.by_preemptor.clear()
        rejected = await self._cluster.cycle.run_post_filter(
            self._profile, state, QueuedPodInfo(pod, 0.0), diagnosis
        )
        victims = self._cluster.victims.by_preemptor.get(pod.uid)
        if victims is None or not rejected.nominated_node_name:
            return rejected.message, None
        keys = sorted(victim.key for victim in victims)
        return rejected.message, Preemption(rejected.nominated_node_name, keys)

    async def _changes(self, nodes: list[NodeVerdict]) -> list[Change]:
        nearest = sorted(nodes, key=lambda one: (len(one.rejections), one.node))
        if len(nearest) > MAX_NODES:
            self._notes.append(f"changes were sought on the {MAX_NODES} nodes with least against")
        names = [one.node for one in nearest]
        now = self._cluster.clock.now
        end = now() + self._seconds
        found = await smallest_changes(self._cluster, self._profile, self._pod.pod, names, end)
        if now() >= end:
            self._notes.append(f"changes were sought for {self._seconds:.0f} s, not on all nodes")
        return listed(found, CHANGES_PER_KIND)

    # -- verdicts -------------------------------------------------------------------------------

    async def _rejected(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> list[NodeVerdict]:
        statuses = diagnosis.node_statuses
        assert statuses is not None
        further: Mapping[int, list[Rejection]] = {}
        if not diagnosis.pre_filter_message:
            further = await self._objections(state, pod)
        return [
            _verdict(info.name, statuses.get(info.name), further.get(row, []))
            for row, info in enumerate(statuses.table.infos)
        ]

    async def _scored(self, state: CycleState, pod: PodInfo, fit: Feasibility) -> list[NodeVerdict]:
        scores: dict[str, list[int]] = {}
        if len(fit.rows) > 1:
            await self._profile.pipeline.prioritize_nodes(state, pod, fit)
            by_plugin = await self._profile.pipeline.scores_by_plugin(state, pod, fit)
            scores = {plugin: column.tolist() for plugin, column in by_plugin.items()}
        further = await self._objections(state, pod)
        position = {row: place for place, row in enumerate(fit.rows.tolist())}
        nodes = []
        for row, info in enumerate(self._cache.snapshot.table.infos):
            if row in position:
                own = {plugin: column[position[row]] for plugin, column in scores.items()}
                nodes.append(NodeVerdict(info.name, scores=own))
            else:
                status = fit.book.status(int(fit.codes[row]))
                nodes.append(_verdict(info.name, status, further.get(row, [])))
        return nodes

    async def _objections(self, state: CycleState, pod: PodInfo) -> dict[int, list[Rejection]]:
        """Every filter's rejections by row: the scheduler itself stops at the first."""
        table = self._cache.snapshot.table
        rows = NodeRows(table, np.arange(len(table), dtype=np.intp))
        found: dict[int, list[Rejection]] = {}
        for entry in self._profile.framework.filters:
            if entry.name not in state.skip_filter:
                for row, reasons in _rejections(entry, state, pod, rows):
                    found.setdefault(row, []).append(Rejection(entry.name, list(reasons)))
        return found


def _rejections(
    entry: FilterEntry, state: CycleState, pod: PodInfo, rows: NodeRows
) -> list[tuple[int, Sequence[str]]]:
    """Return the rows that a filter rejects and why.

    An error is one more reason: it is about a node that an earlier filter rejected, since the
    attempt would have failed otherwise.
    """
    try:
        return _rejected_at_once(entry, state, pod, rows)
    except PluginFailure as failed:
        if len(rows) == 1:
            return [(0, failed.status.reasons)]
    found = []
    for row in range(len(rows)):
        alone = NodeRows(rows.table, np.array([row], np.intp))
        found += [(row, reasons) for _, reasons in _rejections(entry, state, pod, alone)]
    return found


def _rejected_at_once(
    entry: FilterEntry, state: CycleState, pod: PodInfo, rows: NodeRows
) -> list[tuple[int, Sequence[str]]]:
    if entry.is_columnar:
        verdicts = entry.hook.call(state, pod, rows)
    else:
        calls = (entry.hook.call(state, pod, info) for info in rows.infos)
        verdicts = Verdicts.of([entry.hook.status(result) for result in calls])
    book = CodeBook()
    codes = book.translate(entry.hook, entry.position, verdicts, len(rows))
    if codes is None:
        return []
    return [(row, book.status(int(codes[row])).reasons) for row in np.flatnonzero(codes).tolist()]


def _verdict(node: str, decisive: Status, objections: list[Rejection]) -> NodeVerdict:
    first = Rejection(decisive.plugin, list(decisive.reasons))
    further = [one for one in objections if one.plugin != first.plugin]
    return NodeVerdict(node, [first, *further])

"""The smallest changes that would make a pod fit, each tried in a dry run.

For every node and each kind (of the pod, of the node, evictions) all sets of steps are tried, one
step first, then two, until a set makes the pod fit there. Where there are too many pods to try all
sets of them, pods are evicted and reprieved one by one instead, the most important first: none of
the rest can stay, but another set may be smaller, which ``isSmallest`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, inf
from typing import Final

import numpy as np
from msgspec import Struct

from ksched.api.objects import Pod
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explanation import Change
from ksched.explain.steps import Case, Step, eviction_steps, node_steps, pod_steps
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.node_search import Search
from ksched.framework.runtime.profiles import Profile

POD, NODE, EVICTION = "pod", "node", "eviction"
MAX_STEPS: Final = 4
MAX_TRIALS: Final = 400
"""Sets of steps that are tried per node and kind."""
MAX_NODES: Final = 50


class Found(Struct, frozen=True):
    """A set of steps that makes the pod fit on a node."""

    node: str
    kind: str
    steps: tuple[Step, ...]
    is_smallest: bool
    case: Case

    @property
    def cost(self) -> tuple[int, float]:
        return len(self.steps), sum(step.amount for step in self.steps)


async def smallest_changes(
    cluster: ClusterCopy, profile: Profile, pod: Pod, nodes: Sequence[str], end: float = inf
) -> list[Found]:
    """The cheapest change of each kind on each node, the cheapest first.

    At ``end`` (``clock.now()``) those found so far are all.
    """
    trials = Trials(cluster, profile, end)
    found = []
    for name in nodes[:MAX_NODES]:
        if trials.are_over:
            break
        info = cluster.cache.get_node(name)
        if info is None or info.node is None:
            continue
        for kind, steps in steps_by_kind(pod, info).items():
            one = await _smallest(trials, Case(pod, info.node), kind, steps)
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda one: (*one.cost, one.node))


def steps_by_kind(pod: Pod, info: NodeInfo) -> dict[str, list[Step]]:
    """Every step that may help on a node."""
    return {
        POD: list(pod_steps(pod, info)),
        NODE: list(node_steps(pod, info)),
        EVICTION: list(eviction_steps(info.pods.values())),
    }


def listed(found: Sequence[Found], most: int) -> list[Change]:
    """The cheapest few of each kind; nodes that the same steps help are one change."""
    changes: dict[tuple[str, tuple[str, ...]], Change] = {}
    for one in found:
        key = (one.kind, tuple(step.text for step in one.steps))
        known = changes.get(key)
        if known is not None:
            known.nodes.append(one.node)
        elif sum(kind == one.kind for kind, _ in changes) < most:
            changes[key] = Change(one.kind, [one.node], list(key[1]), one.is_smallest)
    return list(changes.values())


async def _smallest(trials: Trials, case: Case, kind: str, steps: Sequence[Step]) -> Found | None:
    name, tried = case.node.metadata.name, 0
    for size in range(1, min(len(steps), MAX_STEPS) + 1):
        tried += comb(len(steps), size)
        if tried > MAX_TRIALS:
            return await _reprieve(trials, case, steps) if kind == EVICTION else None
        for chosen in sorted(combinations(steps, size), key=lambda s: sum(x.amount for x in s)):
            changed = applied(case, chosen)
            if await trials.fits(changed):
                return Found(name, kind, chosen, True, changed)
            if trials.are_over:
                return None
    return None


async def _reprieve(trials: Trials, case: Case, steps: Sequence[Step]) -> Found | None:
    kept = list(steps)
    if not await trials.fits(applied(case, kept)):
        return None
    for step in reversed(steps):
        if trials.are_over:
            return None
        without = [one for one in kept if one is not step]
        if await trials.fits(applied(case, without)):
            kept = without
    name = case.node.metadata.name
    return Found(name, EVICTION, tuple(kept), False, applied(case, kept))


def applied(case: Case, steps: Sequence[Step]) -> Case:
    for step in steps:
        case = step.apply(case)
    return case


class Trials:
    """Judges cases on a cluster, which is as before after each."""

    def __init__(self, cluster: ClusterCopy, profile: Profile, end: float) -> None:
        self._cluster, self._cache, self._profile = cluster, cluster.cache, profile
        self._end = end

    @property
    def are_over(self) -> bool:
        """Whether there is no time for more."""
        return self._cluster.clock.now() >= self._end

    async def fits(self, case: Case) -> bool:
        """Whether the pod fits on the case's node."""
        name = case.node.metadata.name
        info = self._cache.get_node(name)
        assert info is not None
        before = info.node
        assert before is not None
        for pod in case.evicted:
            self._cache.remove_pod(pod.uid)
        if case.node is not before:
            self._cache.add_node(case.node)
        try:
            return await self._judge(self._cache.pod_info(case.pod), name)
        except PluginFailure:
            return False
        finally:
            if case.node is not before:
                self._cache.add_node(before)
            for pod in case.evicted:
                self._cache.add_pod(pod)

    async def _judge(self, pod: PodInfo, name: str) -> bool:
        self._cache.update_snapshot()
        state, pipeline = CycleState(), self._profile.pipeline
        status, names, _ = await pipeline.run_pre_filter(state, pod)
        if not status.is_success or (names is not None and name not in names):
            return False
        row = self._cache.snapshot.table.rows[name]
        nominated = self._cluster.nominator.expected_with(pod)
        search = Search(only=np.array([row], np.intp), nominated=nominated)
        return bool(len((await pipeline.find_nodes_that_fit(state, pod, search)).rows))

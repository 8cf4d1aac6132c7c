"""Pods with the node that they would be placed on, for the extension points after that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from ksched.cache.pod_info import PodInfo
from ksched.framework import CycleState
from ksched.framework.runtime.guard import PluginFailure
from ksched.testing.conformance.trial import Trial


class Placement(NamedTuple):
    """What Reserve and the points after it are called with."""

    state: CycleState
    pod: PodInfo
    node_name: str


async def placements(trial: Trial, at_most: int) -> AsyncIterator[Placement]:
    """Placements as the filters of the whole profile would have them; nothing is assumed."""
    count = 0
    for pod in trial.pods:
        if count >= at_most:
            return
        state = CycleState()
        try:
            status, _, _ = await trial.pipeline.run_pre_filter(state, pod)
            if not status.is_success:
                continue
            fit = await trial.pipeline.find_nodes_that_fit(state, pod)
        except PluginFailure:
            continue
        if len(fit.rows):
            node_name = trial.snapshot.table.infos[int(fit.rows[0])].name
            yield Placement(state, pod.on_node(node_name), node_name)
            count += 1


def sweep(plugin: Any) -> None:
    """Twice: what was used since the call before is kept."""
    if hasattr(plugin, "sweep"):
        plugin.sweep()
        plugin.sweep()

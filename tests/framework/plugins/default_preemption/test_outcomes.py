"""Outcomes of dry runs that are kept, and what it costs to choose among them."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import ClassVar

import numpy as np
import pytest

from ksched.configuration.loading import load_config
from ksched.framework import (
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    Scope,
    Verdicts,
    unschedulable,
)
from ksched.testing import make_node, make_pod
from lab.decider import Decider

NOT_FIRST = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: NotFirst}]}}
"""


class NotFirst:
    """Keeps pods away from n0, whatever runs there; it comes after the filter of amounts."""

    name: ClassVar[str] = "NotFirst"
    filter_depends_on: ClassVar = FilterDependsOn(Scope.NODE)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        rejected = np.array([name == "n0" for name in nodes.names])
        return Verdicts.rejecting(rejected, unschedulable("not here"))


def cluster_of(nodes: int, *, seed: int = 1, config: str = "") -> Decider:
    """Nodes that are full of a pod of no importance."""
    plugins = {"NotFirst": lambda args, handle: NotFirst()}
    decider = Decider(load_config(config) if config else None, registry=plugins, seed=seed)
    names = [f"n{number}" for number in range(nodes)]
    decider.set_cluster(
        [make_node(name).capacity(cpu="4", pods="10").obj() for name in names],
        [make_pod(f"low-{name}").req(cpu="3").node(name).obj() for name in names],
    )
    return decider


async def nominated_by(decider: Decider, name: str) -> str | None:
    verdict = await decider.decide(make_pod(name).req(cpu="3").priority(10).obj())
    assert len(verdict.victims) == 1
    return verdict.nominated


def start(decider: Decider, node: str, time: str) -> None:
    pod = make_pod(f"low-{node}").req(cpu="3").node(node).started(time).obj()
    decider.cache.update_pod(decider.cache.pod_info(pod))


async def test_a_start_that_becomes_known_counts() -> None:
    decider = cluster_of(3)
    for day, name in enumerate(("n0", "n1", "n2"), start=1):
        start(decider, name, f"2026-01-0{day}T00:00:00Z")
    assert await nominated_by(decider, "a") == "n2"

    start(decider, "n1", "2026-01-05T00:00:00Z")

    assert await nominated_by(decider, "b") == "n1"


async def calls_of_a_known_choice(nodes: int) -> int:
    """Calls of Python functions of the plugin, where every node is a candidate."""
    decider = cluster_of(nodes)
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and "default_preemption" in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    # The first two are tried where the third then knows the outcomes, wherever they begin.
    for name in ("a", "b"):
        await nominated_by(decider, name)
    sys.setprofile(note)
    try:
        await nominated_by(decider, "c")
    finally:
        sys.setprofile(None)
    return calls.total()


@pytest.mark.parametrize(("few", "many"), [(20, 90)])
async def test_a_choice_among_known_candidates_costs_no_call_for_each(few: int, many: int) -> None:
    assert await calls_of_a_known_choice(few) == await calls_of_a_known_choice(many)


async def test_what_becomes_of_a_chosen_node_costs_no_call_of_a_filter() -> None:
    """Its pods go one after the other while others search: it is judged by its amounts."""
    decider = cluster_of(12)
    work = decider.profiles["default-scheduler"].pipeline.work
    rows = []
    for number in range(6):
        before = work.rows
        chosen = await nominated_by(decider, f"p{number}")
        assert chosen
        preemptor = make_pod(f"p{number}").req(cpu="3").priority(10).nominated(chosen).obj()
        decider.nominator.add(decider.cache.pod_info(preemptor))
        start(decider, chosen, "2026-01-01T00:00:00Z")
        rows.append(work.rows - before)

    assert rows[3:] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(4))
async def test_equal_amounts_mean_nothing_where_a_node_is_rejected_for_itself(seed: int) -> None:
    decider = cluster_of(3, seed=seed, config=NOT_FIRST)
    for day, name in enumerate("abcd", start=1):
        assert await nominated_by(decider, name) in ("n1", "n2")
        for node in ("n0", "n1", "n2"):
            start(decider, node, f"2026-01-0{day}T00:00:00Z")

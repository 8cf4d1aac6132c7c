"""Outcomes of dry runs that are kept, and what it costs to choose among them."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from ksched.testing import make_node, make_pod
from lab.decider import Decider


def cluster_of(nodes: int) -> Decider:
    """Nodes that are full of a pod of no importance."""
    decider = Decider(seed=1)
    names = [f"n{number}" for number in range(nodes)]
    decider.set_cluster(
        [make_node(name).capacity(cpu="4", pods="10").obj() for name in names],
        [make_pod(f"low-{name}").req(cpu="3").node(name).obj() for name in names],
    )
    return decider


async def nominated_by(decider: Decider, name: str) -> str | None:
    verdict = await decider.decide(make_pod(name).req(cpu="2").priority(10).obj())
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

"""One pod of the size that an API server admits must not keep the scheduler from its other work.

Covers ``ksched.framework.plugins.inter_pod_affinity.term_set`` too.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable
from types import FrameType
from typing import Any

import pytest

from ksched.framework import time_slices
from ksched.framework.plugins.inter_pod_affinity import filtering, scoring
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.places import Place
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.harness import cluster
from ksched.testing.virtual_time import VirtualClock
from lab.bulky import HOSTNAME, MOST, PREFERRED, REQUIRED, bulky_pod
from lab.decider import Decider

SIZE, NODES = 1000, 400

LINES_PER_ELEMENT, LINES_PER_NODE = 250, 400
"""What an attempt may take: proportional to the spec and to the cluster, not to their product."""


class WorkClock(VirtualClock):
    """Every look at it takes a while, so that slices of time are counts of looks."""

    def __init__(self, seconds_per_look: float) -> None:
        self.seconds = 0.0
        self._seconds_per_look = seconds_per_look

    def now(self) -> float:
        self.seconds += self._seconds_per_look
        return self.seconds


def decider(clock: VirtualClock | None = None) -> Decider:
    """Nodes with a few labels and taints, and as many pods on them."""
    decider = Decider(clock=clock)
    nodes = [
        make_node(f"node-{number}")
        .label({"zone": f"zone-{number % 10}", "pool": "p"})
        .taint(f"taint-{number % 7}", effect="PreferNoSchedule")
        .obj()
        for number in range(NODES)
    ]
    pods = [
        make_pod(f"pod-{number}").label(app=f"app-{number}").node(f"node-{number}").obj()
        for number in range(NODES)
    ]
    decider.set_cluster(nodes, pods)
    return decider


async def attempt(decider: Decider, pod: PodBuilder) -> Placed | Rejected:
    outcome = await decider.cycle.run(QueuedPodInfo(decider.cache.pod_info(pod.obj()), 0.0))
    if isinstance(outcome, Placed):
        decider.cache.forget_pod(outcome.pod)
    return outcome


async def lines_executed(work: Awaitable[Any]) -> int:
    """How many lines of Python some work takes; a measure that no busy machine changes."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await work
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("kind", MOST)
async def test_an_attempt_costs_what_the_spec_and_the_cluster_have_not_their_product(
    kind: str,
) -> None:
    small = decider()
    if kind == "host ports":
        crowd = bulky_pod(kind, SIZE, "crowd").node("node-1").to_dict()
        for port in crowd["spec"]["containers"][0]["ports"]:
            port["hostPort"] += SIZE
        small.cache.add_pod(small.cache.pod_info(PodBuilder(crowd).obj()))
    await attempt(small, make_pod("ordinary").req(cpu="1"))

    lines = await lines_executed(attempt(small, bulky_pod(kind, SIZE)))

    assert lines < LINES_PER_ELEMENT * SIZE + LINES_PER_NODE * NODES


async def longest_step(work: Awaitable[Any]) -> int:
    """Return the most lines of Python that are executed between two turns of the event loop."""
    lines = longest = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    async def others() -> None:
        nonlocal lines, longest
        while True:
            longest, lines = max(longest, lines), 0
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await work
    finally:
        sys.settrace(before)
        waiting.cancel()
    return max(longest, lines)


@pytest.mark.parametrize(
    ("kind", "lines_per_element"),
    [
        ("extended resources", 20),
        ("requirements of one node affinity term", 5),
        ("host ports", 12),
        ("spread constraints", 15),
        ("soft spread constraints", 15),
        ("disks", 60),
        ("containers", 70),
        ("init containers", 110),
    ],
)
async def test_an_attempt_yields_between_its_steps(kind: str, lines_per_element: int) -> None:
    size = 3 * SIZE
    small = decider(WorkClock(0.003))
    await attempt(small, make_pod("ordinary").req(cpu="1"))

    assert await longest_step(attempt(small, bulky_pod(kind, size))) < lines_per_element * size


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("node affinity terms", SIZE),
        ("node affinity terms over host names", SIZE),
        ("requirements of one node affinity term", 2 * SIZE),
        ("preferred node affinity terms", SIZE),
        ("pod affinity terms", 4 * SIZE),
        ("requirements of one pod affinity term", 4 * SIZE),
        ("pod anti-affinity terms", 4 * SIZE),
        ("preferred pod affinity terms", 4 * SIZE),
    ],
)
async def test_a_long_attempt_is_sliced_cut_short_and_taken_up_again(kind: str, size: int) -> None:
    pod = bulky_pod(kind, size)
    expected = await decider().decide(pod.obj())
    small = decider(WorkClock(0.005))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    cut_short = 0
    while True:
        turns = 0
        outcome = await attempt(small, pod)
        if not (isinstance(outcome, Rejected) and "cut short" in outcome.message):
            break
        cut_short += 1
        assert outcome.status.is_rejected
        assert outcome.diagnosis is None, "it waits for time to pass, not for an event"
        assert turns > 3, "the event loop had its turn in between"
        assert cut_short < 100, "every attempt goes on where the last one stopped"
    waiting.cancel()

    assert cut_short >= 2
    verdict = await small.decide(pod.obj())
    assert verdict.feasible == expected.feasible
    assert verdict.message == expected.message
    assert verdict.scores == expected.scores


def a_pod_of_many_relations(rng: random.Random) -> PodBuilder:
    """Required and preferred terms of all forms, over labels that pods and nodes have or not."""

    def term() -> dict[str, Any]:
        values = [f"app-{rng.randrange(2 * NODES)}" for _ in range(rng.randint(1, 3))]
        one = {
            "key": rng.choice(("app", "app", "absent")),
            "operator": rng.choice(("In", "In", "In", "NotIn")),
            "values": values,
        }
        found: dict[str, Any] = {
            "topologyKey": rng.choice((HOSTNAME, "zone", "pool", "rack")),
            "labelSelector": {"matchExpressions": [one]},
        }
        if rng.random() < 0.3:
            found["namespaces"] = [rng.choice(("default", "elsewhere"))]
        if rng.random() < 0.2:
            found["labelSelector"] = {"matchLabels": {"app": values[0]}}
        return found

    def preferred() -> list[dict[str, Any]]:
        return [{"weight": rng.randint(1, 100), "podAffinityTerm": term()} for _ in range(40)]

    required = [one for one in (term() for _ in range(40)) if one["topologyKey"] != "pool"]
    for one in required:
        one["labelSelector"]["matchLabels"] = {"app": f"app-{rng.randrange(NODES)}"}
    affinity = {
        "podAffinity": {PREFERRED: preferred()},
        "podAntiAffinity": {REQUIRED: required, PREFERRED: preferred()},
    }
    return make_pod("related").merge({"spec": {"affinity": affinity}})


@pytest.mark.parametrize("seed", range(5))
async def test_terms_that_are_counted_together_decide_as_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = a_pod_of_many_relations(random.Random(seed)).obj()
    together = await decider().decide(pod)
    monkeypatch.setattr(filtering, "MANY_TERMS", 10**9)
    monkeypatch.setattr(scoring, "MANY_TERMS", 10**9)
    one_by_one = await decider().decide(pod)

    assert 0 < len(together.feasible) < NODES
    assert together == one_by_one
    assert len(set(together.totals.values())) > 1


async def test_what_was_computed_of_large_affinity_follows_the_nodes() -> None:
    pod = bulky_pod("node affinity terms over host names", 300).merge(
        {"spec": {"nodeSelector": {"pool": "p"}}}
    )
    terms = pod.to_dict()["spec"]["affinity"]["nodeAffinity"]
    required = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    for term in required:
        del term["matchExpressions"][2]
    pod = pod.merge({"spec": {"affinity": {"nodeAffinity": terms}}})
    small = decider()

    def expected() -> set[str]:
        return {
            info.name
            for info in small.cache.snapshot.table.infos
            if info.labels.get("zone") == "zone-0" and info.labels.get("pool") == "p"
        }

    assert (await small.decide(pod.obj())).feasible == expected()
    small.cache.add_node(make_node("node-3").label(zone="zone-0", pool="p").obj())
    small.cache.add_node(make_node("new").label(zone="zone-0", pool="p").obj())
    small.cache.remove_node("node-0")
    small.cache.add_node(make_node("node-10").label(zone="zone-1", pool="p").obj())
    found = (await small.decide(pod.obj())).feasible
    assert {"node-3", "new"} <= found
    assert found == expected()
    for number in range(NODES):
        small.cache.add_node(make_node(f"more-{number}").label(zone="zone-0", pool="p").obj())
    assert (await small.decide(pod.obj())).feasible == expected()


async def test_a_pod_that_is_set_aside_says_why_lets_others_pass_and_gets_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No time passes within a step on a virtual clock: the least there is must be too much.
    monkeypatch.setattr(time_slices, "ATTEMPT_SECONDS", -0.001)
    async with cluster(nodes=3) as c:
        await c.create(bulky_pod("node affinity terms", SIZE))
        await c.settle()
        condition = c.condition("bulky")
        assert condition is not None
        assert condition["reason"] == "Unschedulable"
        assert condition["message"].startswith("the spec is so large that the attempt was cut")

        await c.create(make_pod("ordinary"))
        await c.settle()
        assert c.bound("ordinary")
        assert c.place("bulky") is Place.BACKOFF

        await c.advance(300)
        assert c.message("bulky").startswith(
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
        )
        places = [step.target for step in c.story("bulky")]
        assert 5 < places.count(Place.IN_FLIGHT) < 40, "an attempt after every pause, and an end"

"""Which node is preempted on (preemption.go: pickOneNodeForPreemption, v1.36)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework.plugins.default_preemption.candidates import (
    Candidate,
    by_importance,
    pick_one_node_for_preemption,
)
from ksched.testing import make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())


def pod(priority: int | None, started: int | None = 1, name: str = "v") -> PodInfo:
    builder = make_pod(name)
    if priority is not None:
        builder = builder.priority(priority)
    if started is not None:
        builder = builder.started(f"2026-01-{started:02}T00:00:00Z")
    return TEMPLATES.pod_info(builder.obj())


def candidate(name: str, *victims: PodInfo, violations: int = 0) -> Candidate:
    return Candidate(name, victims, violations)


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param(
            candidate("worse", pod(0), violations=1), id="fewer budgets are violated, before all"
        ),
        pytest.param(candidate("worse", pod(11)), id="the most important victim matters less"),
        pytest.param(
            candidate("worse", pod(10), pod(6), pod(5)), id="the priorities add up to less"
        ),
        pytest.param(
            candidate("worse", pod(10, 9), pod(5, 9), pod(-(1 << 31))),
            id="there are fewer victims, even if the surplus costs nothing",
        ),
        pytest.param(candidate("worse", pod(10, 2), pod(5, 9)), id="it has run for less long"),
    ],
)
def test_the_better_node_is_the_one_where(worse: Candidate) -> None:
    better = candidate("better", pod(10, 3), pod(5, 1))

    for seed in range(5):
        for candidates in ([better, worse], [worse, better]):
            assert (
                pick_one_node_for_preemption(candidates, random.Random(seed)).node_name == "better"
            )


def test_one_more_victim_costs_more_even_if_its_priority_is_negative() -> None:
    one = candidate("one", pod(10))
    two = candidate("two", pod(10), pod(-500))

    assert pick_one_node_for_preemption([two, one], random.Random(0)) is one


def test_the_start_that_counts_is_the_earliest_of_the_most_important_victims() -> None:
    early = candidate("early", pod(10, 5), pod(10, 1), pod(3, 9))
    late = candidate("late", pod(10, 3), pod(10, 2), pod(3, 1))

    assert pick_one_node_for_preemption([early, late], random.Random(0)) is late


def test_a_victim_that_has_not_started_counts_as_the_latest() -> None:
    running = candidate("running", pod(10, 28))
    starting = candidate("starting", pod(10, None))

    assert pick_one_node_for_preemption([running, starting], random.Random(0)) is starting


def test_chance_decides_between_equals() -> None:
    equals = [candidate(name, pod(1)) for name in "abc"]
    rng = random.Random(0)

    chosen = Counter(pick_one_node_for_preemption(equals, rng).node_name for _ in range(300))

    assert set(chosen) == {"a", "b", "c"}
    assert min(chosen.values()) > 60


def test_importance_is_priority_then_age() -> None:
    pods = [
        pod(5, 1, "old"),
        pod(10, None, "not-started"),
        pod(10, 3, "young"),
        pod(None, 1, "none"),
        pod(10, 2, "older"),
    ]

    ranked = [one.name for one in by_importance(pods)]

    assert ranked == ["older", "young", "not-started", "old", "none"]

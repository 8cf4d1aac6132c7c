"""What one pod or one event costs does not grow with the pods it does not concern."""

from __future__ import annotations

import pytest

from bench.events import Work, measure, work_of
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.virtual_time import run


def per_pod(work: Work, pods: int) -> dict[str, float]:
    names = ("attempts", "pre_enqueue_calls", "hint_calls", "rows")
    return {name: getattr(work, name) / pods for name in names}


def test_a_preemptor_costs_the_same_beside_many() -> None:
    few, many = (per_pod(run(measure("preemption", size)), size) for size in (12, 48))
    assert many["attempts"] <= few["attempts"] + 1
    # In, after the attempt, at the first deletion, and when its victims are gone; by four plugins.
    assert many["pre_enqueue_calls"] <= few["pre_enqueue_calls"] + 4
    assert many["hint_calls"] <= few["hint_calls"] + 4
    # Each node is tried once for all preemptors, and again after it changed.
    assert many["rows"] <= 1.5 * few["rows"]


def test_gated_pods_cost_nothing() -> None:
    few, many = (per_pod(run(measure("gated", size)), size) for size in (10, 150))
    assert many["pre_enqueue_calls"] == few["pre_enqueue_calls"]
    assert many["hint_calls"] == few["hint_calls"] == 0
    assert many["attempts"] == few["attempts"] == 1
    # The only node changes with every pod, and is judged by what is known of its amounts.
    assert many["rows"] <= 1


@pytest.mark.parametrize("size", [2, 8, 60])
def test_a_node_update_is_judged_once_for_all_pods_of_a_template(size: int) -> None:
    work = run(measure("nodeupdates", size))
    assert work.hint_calls <= 2 * size
    # All are placed, and after every update at most one is tried that does not fit.
    assert work.attempts <= 11 * size


async def heartbeats(waiting: int) -> Work:
    """Five heartbeats of a full node, beside pods that wait for room."""
    async with cluster(check_declarations=False) as c:
        await c.add_nodes([make_node("n0").capacity(cpu="1")])
        await c.create(*(make_pod(f"waiting{number}").req(cpu="2") for number in range(waiting)))
        await c.settle()
        before = work_of(c)
        for minute in range(5):
            since = f"2026-01-01T00:0{minute}:00Z"
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": since}
            status = {"status": {"conditions": [ready]}}
            await c.patch_node("n0", status, subresource="status")
            await c.settle()
        return work_of(c).since(before)


@pytest.mark.parametrize("waiting", [5, 50])
def test_a_heartbeat_costs_nothing(waiting: int) -> None:
    assert set(per_pod(run(heartbeats(waiting)), 1).values()) == {0}

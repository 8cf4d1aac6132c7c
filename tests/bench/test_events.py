"""What one pod or one event costs does not grow with the pods it does not concern."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import ksched
from bench.events import Work, gated, light, measure, work_of
from ksched.cache.pod_info import PodTemplate
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.virtual_time import run

PACKAGE = Path(ksched.__file__).parent


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


def test_pods_that_come_alone_share_what_is_known_of_their_template() -> None:
    """Though each bound one is of another template: it has labels of its node."""
    templates: list[int] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is PodTemplate.__init__.__code__:
            templates.append(frame.f_locals["number"])

    async def counted() -> None:
        async with cluster(check_declarations=False) as c:
            await c.add_nodes([make_node("n0").capacity(cpu="4", pods="110")])
            sys.setprofile(note)
            try:
                for name in (f"p{number}" for number in range(10)):
                    await c.create(light(name))
                    await c.settle()
                    assert c.bound(name)
                    await c.patch(name, {"metadata": {"labels": {"zone": "a"}}})
                    await c.settle()
            finally:
                sys.setprofile(None)

    run(counted())
    assert len(templates) == 2


def test_few_functions_are_called_for_a_pod_that_comes_alone() -> None:
    """Of a whole scheduler: about 580, from the watch to the Event, with the deletion of a pod."""
    ours, others = str(PACKAGE), tuple(str(PACKAGE / name) for name in ("apiserver", "testing"))
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ours) and not file.startswith(others):
            calls[frame.f_code.co_qualname] += 1

    async def counted(size: int) -> None:
        async with cluster(check_declarations=False) as c:
            measured = await gated(c, size)
            await c.settle()
            sys.setprofile(note)
            try:
                await measured()
            finally:
                sys.setprofile(None)

    run(counted(20))
    assert calls.total() <= 20 * 600, calls.most_common(20)


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

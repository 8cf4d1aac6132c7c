"""What the fuzzer found, each as a small test of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ksched.api.pod_resources import pod_requests
from ksched.testing import Checkers, cluster, make_node, make_pod


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python a call runs: a measure of work that no busy machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def _with_init_containers(number: int) -> Any:
    """Sidecars and init containers in turns, each with a resource of its own."""
    pod = make_pod()
    for index in range(number):
        pod = pod.init({f"example.com/r{index}": "1"}, sidecar=index % 2 == 0)
    return pod.obj().spec


def test_init_containers_cost_what_each_asks_for() -> None:
    few, many = _with_init_containers(100), _with_init_containers(400)
    assert lines_run(lambda: pod_requests(many)) < 6 * lines_run(lambda: pod_requests(few))


async def test_an_overfull_node_may_take_a_pod_that_asks_for_nothing() -> None:
    async with cluster([make_node("n1").capacity(cpu="1")]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("large").req(cpu="4").node("n1"))
        await c.create(make_pod("small"))
        await c.settle()
        assert c.bound("small") == "n1"
        checkers.check_books()

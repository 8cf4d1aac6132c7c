"""Plugins that break what lies beside an attempt: dry runs, events, the queue, the start.

Covers ``ksched.framework.untrusted_values`` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from ksched.errors import ConfigError
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Resource,
    ScoreDependsOn,
    Status,
    pending,
    unschedulable,
)
from ksched.testing import FakePlugin, PermitGate, cluster, make_node, make_pod

CRITICAL = "system-cluster-critical"
KINDS = [asyncio.CancelledError, SystemExit, GeneratorExit, KeyboardInterrupt]


def passing(*args: Any) -> Any:
    """A method that is there and never asked."""


def raising(kind: type[BaseException]) -> Callable[..., Any]:
    def raises(*args: Any) -> Any:
        raise kind("boom")

    return raises


# -- dry runs, books and events


@pytest.mark.parametrize("answer", [None, "yes", pending("no"), Status([1])])  # type: ignore[arg-type]
@pytest.mark.parametrize("method", ["add_pod", "remove_pod"])
async def test_dry_runs_survive_what_follows_them(method: str, answer: Any) -> None:
    answers = {"add_pod": SUCCESS, "remove_pod": SUCCESS, method: answer}
    plugin = FakePlugin("Odd", pre_filter=SUCCESS, filter=SUCCESS, **answers)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("small").req(cpu="3"))
        await c.settle()
        await c.create(
            make_pod("big").req(cpu="4").merge({"spec": {"priorityClassName": CRITICAL}})
        )
        await c.settle()
        assert c.bound("big") is None
        await c.create(make_pod("next"))
        await c.settle()
        assert c.bound("next") == "n1"


async def test_state_that_cannot_be_copied_fails_the_dry_run() -> None:
    class Uncopied:
        def clone(self) -> Any:
            raise ValueError("boom")

    def pre_filter(state: Any, pod: Any, snapshot: Any) -> Status:
        state.write("Odd", Uncopied())
        return SUCCESS

    plugin = FakePlugin("Odd", pre_filter=pre_filter, filter=SUCCESS)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("small").req(cpu="3"))
        await c.settle()
        await c.create(
            make_pod("big").req(cpu="4").merge({"spec": {"priorityClassName": CRITICAL}})
        )
        await c.settle()
        assert c.bound("big") is None
        assert "boom" in c.message("big")
        await c.create(make_pod("next"))
        await c.settle()
        assert c.bound("next") == "n1"


@pytest.mark.parametrize(
    "mischief",
    [
        pytest.param(
            lambda handle, state, pod: handle.recorder.event(pod, "Normal", "A", "B", "\udc80"),
            id="an event with half a character",
        ),
        pytest.param(
            lambda handle, state, pod: handle.recorder.event(pod, "Normal", "A", "B", object()),
            id="an event with an object",
        ),
        pytest.param(
            lambda handle, state, pod: handle.recorder.event(None, "Normal", "A", "B", "c"),
            id="an event about nothing",
        ),
        pytest.param(
            lambda handle, state, pod: handle.preempt(pod, "n1", ["victim"]), id="victims by name"
        ),
        pytest.param(
            lambda handle, state, pod: setattr(state, "pods_to_activate", [pod]),
            id="pods to activate",
        ),
    ],
)
async def test_mischief_by_the_handle_is_an_exception_in_the_plugin(mischief: Any) -> None:
    def pre_filter(state: Any, pod: Any, snapshot: Any) -> Status:
        if pod.name == "victim":
            mischief(plugin.handle, state, pod)
        return SUCCESS

    plugin = FakePlugin("Odd", pre_filter=pre_filter)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("victim"), make_pod("next"))
        await c.settle()
        assert "Error: " in c.message("victim")
        assert (c.bound("victim"), c.bound("next")) == (None, "n1")


@pytest.mark.parametrize("message", [5, None, "\udc80"])
async def test_a_waiting_pod_is_rejected_whatever_the_message(message: Any) -> None:
    gate = PermitGate("Odd")
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        gate.reject(message)
        await c.settle()
        assert c.bound("web") is None
        assert c.message("web").startswith("0/1 nodes are available: 1 ")


# -- the queue


class Stubborn:
    """Refuses to be compared with any other of its kind."""

    def __lt__(self, other: object) -> bool:
        if other is self:
            return False
        raise ValueError("boom")

    __eq__ = __lt__
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(lambda name: [name] if name < "c" else [5], id="lists of different things"),
        pytest.param(lambda name: Stubborn(), id="incomparable"),
        pytest.param(lambda name: np.zeros(2), id="arrays"),
        pytest.param(lambda name: float("nan"), id="nan"),
        pytest.param(lambda name: None, id="nothing"),
        pytest.param(lambda name: {"a": 1}, id="dictionaries"),
        pytest.param(lambda name: name if name < "c" else 5, id="text and numbers"),
    ],
)
async def test_pods_with_keys_that_cannot_be_compared_are_scheduled(key: Any) -> None:
    plugin = FakePlugin("Odd", sort_key=lambda queued: key(queued.pod.name))
    sort = {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Odd"}]}}
    async with cluster(nodes=1, config={"profiles": [{"plugins": sort}]}, plugins=[plugin]) as c:
        await c.create(*(make_pod(name) for name in "dacbe"))
        await c.settle()
        assert [c.bound(name) for name in "abcde"] == ["n1"] * 5


@pytest.mark.parametrize("answer", [None, "maybe", raising(ValueError), *map(raising, KINDS)])
async def test_a_hint_that_makes_no_sense_counts_as_a_yes(answer: Any) -> None:
    hint = answer if callable(answer) else lambda *args: answer
    node_added = ClusterEvent(Resource.NODE, Action.ADD)
    events = [ClusterEventWithHint(node_added, hint)]
    wanted = {"n2"}
    plugin = FakePlugin(
        "Odd",
        filter=lambda state, pod, node: SUCCESS if node.name in wanted else unschedulable("no"),
        events_to_register=events,
    )
    async with cluster(nodes=[make_node("n1")], plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        await c.create(make_node("n2"))
        await c.advance(10)
        assert c.bound("web") == "n2"


async def async_hint(*args: object) -> Any:
    return None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(5, "TypeError: 'int' object is not iterable", id="a number"),
        pytest.param(["node"], "returned 'node', wanted ClusterEventWithHint", id="text"),
        pytest.param(ValueError("boom"), "ValueError: boom", id="raises"),
        pytest.param(
            [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD), cast(Any, async_hint))],
            "the hint for Node must not be async",
            id="async hint",
        ),
    ],
)
async def test_registrations_that_are_none_are_refused_at_the_start(
    answer: Any, problem: str
) -> None:
    plugin = FakePlugin("Odd", filter=SUCCESS, events_to_register=answer)
    with pytest.raises(ConfigError) as caught:
        async with cluster(plugins=[plugin]):
            pass
    assert caught.value.problems == (f'plugin "Odd": events_to_register: {problem}',)


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"name": 5}, "its name must be the one it is registered under, got 5"),
        ({"filter": 5}, "filter must be a method, got 5"),
        (
            {"filter_nodes": passing, "filter_depends_on": "node"},
            "filter_depends_on must be a FilterDependsOn, got 'node'",
        ),
        (
            {"score_nodes": passing, "score_depends_on": ScoreDependsOn(cast(Any, None))},
            "score_depends_on: scope must be a Scope, got None",
        ),
    ],
)
async def test_attributes_that_make_no_sense_are_refused_at_the_start(
    attributes: dict[str, Any], problem: str
) -> None:
    plugin = type("Plugin", (), {"name": "Odd", "bind": lambda *args: SUCCESS, **attributes})()
    with pytest.raises(ConfigError) as caught:
        async with cluster(plugins={"Odd": lambda args, handle: plugin}):
            pass
    assert caught.value.problems == (f'profile "default-scheduler": plugin "Odd": {problem}',)


async def test_a_plugin_that_cannot_be_built_is_refused_by_name() -> None:
    def factory(args: Any, handle: Any) -> Any:
        raise AttributeError("boom")

    with pytest.raises(ConfigError) as caught:
        async with cluster(plugins={"Odd": factory}):
            pass
    assert caught.value.problems == (
        'profile "default-scheduler": initializing plugin "Odd": AttributeError: boom',
    )

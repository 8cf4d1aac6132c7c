"""Fakes do as they are told, and only where they are told anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ksched.configuration.extension_points import EXTENSION_POINTS, FILTER, RESERVE
from ksched.framework import SUCCESS, CycleState, unschedulable
from ksched.framework.runtime.plugin_contract import implementation
from ksched.testing import NEVER, After, Call, FakePlugin, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter

STATE = CycleState()
BENCH = PluginBench(nodes=[make_node("n1").obj()])
POD = BENCH.pod_info(make_pod("web").obj())


def ask(plugin: Any, method: str, *args: Any) -> Any:
    return getattr(plugin, method)(*args)


def test_a_fake_has_the_points_it_has_answers_for() -> None:
    plugin = FakePlugin("Fake", filter=SUCCESS, reserve=SUCCESS)
    found = [point for point in EXTENSION_POINTS if implementation(plugin, point)]
    assert found == [FILTER, RESERVE]
    assert ask(plugin, "unreserve", STATE, POD, "n1") is None


def test_a_method_that_no_plugin_has_is_refused() -> None:
    with pytest.raises(TypeError, match=r"fake plugin Fake: no such methods: fliter"):
        FakePlugin("Fake", fliter=SUCCESS)


def test_answers_are_returned_raised_or_asked_for() -> None:
    plugin = FakePlugin("Fake", filter=unschedulable("no"))
    answers = run_filter(plugin, make_pod().obj(), nodes=[make_node("n1").obj()])
    assert answers["n1"].reasons == ("no",)
    plugin.answers["filter"] = ValueError("boom")
    with pytest.raises(ValueError, match="boom"):
        ask(plugin, "filter", STATE, POD, None)
    plugin.answers["filter"] = KeyError
    with pytest.raises(KeyError):
        ask(plugin, "filter", STATE, POD, None)
    plugin.answers["filter"] = lambda state, pod, node: pod.name
    assert ask(plugin, "filter", STATE, POD, None) == "web"


async def test_answers_may_come_later_or_never() -> None:
    plugin = FakePlugin("Fake", permit=After(5, SUCCESS), bind=NEVER)
    assert await ask(plugin, "permit", STATE, POD, "n1") == SUCCESS
    assert asyncio.get_running_loop().time() == 5
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1e6):
            await ask(plugin, "bind", STATE, POD, "n1")
    plugin.answers["permit"] = ValueError("boom")
    with pytest.raises(ValueError, match="boom"):
        await ask(plugin, "permit", STATE, POD, "n1")


def test_calls_are_noted_in_order_across_fakes() -> None:
    journal: list[Call] = []
    one = FakePlugin("One", journal=journal, reserve=SUCCESS)
    two = FakePlugin("Two", journal=journal, reserve=SUCCESS, sort_key=0)
    ask(one, "reserve", STATE, POD, "n1")
    ask(two, "reserve", STATE, POD, "n1")
    ask(one, "unreserve", STATE, POD, "n1")
    assert [(call.plugin, call.method) for call in journal] == [
        ("One", "reserve"),
        ("Two", "reserve"),
        ("One", "unreserve"),
    ]
    assert one.calls("unreserve") == [Call("One", "unreserve", "default/web", "n1")]
    assert len(one.calls()) == 2

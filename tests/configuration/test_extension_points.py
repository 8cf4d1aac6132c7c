"""The extension points are one table; configuration, checks, calls, metrics and fakes read it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from ksched.configuration import extension_points
from ksched.configuration.extension_points import (
    EXTENSION_POINTS,
    LIFECYCLE,
    MAY_BE_ASYNC,
    NEEDED_BESIDE,
    OF_NO_POINT,
    QUEUE_SORT,
    ExtensionPoint,
)
from ksched.configuration.plugins import MULTI_POINT, Plugins
from ksched.framework import SUCCESS, PostFilterResult, interface, unschedulable
from ksched.framework.runtime.plugin_contract import find_problems, implementation
from ksched.metrics import Metrics
from ksched.testing import FakePlugin, cluster, make_pod
from lab.source_tree import ROOT

WITH_METHODS = [point for point in EXTENSION_POINTS if point.methods]
ANSWERS = {"post_filter": PostFilterResult(unschedulable("no")), "score": 0}


@pytest.mark.parametrize("point", EXTENSION_POINTS, ids=repr)
def test_configurations_have_its_key(point: ExtensionPoint) -> None:
    assert Plugins.model_fields[point.field].alias == point.key
    assert Plugins.model_fields[point.field].description == point.about


def test_configurations_have_no_other_key_but_multi_point() -> None:
    keys = [field.alias for field in Plugins.model_fields.values()]
    assert keys == [*(point.key for point in EXTENSION_POINTS), MULTI_POINT]


@pytest.mark.parametrize("point", WITH_METHODS, ids=repr)
def test_the_contract_has_its_methods(point: ExtensionPoint) -> None:
    columnar = getattr(interface, f"Columnar{point.interface}", object)
    described = {*vars(getattr(interface, point.interface)), *vars(columnar)}
    assert described >= set(point.methods)


def test_every_method_is_in_the_contract_and_no_other() -> None:
    protocols = [value for name, value in vars(interface).items() if inspect.isclass(value)]
    described = {
        name
        for protocol in protocols
        if protocol.__module__ == interface.__name__ and getattr(protocol, "_is_protocol", False)
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    told_in_prose = {"rank", "pre_bind_pre_flight", "sweep"}
    assert described | told_in_prose == MAY_BE_ASYNC.keys() | set(LIFECYCLE)
    assert {one.name for one in OF_NO_POINT}.isdisjoint(NEEDED_BESIDE)


@pytest.mark.parametrize("point", WITH_METHODS, ids=repr)
def test_fakes_implement_it_and_start_up_refuses_async_where_nothing_waits(
    point: ExtensionPoint,
) -> None:
    async def later(*args: object) -> None: ...

    for method in point.methods:
        answers: dict[str, Any] = {method: SUCCESS}
        fake = FakePlugin("Fake", **answers)
        assert [one for one in EXTENSION_POINTS if implementation(fake, one)] == [point]
        setattr(fake, method, later)
        refused = f"{method} must not be async" in list(find_problems("Fake", fake))
        assert refused is not point.may_be_async


async def test_metrics_have_its_label() -> None:
    answers: dict[str, Any] = {
        method: ANSWERS.get(method, SUCCESS)
        for point in WITH_METHODS
        for method in point.methods[-1:]
        if point is not QUEUE_SORT
    }
    fake = FakePlugin("Fake", **answers)
    metrics = Metrics()
    async with cluster(nodes=2, plugins=[fake], metrics=metrics) as c:
        await c.create(make_pod("web"))
        await c.settle()
        await c.create(make_pod("large").req(cpu="999"))
        await c.settle()
    text = generate_latest(metrics).decode()
    found = set(re.findall(r'extension_point_duration_seconds_count{extension_point="(\w+)"', text))
    not_timed = {"PreEnqueue", "QueueSort"}
    assert found == {point.label for point in WITH_METHODS} - not_timed


NEW_POINT = """
import sys, types
module = types.ModuleType("ksched.configuration.extension_points")
sys.modules[module.__name__] = module
exec(sys.stdin.read(), vars(module))

from ksched.configuration.model import Profile
from ksched.configuration.plugins import Plugin, PluginSet, Plugins
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.runtime.framework import Framework
from ksched.queue.hints import registrations
from ksched.testing import FakePlugin
from types import SimpleNamespace
from ksched.cache.listers import Listers
from ksched.clock import LoopClock

fake = FakePlugin("Fake", after_bind=None)
handle = SimpleNamespace(listers=Listers(), clock=LoopClock())
plugins = Plugins.model_validate({"afterBind": {"enabled": [{"name": "Fake"}]}})
profile = Profile(scheduler_name="s", plugins=plugins)
framework = Framework(profile, {**IN_TREE, "Fake": fake}, handle)
(hook,) = framework.hooks[module.AFTER_BIND]
print(hook.activity, len(registrations([fake])) > 5)
"""


def test_a_new_row_is_all_that_the_rest_needs() -> None:
    """Configuration, checks, hooks, wake-ups and fakes follow; a protocol and a call remain."""
    source = Path(inspect.getfile(extension_points)).read_text()
    row = '    ExtensionPoint("afterBind", "", ("after_bind",), rejects_pods=True),\n)\n'
    before, after = source.split("    PLACEMENT_SCORE,\n)\n")
    changed = f"{before}    PLACEMENT_SCORE,\n{row}{after}\nAFTER_BIND = EXTENSION_POINTS[-1]\n"
    ran = subprocess.run(
        [sys.executable, "-c", NEW_POINT],
        check=False,
        input=changed,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == 'running AfterBind plugin "Fake" True\n', ran.stderr

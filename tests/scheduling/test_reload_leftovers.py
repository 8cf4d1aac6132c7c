"""What a reload leaves behind of the configuration that does not decide: nothing."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from ksched.api.objects import ObjectMeta, PodDisruptionBudget
from ksched.api.watched_kinds import watched_kind
from ksched.errors import ConfigError
from ksched.framework import (
    SUCCESS,
    FilterDependsOn,
    NodeRows,
    Scope,
    Status,
    Verdicts,
)
from ksched.testing import Cluster, cluster, make_pod
from lab.configurations import profile, with_args, without

NAME = "default-scheduler"


class Curious:
    """Follows objects; fails at the stage that its arguments name."""

    name = "Curious"
    made: ClassVar[list[weakref.ref[Curious]]]
    told: ClassVar[list[str]]

    def __init__(self, args: Any, handle: Any) -> None:
        self.args = args or {}
        type(self).made.append(weakref.ref(self))
        handle.listers.require(PodDisruptionBudget).follow(self.changed)
        if self.args.get("fails") == "building":
            raise ValueError("cannot be built")

    def changed(self, key: str) -> None:
        self.told.append(f"{self.args.get('label')} {key}")

    async def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
        return SUCCESS

    def start(self, handle: Any) -> None:
        if self.args.get("fails") == "starting":
            raise ValueError("cannot start")


@pytest.fixture
def curious() -> type[Curious]:
    class Fresh(Curious):
        made: ClassVar[list[weakref.ref[Curious]]] = []
        told: ClassVar[list[str]] = []

    return Fresh


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """As for the objects of a daemon's start, which the collector does not see.

    Nothing is logged either: records with tracebacks are kept by pytest.
    """
    gc.collect()
    gc.disable()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.enable()


def of(label: str, **args: Any) -> dict[str, Any]:
    return with_args("Curious", label=label, **args)


async def reload_refused(c: Cluster, config: dict[str, Any], why: str) -> None:
    # Not pytest.raises: the frames of what it caught would keep everything.
    try:
        await c.reload(config)
    except ConfigError as refused:
        text = str(refused)
    else:
        text = "not refused"
    assert why in text


def put_budget(c: Cluster, name: str) -> None:
    listers = c.scheduler.listers.required()
    meta = ObjectMeta(name=name, namespace="default")
    listers[watched_kind(PodDisruptionBudget)].put(PodDisruptionBudget(metadata=meta))


@pytest.mark.usefixtures("no_garbage_collection")
async def test_a_replaced_profile_goes_without_the_garbage_collector(
    curious: type[Curious],
) -> None:
    async with cluster(2, config=of("a"), plugins={"Curious": curious}) as c:
        await c.create(*(make_pod(f"p{number}").req(cpu="10m") for number in range(3)))
        await c.settle()
        replaced = c.scheduler.profiles[NAME]
        parts = [replaced, replaced.framework, replaced.pipeline, replaced.metrics]
        known = [weakref.ref(part) for part in parts]
        del replaced, parts
        await c.reload(of("b"))
        await c.create(make_pod("web"))
        await c.advance(20)
        assert [one() for one in known] == [None] * 4
        assert [one() is None for one in curious.made] == [True, False]


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("fails", ["building", "starting"])
async def test_a_refused_candidate_goes_without_the_garbage_collector(
    curious: type[Curious], fails: str
) -> None:
    async with cluster(2, config=of("a"), plugins={"Curious": curious}) as c:
        await c.create(make_pod("big").req(cpu="99"))
        await c.settle()
        await reload_refused(c, of("b", fails=fails), "cannot")
        await c.settle()
        assert [one() is None for one in curious.made] == [False, True]


async def test_templates_forget_a_candidate_that_was_refused(curious: type[Curious]) -> None:
    async with cluster(2, config=of("a"), plugins={"Curious": curious}) as c:
        await c.create(make_pod("big").req(cpu="99"))
        await c.settle()
        [template] = {one.template for one in c.scheduler.pending}
        known = set(map(id, template.facts))
        config = of("b", fails="starting")
        config["profiles"][0]["pluginConfig"].append(
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}}
        )
        await reload_refused(c, config, "cannot start")
        assert known
        assert set(map(id, template.facts)) == known


async def test_plugins_that_are_gone_are_told_of_nothing(curious: type[Curious]) -> None:
    async with cluster(2, config=of("a"), plugins={"Curious": curious}) as c:
        await c.settle()
        put_budget(c, "one")
        for fails in ("building", "starting"):
            await reload_refused(c, of("refused", fails=fails), "cannot")
        del curious.told[:]
        put_budget(c, "two")
        assert curious.told == ["a default/two"]
        await c.reload(of("b"))
        await c.advance(20)
        del curious.told[:]
        put_budget(c, "three")
        assert curious.told == ["b default/three"]


@pytest.mark.usefixtures("no_garbage_collection")
async def test_replaced_plugins_of_the_tree_go_without_the_garbage_collector() -> None:
    changed = {
        "InterPodAffinity": {"hardPodAffinityWeight": 7},
        "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
        "NodeResourcesFit": {"ignoredResources": ["example.com/x"]},
        "PodTopologySpread": {"defaultingType": "List"},
        "VolumeBinding": {"bindTimeoutSeconds": 1},
    }
    config = profile(pluginConfig=[{"name": name, "args": changed[name]} for name in changed])
    async with cluster(2) as c:
        await c.create(*(make_pod(f"p{number}").req(cpu="10m") for number in range(3)))
        await c.create(make_pod("big").req(cpu="99"))
        await c.settle()
        plugins = c.scheduler.profiles[NAME].framework.plugins
        replaced = {name: weakref.ref(plugins[name]) for name in (*changed, "DefaultPreemption")}
        del plugins
        await c.reload(config)
        await c.create(make_pod("web"))
        await c.advance(400)
        assert [name for name, plugin in replaced.items() if plugin() is not None] == []


class Declared:
    """One object for all configurations, which declares what its verdicts depend on."""

    name = "Declared"

    def __init__(self) -> None:
        self.filter_depends_on = FilterDependsOn(Scope.NODE)

    def filter_nodes(self, state: Any, pod: Any, nodes: NodeRows) -> Verdicts:
        return Verdicts(np.zeros(len(nodes), np.int16), ())


async def test_an_object_that_is_enabled_again_has_its_declarations() -> None:
    plugin = Declared()
    declared = plugin.filter_depends_on
    async with cluster(2, plugins=[plugin]) as c:
        await c.reload(without("Declared"))
        await c.reload(profile())
        assert plugin.filter_depends_on is declared

"""Kinds that plugins bring along: declared, watched, and awaited.

Covers ``ksched.scheduling.assembly`` and ``ksched.testing.custom_resources``.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from msgspec import Struct

from ksched.api import watched_kinds
from ksched.api.objects import Pod
from ksched.api.resources import ApiResource
from ksched.api.watched_kinds import event_resource
from ksched.errors import ConfigError
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Handle,
    ObjectMeta,
    Status,
    Unstructured,
    WatchedKind,
    pending,
)
from ksched.queue.places import Place
from ksched.testing import Cluster, cluster, custom_resource_definition, make_pod
from lab.documented_plugin import PAGE, examples


class Strict(Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, str] = {}

    def __post_init__(self) -> None:
        if "broken" in self.spec:
            raise KeyError("a fault of the plugin's")


TICKETS: WatchedKind[Unstructured] = WatchedKind.custom(
    Unstructured,
    group="example.com",
    version="v1",
    plural="tickets",
    kind="Ticket",
    namespaced=False,
)
STRICT = WatchedKind.custom(
    Strict, group="example.com", version="v1", plural="tickets", kind="Ticket", namespaced=False
)


class Gate:
    """Lets pods pass when the ticket of their name says so."""

    name = "Gate"

    def __init__(self, args: Any, handle: Handle) -> None:
        self.tickets = handle.listers.require(TICKETS)
        self.strict = handle.listers.require(STRICT)
        self.handle = handle

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [ClusterEventWithHint(ClusterEvent(TICKETS.event_resource, Action.ALL))]

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
        ticket = self.tickets.get(pod.name)
        return SUCCESS if ticket and ticket.object["spec"].get("valid") else pending("no ticket")


def ticket(name: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "example.com/v1", "kind": "Ticket"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def gate(c: Cluster, name: str = "Gate") -> Gate:
    plugin = c.scheduler.profiles["default-scheduler"].framework.plugins[name]
    assert isinstance(plugin, Gate)
    return plugin


def test_the_page_tells_the_truth() -> None:
    names: dict[str, Any] = {}
    for code in examples():
        exec(compile(code, PAGE.name, "exec", dont_inherit=True), names)
    names["test_a_pod_waits_for_its_release"]()


async def test_a_pod_is_woken_by_the_change_it_waits_for() -> None:
    async with cluster(nodes=1, plugins={"Gate": Gate}, start=False) as c:
        await c.create(custom_resource_definition(TICKETS))
        async with c.scheduler:
            await c.create(make_pod("web"))
            await c.settle()
            assert c.place("web") is Place.UNSCHEDULABLE
            await c.create(ticket("web"))
            await c.settle()
            assert c.story("web")[-3].cause == "tickets.v1.example.comAdd"
            assert c.bound("web") is None
            await c.replace(ticket("web", valid=True))
            await c.settle()
            assert c.bound("web") == "n1"


async def test_a_kind_that_is_not_served_has_no_objects_until_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with cluster(nodes=1, plugins={"Gate": Gate}) as c:
            await c.create(make_pod("web"))
            await c.advance(300)
            assert "no ticket" in c.message("web")
            assert c.scheduler.watches.health.problem() == "", "it is no fault of the watch"
            asked = [one for one in c.requests if "tickets" in one.path]
            assert 2 * 5 <= len(asked) <= 2 * 20, "for each declaration once in 30 to 60 s"
            await c.create(custom_resource_definition(TICKETS), ticket("web", valid=True))
            await c.advance(61)
            assert c.bound("web") == "n1"
    said = [one.message for one in caplog.records if "serve" in one.message]
    assert sorted(set(said)) == [
        "API server does not serve this kind, it has no objects until it does",
        "API server serves this kind now",
    ]
    assert len(said) == 4, "for each declaration once"


async def test_objects_vanish_with_their_definition() -> None:
    async with cluster(nodes=1, plugins={"Gate": Gate}) as c:
        await c.create(custom_resource_definition(TICKETS), ticket("a", valid=True))
        await c.advance(61)
        assert gate(c).tickets.get("a")
        await c.remove(custom_resource_definition(TICKETS))
        await c.advance(1)
        assert not list(gate(c).tickets)
        await c.create(custom_resource_definition(TICKETS), ticket("b"))
        await c.advance(61)
        assert [one.metadata.name for one in gate(c).tickets] == ["b"]


async def test_an_object_that_breaks_a_plugins_struct_costs_itself() -> None:
    async with cluster(nodes=1, plugins={"Gate": Gate}) as c:
        await c.create(custom_resource_definition(TICKETS))
        await c.create(ticket("good", a="b"), ticket("bad", broken="yes"), ticket("odd", a=1))
        await c.advance(61)
        assert {one.metadata.name for one in gate(c).strict} == {"good"}
        assert len(gate(c).tickets) == 3


async def test_a_plugin_that_registers_for_nothing_is_woken_by_kinds_of_plugins_too() -> None:
    class Waits(Gate):
        name = "Waits"

        def __getattribute__(self, name: str) -> Any:
            if name == "events_to_register":
                raise AttributeError(name)
            return super().__getattribute__(name)

    async with cluster(nodes=1, plugins={"Waits": Waits}, start=False) as c:
        await c.create(custom_resource_definition(TICKETS))
        async with c.scheduler:
            await c.create(make_pod("web"))
            await c.settle()
            await c.create(ticket("web", valid=True))
            await c.advance(5)
            assert c.bound("web") == "n1"


class Lane(Struct, frozen=True):
    metadata: ObjectMeta


async def test_a_row_in_the_table_of_kinds_is_all_that_a_plugin_in_the_tree_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change "a new watched kind" of docs/architecture.md, without further files."""
    resource = ApiResource("roads.example", "v1", "lanes", "Lane", namespaced=False)
    row = watched_kinds.WatchedKind(resource, Lane, "roads.example/Lane", must_be_served=False)
    rows = (*watched_kinds.WATCHED_KINDS, row)
    for module in list(sys.modules.values()):
        if hasattr(module, "WATCHED_KINDS"):
            monkeypatch.setattr(module, "WATCHED_KINDS", rows)
    monkeypatch.setattr(watched_kinds, "_BY_STRUCT", {one.struct: one for one in rows})

    class LaneFree:
        name = "LaneFree"

        def __init__(self, args: Any, handle: Handle) -> None:
            self.lanes = handle.listers.require(Lane)

        def events_to_register(self) -> list[ClusterEventWithHint]:
            return [ClusterEventWithHint(ClusterEvent(event_resource(Lane), Action.ADD))]

        def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
            return SUCCESS if self.lanes.get(pod.name) else pending("no lane")

    async with cluster(nodes=1, plugins={"LaneFree": LaneFree}, start=False) as c:
        await c.create(custom_resource_definition(row))
        async with c.scheduler:
            await c.create(make_pod("web"))
            await c.settle()
            assert c.place("web") is Place.UNSCHEDULABLE
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            await c.create({**kind, "metadata": {"name": "web"}})
            await c.settle()
            assert c.bound("web") == "n1"
            assert any(one.cause == "roads.example/LaneAdd" for one in c.story("web"))


# -- mistakes -------------------------------------------------------------------------------------


class Unwatched:
    name = "Unwatched"

    def __init__(self, args: Any, handle: Handle) -> None:
        """Forgets to require the kind."""

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [ClusterEventWithHint(ClusterEvent(TICKETS.event_resource, Action.ADD))]


class RequiresPods:
    name = "RequiresPods"

    def __init__(self, args: Any, handle: Handle) -> None:
        handle.listers.require(Pod)


class RequiresUndeclared:
    name = "RequiresUndeclared"

    def __init__(self, args: Any, handle: Handle) -> None:
        handle.listers.require(Strict)


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Unwatched, "nothing watches tickets.v1.example.com, require the kind in the constructor"),
        (
            RequiresPods,
            "pods and nodes have no lister, they are in handle.snapshot; handle.pending_pods",
        ),
        (RequiresUndeclared, "is no watched kind, declare one with WatchedKind.custom"),
    ],
)
async def test_a_mistake_is_told_at_the_start(plugin: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        async with cluster(nodes=1, plugins={plugin.name: plugin}):
            pass


async def test_a_kind_required_too_late_is_refused() -> None:
    async with cluster(nodes=1, plugins={"Gate": Gate}) as c:
        late = WatchedKind.custom(
            Unstructured, group="example.com", version="v1", plural="others", kind="Other"
        )
        with pytest.raises(ConfigError, match=r"others\.example\.com is required too late"):
            gate(c).handle.listers.require(late)
        assert gate(c).handle.listers.require(TICKETS) is gate(c).tickets

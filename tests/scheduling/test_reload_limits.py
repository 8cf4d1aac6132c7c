"""What cannot change while a scheduler runs, and that a refused configuration changes nothing."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import pytest

from ksched.api.watched_kinds import Unstructured, WatchedKind
from ksched.configuration.model import ClientConnection, LeaderElection, SchedulerConfiguration
from ksched.errors import ConfigError
from ksched.scheduling.reload_limits import FIXED_FIELDS, FIXED_PLUGINS
from ksched.testing import cluster, make_node, make_pod
from lab.configurations import profile, with_args, without
from lab.source_tree import ROOT


class Licensed:
    """Starts only with a licence."""

    name = "Licensed"
    log: ClassVar[list[str]] = []

    def __init__(self, args: Any, handle: Any) -> None:
        self.has_licence = not args or args["licence"]

    def start(self, handle: Any) -> None:
        self.log.append(f"start {self.has_licence}")
        if not self.has_licence:
            raise RuntimeError("no licence")

    def stop(self) -> None:
        self.log.append(f"stop {self.has_licence}")

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        pass


def changed(**fields: Any) -> SchedulerConfiguration:
    fields.setdefault("client_connection", ClientConnection(qps=-1.0))
    return SchedulerConfiguration(**fields)


class OtherSort:
    name = "OtherSort"

    def __init__(self, args: Any, handle: Any) -> None:
        pass

    def sort_key(self, queued: Any) -> Any:
        return queued.timestamp


class Curious:
    """Reads a kind that nothing watches."""

    name = "Curious"

    def __init__(self, args: Any, handle: Any) -> None:
        if args and args.get("reads"):
            handle.listers.require(
                WatchedKind.custom(
                    Unstructured, group="example.com", version="v1", plural="others", kind="Other"
                )
            )


SORT = {"queueSort": {"enabled": [{"name": "OtherSort"}], "disabled": [{"name": "*"}]}}
GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}
EXTENDER = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter"}

REFUSALS: dict[str, tuple[Any, str]] = {
    "leaderElection": (
        changed(leader_election=LeaderElection(resource_name="mine")),
        "leaderElection.resourceName cannot change while the scheduler runs",
    ),
    "clientConnection": (
        changed(client_connection=ClientConnection(qps=7.0)),
        "clientConnection.qps cannot change while the scheduler runs",
    ),
    "extenders": ({"extenders": [EXTENDER]}, "extenders cannot change while"),
    "parallelism": (changed(parallelism=3), "parallelism cannot change while"),
    "delayCacheUntilActive": (
        changed(delay_cache_until_active=True),
        "delayCacheUntilActive cannot change while",
    ),
    "names": (
        {"profiles": [{"schedulerName": "other"}]},
        "profiles: their names and their order .*: got other, wanted default-scheduler",
    ),
    "more profiles": (
        {"profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "b"}]},
        "profiles: their names",
    ),
    "queueSort": (profile(plugins=SORT), "queueSort cannot change while"),
    "GangScheduling": (profile(plugins=GANGS), 'plugin "GangScheduling", its arguments'),
    "DynamicResources": (without("DynamicResources"), 'plugin "DynamicResources", its arg'),
    "a watch": (with_args("Curious", reads=True), "others.example.com is required too late"),
    "start": (with_args("Licensed", licence=False), "Licensed.*no licence"),
    "arguments": (
        with_args("NodeResourcesFit", scoringStrategy={"type": "Nonsense"}),
        "scoringStrategy",
    ),
    "no such plugin": (
        profile(plugins={"filter": {"enabled": [{"name": "Nobody"}]}}),
        '"Nobody" does not exist',
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refused_configuration_changes_nothing(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, problem = REFUSALS[case]
    Licensed.log.clear()
    outsiders: dict[str, Any] = {"Licensed": Licensed, "Curious": Curious}
    start = profile()
    if case == "queueSort":
        outsiders["OtherSort"] = OtherSort
        start = profile(plugins={"queueSort": {"disabled": [{"name": "OtherSort"}]}})
    async with cluster([make_node("n1").capacity(cpu="1")], config=start, plugins=outsiders) as c:
        await c.create(make_pod("web").req(cpu="1"), make_pod("waits").req(cpu="1"))
        await c.advance(20)
        before = dict(c.scheduler.profiles), c.scheduler.configuration, c.place("waits")
        with caplog.at_level(logging.ERROR), pytest.raises(ConfigError, match=problem):
            await c.reload(config)
        assert (dict(c.scheduler.profiles), c.scheduler.configuration, c.place("waits")) == before
        assert c.queued("waits").attempts == 1
        await c.delete("web", grace_seconds=0)
        await c.advance(3)
        assert c.bound("waits") == "n1"
        # What had been started for it is stopped.
        assert Licensed.log.count("start False") == Licensed.log.count("stop False")


def test_every_fixed_field_and_plugin_is_among_the_refusals() -> None:
    assert set(FIXED_FIELDS) <= set(REFUSALS)
    assert {"GangScheduling", "DynamicResources"} <= set(FIXED_PLUGINS)


def test_the_page_lists_what_is_refused() -> None:
    page = (ROOT / "docs/reload.md").read_text().partition("## What cannot change")[2]
    assert all(f"`{field}`" in page for field in FIXED_FIELDS)
    assert all(plugin in page for plugin in FIXED_PLUGINS)

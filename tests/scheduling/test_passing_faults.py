"""A plugin that fails once must not leave wrong answers behind; nor must a late change be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ksched.errors import ApiError, Unavailable
from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    FilterDependsOn,
    NodeRows,
    PostFilterResult,
    Resource,
    Scope,
    ScoreDependsOn,
    Status,
    Verdicts,
    unschedulable,
)
from ksched.queue.places import Place
from ksched.testing import After, FakePlugin, cluster, make_pod


class NotOnFirst:
    """Keeps pods away from n1."""

    name = "NotOnFirst"
    filter_depends_on = FilterDependsOn(Scope.NODE)

    def filter_nodes(self, state: Any, pod: Any, nodes: NodeRows) -> Verdicts:
        rejected = np.array([info.name == "n1" for info in nodes.infos])
        return Verdicts.rejecting(rejected, unschedulable("not here"))


class Moody:
    """Raises while ``is_broken``; its filter takes part only while ``is_asked``."""

    name = "Moody"
    filter_depends_on = FilterDependsOn(Scope.NODE)
    score_depends_on = ScoreDependsOn(Scope.NODE)
    is_asked, is_broken = True, False

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
        return SUCCESS if self.is_asked else SKIP

    def filter_nodes(self, state: Any, pod: Any, nodes: NodeRows) -> Verdicts:
        if self.is_broken:
            raise RuntimeError("boom")
        return Verdicts.passing(len(nodes))

    def score_nodes(self, state: Any, pod: Any, nodes: NodeRows) -> NDArray[np.int64]:
        if self.is_broken:
            raise RuntimeError("boom")
        return np.zeros(len(nodes), np.int64)


class PrefersThird:
    name = "PrefersThird"
    score_depends_on = ScoreDependsOn(Scope.NODE)

    def score_nodes(self, state: Any, pod: Any, nodes: NodeRows) -> NDArray[np.int64]:
        return np.array([100 * (info.name == "n3") for info in nodes.infos], np.int64)


async def test_kept_verdicts_are_complete_after_a_plugin_raised() -> None:
    moody = Moody()
    moody.is_asked = False
    async with cluster(nodes=1, plugins=[NotOnFirst(), moody]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        moody.is_asked = moody.is_broken = True
        await c.create(make_pod("b"))
        await c.advance(0.5)
        assert 'running "Moody" filter plugin' in (c.message("b") or "")
        moody.is_broken = False
        await c.advance(60)
        assert c.bound("a") is None
        assert c.bound("b") is None


async def test_kept_scores_are_complete_after_a_plugin_raised() -> None:
    moody = Moody()
    names = [{"name": "Moody", "weight": 1}, {"name": "PrefersThird", "weight": 1}]
    plugins = {"score": {"disabled": [{"name": "*"}], "enabled": names}}
    config = {"profiles": [{"plugins": plugins}]}
    async with cluster(nodes=4, config=config, plugins=[moody, PrefersThird()]) as c:
        await c.create(make_pod("a"))
        await c.settle()
        await c.add_nodes(1)
        moody.is_broken = True
        await c.create(make_pod("b"))
        await c.settle()
        assert c.bound("b") is None
        moody.is_broken = False
        await c.create(*(make_pod(f"c{number}") for number in range(8)))
        await c.advance(20)
        placed = {c.bound(name) for name in ("a", "b", *(f"c{number}" for number in range(8)))}
        assert placed == {"n3"}


async def test_an_update_while_the_pod_is_assumed_reaches_the_queue() -> None:
    """The second attempt's condition equals the first's, so no patch brings the update back."""
    label_added = ClusterEventWithHint(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL))

    def reserve(state: Any, pod: Any, node_name: str) -> Status:
        return SUCCESS if "ready" in pod.labels else unschedulable("label missing")

    plugin = FakePlugin("Slow", reserve=After(5.0, reserve), events_to_register=[label_added])
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.advance(10)
        while not (c.place("web") is Place.IN_FLIGHT and c.queued("web").attempts == 2):
            await c.advance(1)
        await c.patch("web", {"metadata": {"labels": {"ready": "yes"}}})
        await c.advance(30)
        assert c.bound("web") == "n1"


@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(FakePlugin("Odd", score=10**30), id="a score beyond any integer column"),
        pytest.param(
            FakePlugin("Odd", post_filter=PostFilterResult(SUCCESS, ["n1"])),  # type: ignore[arg-type]
            id="a nomination that is no name",
        ),
    ],
)
async def test_nonsense_of_the_wrong_size_or_kind_does_not_end_the_scheduler(
    plugin: FakePlugin,
) -> None:
    async with cluster(nodes=2, plugins=[plugin]) as c:
        await c.create(make_pod("huge").req(cpu="99"), make_pod("web"))
        await c.advance(3)
        plugin.answers.pop("score", None)
        await c.create(make_pod("next").node_selector({"kubernetes.io/hostname": "n1"}))
        await c.advance(3)
        assert c.bound("next") == "n1"


async def test_sort_keys_that_cannot_be_compared_keep_some_order() -> None:
    keys = {"a": None, "b": (1,), "c": "x", "d": (2,)}
    plugin = FakePlugin("Odd", sort_key=lambda queued: keys[queued.pod.name])
    sort = {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Odd"}]}}
    config = {"profiles": [{"plugins": sort}]}
    async with cluster(nodes=1, config=config, plugins=[plugin]) as c:
        await c.create(*(make_pod(name) for name in keys))
        await c.settle()
        assert {c.bound(name) for name in keys} == {"n1"}


async def test_what_is_no_pod_is_not_activated() -> None:
    def reserve(state: Any, pod: Any, node_name: str) -> Status:
        state.pods_to_activate["x"] = "default/x"
        return SUCCESS

    async with cluster(nodes=1, plugins=[FakePlugin("Odd", reserve=reserve)]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"


async def test_a_refused_look_after_a_failed_bind_does_not_hold_up_others() -> None:
    async with cluster(nodes=2) as c:
        bind = c.scheduler.client.bind

        async def refuse(*args: Any, **kwargs: Any) -> bytes:
            raise ApiError(403, "Forbidden", "pods is forbidden")

        async def bind_good_ones(namespace: str, name: str, *args: Any, **kwargs: Any) -> None:
            if name.startswith("bad"):
                raise Unavailable(0, "AnswerLost", "no answer")
            await bind(namespace, name, *args, **kwargs)

        c.scheduler.client.get = refuse  # type: ignore[method-assign]
        c.scheduler.client.bind = bind_good_ones  # type: ignore[method-assign]
        await c.create(*(make_pod(f"bad-{number}") for number in range(40)))
        await c.advance(5)
        await c.create(make_pod("good"))
        await c.advance(5)
        assert c.bound("good")


async def test_an_answer_that_is_no_pod_is_asked_for_again() -> None:
    async with cluster(nodes=1) as c:
        get, looks = c.scheduler.client.get, 0

        async def garbled_once(*args: Any, **kwargs: Any) -> bytes:
            nonlocal looks
            looks += 1
            return b"<html>proxy</html>" if looks == 1 else await get(*args, **kwargs)

        async def lose(*args: Any, **kwargs: Any) -> None:
            raise Unavailable(0, "AnswerLost", "no answer")

        bind = c.scheduler.client.bind
        c.scheduler.client.get = garbled_once  # type: ignore[method-assign]
        c.scheduler.client.bind = lose  # type: ignore[method-assign]
        await c.create(make_pod("web"))
        await c.advance(6)
        c.scheduler.client.bind = bind  # type: ignore[method-assign]
        await c.advance(30)
        assert looks >= 2
        assert c.bound("web") == "n1"

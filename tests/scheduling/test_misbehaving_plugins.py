"""A plugin that raises, talks nonsense or never answers: its pod says so, the others go on.

Covers ``ksched.framework.runtime.queue_sort`` too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pytest

from ksched.errors import ConfigError
from ksched.framework import (
    SUCCESS,
    PermitResult,
    PostFilterResult,
    PreFilterResult,
    Status,
    Verdicts,
    unschedulable,
    wait,
)
from ksched.queue.places import Place
from ksched.testing import NEVER, After, Checkers, FakePlugin, cluster, make_pod

ACTIVITY = {
    "pre_enqueue": 'running PreEnqueue plugin "Odd"',
    "pre_filter": 'running PreFilter plugin "Odd"',
    "filter": 'running "Odd" filter plugin',
    "filter_nodes": 'running "Odd" filter plugin',
    "post_filter": 'running PostFilter plugin "Odd"',
    "pre_score": 'running PreScore plugin "Odd"',
    "score": 'running Score plugins: plugin "Odd" failed with',
    "score_nodes": 'running Score plugins: plugin "Odd" failed with',
    "normalize": 'running Score plugins: plugin "Odd" failed with',
    "reserve": 'running Reserve plugin "Odd"',
    "permit": 'running Permit plugin "Odd"',
    "pre_bind_pre_flight": 'running PreBindPreFlight plugin "Odd"',
    "pre_bind": 'running PreBind plugin "Odd"',
    "bind": 'running Bind plugin "Odd"',
}
GOOD: dict[str, Any] = {
    "filter_nodes": lambda state, pod, nodes: Verdicts.passing(len(nodes)),
    "post_filter": PostFilterResult(unschedulable()),
    "score": 0,
    "score_nodes": lambda state, pod, nodes: np.zeros(len(nodes), np.int64),
    "normalize": lambda state, pod, nodes, scores: scores,
}
NEEDS: dict[str, dict[str, Any]] = {
    "normalize": {"score": 0},
    "pre_score": {"score": 0},
    "pre_bind_pre_flight": {"pre_bind": SUCCESS},
}
ODD_BINDS = {"bind": {"disabled": [{"name": "*"}], "enabled": [{"name": "Odd"}]}}


def odd(point: str, behaviour: Any) -> FakePlugin:
    """A plugin that behaves at all points but one, and there for all pods but one."""

    def answer(*args: Any) -> Any:
        pod = next(arg for arg in args if hasattr(arg, "labels"))
        if pod.name != "victim":
            good = GOOD.get(point, SUCCESS)
            return good(*args) if callable(good) else good
        if isinstance(behaviour, Exception):
            raise behaviour
        return behaviour(*args) if callable(behaviour) else behaviour

    plugin = FakePlugin("Odd", **{**NEEDS.get(point, {}), point: answer})
    if point == "bind":
        good_bind = answer

        async def bind(state: Any, pod: Any, node_name: str) -> Any:
            if pod.name != "victim":
                await plugin.handle.client.bind(pod.namespace, pod.name, pod.uid, node_name)
            return good_bind(state, pod, node_name)

        plugin.answers["bind"] = bind
    return plugin


async def check(point: str, plugin: FakePlugin, problem: str, seconds: float = 0) -> None:
    """Two pods: ``victim`` meets the fault, ``next`` must not notice."""
    config = {"profiles": [{"plugins": ODD_BINDS if point == "bind" else {}}]}
    async with cluster(nodes=2, config=config, plugins=[plugin]) as c:
        checkers = Checkers(c)
        # Too big for any node where the plugin is asked only about such pods.
        size = "100" if point == "post_filter" else "1"
        await c.create(make_pod("victim").req(cpu=size), make_pod("next").req(cpu="1"))
        await c.advance(seconds)
        assert c.bound("victim") is None
        text = f"{ACTIVITY[point]}: {problem}"
        condition = c.condition("victim")
        assert condition is not None
        if point == "post_filter":
            assert c.message("victim") == f"0/2 nodes are available: 2 Insufficient cpu. {text}"
            assert condition["reason"] == "Unschedulable"
        else:
            assert c.message("victim") == text
            assert condition["reason"] == "SchedulerError"
        assert c.bound("next") is not None
        checkers.check_books()


@pytest.mark.parametrize("point", ACTIVITY)
async def test_a_plugin_that_raises_is_named_and_its_traceback_logged_once(
    point: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        # Long enough for the victim to be tried several times.
        await check(point, odd(point, ValueError("boom")), "ValueError: boom", seconds=200)
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in tracebacks] == ["plugin failed"]
    assert tracebacks[0].__dict__["plugin"] == "Odd"


WRONG_STATUS = [
    pytest.param("yes", "returned 'yes', wanted a Status", id="text"),
    pytest.param(None, "returned None, wanted a Status", id="nothing"),
    pytest.param(
        unschedulable(5),  # type: ignore[arg-type]
        "returned (5,), wanted reasons that are text",
        id="reasons that are no text",
    ),
]
STATUS_POINTS = [
    "pre_enqueue",
    "pre_filter",
    "filter",
    "pre_score",
    "reserve",
    "permit",
    "pre_bind_pre_flight",
    "pre_bind",
]


@pytest.mark.parametrize("point", STATUS_POINTS)
@pytest.mark.parametrize(("nonsense", "problem"), WRONG_STATUS)
async def test_what_is_no_status_is_named(point: str, nonsense: Any, problem: str) -> None:
    await check(point, odd(point, nonsense), problem)


@pytest.mark.parametrize(
    ("point", "nonsense", "problem"),
    [
        pytest.param(
            "pre_filter",
            PreFilterResult(SUCCESS, ["n1"]),  # type: ignore[arg-type]
            "returned ['n1'], wanted a set of node names",
            id="a list of node names",
        ),
        pytest.param(
            "pre_filter",
            PreFilterResult("fine"),  # type: ignore[arg-type]
            "returned 'fine', wanted a Status",
            id="a result without status",
        ),
        pytest.param(
            "filter", Status(SUCCESS.code.ERROR, ("lost",)), "lost", id="a filter that fails"
        ),
        pytest.param("filter_nodes", None, "returned None, wanted Verdicts for 2 nodes", id="none"),
        pytest.param(
            "post_filter",
            SUCCESS,
            f"returned {SUCCESS!r:.100}, wanted a PostFilterResult",
            id="bare",
        ),
        pytest.param(
            "post_filter",
            PostFilterResult("fine"),  # type: ignore[arg-type]
            "returned 'fine', wanted a Status",
            id="post_filter without status",
        ),
        pytest.param("score", "high", "returned 'high', wanted a whole number", id="no number"),
        pytest.param("score", 1.5, "returned 1.5, wanted a whole number", id="a fraction"),
        pytest.param(
            "score_nodes",
            lambda state, pod, nodes: [1, 2],
            "returned [1, 2], wanted an array of 2 scores",
            id="a list",
        ),
        pytest.param(
            "permit",
            PermitResult(wait(), "soon"),  # type: ignore[arg-type]
            "returned 'soon', wanted more than 0 seconds to wait",
            id="waiting until soon",
        ),
        pytest.param(
            "permit",
            PermitResult(wait(), float("nan")),
            "returned nan, wanted more than 0 seconds to wait",
            id="waiting for nan",
        ),
        pytest.param(
            "permit",
            PermitResult(wait(), 0),
            "returned 0, wanted more than 0 seconds to wait",
            id="waiting for no time",
        ),
        pytest.param(
            "permit",
            wait("for the others"),
            "returned wait() without a time, "
            "wanted PermitResult(wait(), seconds) or permit_wait_seconds on the plugin",
            id="waiting without a time",
        ),
        pytest.param("bind", None, "returned None, wanted a Status", id="bind"),
    ],
)
async def test_other_nonsense_is_named(point: str, nonsense: Any, problem: str) -> None:
    await check(point, odd(point, nonsense), problem)


@pytest.mark.parametrize(
    "verdicts",
    [
        pytest.param(Verdicts(np.zeros(3, np.int16), ()), id="too many"),
        pytest.param(Verdicts([0, 1], ()), id="a list"),  # type: ignore[arg-type]
        pytest.param(Verdicts(np.zeros(2), ()), id="fractions"),  # type: ignore[arg-type]
    ],
)
async def test_verdicts_of_the_wrong_shape_are_named(verdicts: Verdicts) -> None:
    problem = f"returned {verdicts!r:.100}, wanted Verdicts for 2 nodes"
    await check("filter_nodes", odd("filter_nodes", verdicts), problem)


@pytest.mark.parametrize(
    ("verdicts", "problem"),
    [
        pytest.param(
            Verdicts(np.array([0, 2], np.int16), (unschedulable("no"),)),
            "returned array([0, 2], dtype=int16), wanted codes of 1 statuses",
            id="a code without a status",
        ),
        pytest.param(
            Verdicts(np.array([0, -1], np.int16), (unschedulable("no"),)),
            "returned array([ 0, -1], dtype=int16), wanted codes of 1 statuses",
            id="a negative code",
        ),
        pytest.param(
            Verdicts(np.array([0, 1], np.int16), ("no",)),  # type: ignore[arg-type]
            "returned 'no', wanted a Status",
            id="a status that is none",
        ),
    ],
)
async def test_verdicts_that_mean_nothing_are_named(verdicts: Verdicts, problem: str) -> None:
    await check("filter_nodes", odd("filter_nodes", verdicts), problem)


@pytest.mark.parametrize("score", [-1, 101])
async def test_a_score_out_of_range_is_named(score: int) -> None:
    async with cluster(nodes=2, plugins=[FakePlugin("Odd", score=score)]) as c:
        await c.create(make_pod("victim"))
        await c.settle()
        assert c.message("victim") == (
            f'running Score plugins: plugin "Odd" returns an invalid score {score}, '
            "it should in the range of [0, 100] after normalizing"
        )


ASYNC_POINTS = ["pre_filter", "post_filter", "reserve", "permit", "pre_bind", "bind"]


@pytest.mark.parametrize("point", ASYNC_POINTS)
async def test_a_plugin_that_never_answers_is_cut_off_and_named(point: str) -> None:
    answers: dict[str, Any] = {point: NEVER}
    plugin = FakePlugin("Odd", **answers)
    plugin.timeout_seconds = 5
    config = {"profiles": [{"plugins": ODD_BINDS if point == "bind" else {}}]}
    async with cluster(nodes=2, config=config, plugins=[plugin]) as c:
        checkers = Checkers(c)
        size = "100" if point == "post_filter" else "1"
        await c.create(make_pod("victim").req(cpu=size))
        await c.advance(5)
        assert c.message("victim").endswith(f"{ACTIVITY[point]}: no answer within 5s")
        # Whatever comes next is scheduled as soon as the plugin comes to its senses.
        plugin.answers[point] = GOOD.get(point, SUCCESS)
        if point != "bind":
            await c.create(make_pod("next").req(cpu="1"))
            await c.advance(5)
            assert c.bound("next") is not None
        checkers.check_books()


async def test_a_plugin_that_is_slow_but_in_time_is_waited_for() -> None:
    plugin = FakePlugin("Slow", pre_filter=After(29, SUCCESS))
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.advance(28)
        assert c.bound("web") is None
        await c.advance(1)
        assert c.bound("web") == "n1"


async def test_a_plugin_that_cancels_itself_fails_only_its_own_pod() -> None:
    async def waits_for_the_dead(state: Any, pod: Any, snapshot: Any) -> Status:
        if pod.name == "victim":
            dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            dead.cancel()
            await dead
        return SUCCESS

    plugin = FakePlugin("Odd", pre_filter=After(0, None))
    plugin.pre_filter = waits_for_the_dead  # type: ignore[attr-defined]
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("victim"), make_pod("next"))
        await c.settle()
        assert c.message("victim") == f"{ACTIVITY['pre_filter']}: CancelledError: "
        assert c.bound("next") == "n1"


async def test_post_bind_cannot_unbind(caplog: pytest.LogCaptureFixture) -> None:
    plugin = FakePlugin("Odd", post_bind=ValueError("boom"))
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("a"), make_pod("b"))
        await c.settle()
        assert (c.bound("a"), c.bound("b")) == ("n1", "n1")
        assert [event.reason for event in c.events("a")] == ["Scheduled"]
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_unreserve_that_raises_does_not_keep_the_others_from_undoing() -> None:
    first = FakePlugin("First", reserve=SUCCESS)
    broken = FakePlugin("Broken", reserve=SUCCESS, unreserve=ValueError("boom"))
    last = FakePlugin("Last", reserve=unschedulable("full"), events_to_register=[])
    async with cluster(nodes=1, plugins=[first, broken, last]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web") == "0/1 nodes are available: 1 full."
        assert len(first.calls("unreserve")) == 1
        checkers.check_books()


async def test_a_pod_that_pre_enqueue_fails_for_stays_gated_until_it_works() -> None:
    plugin = FakePlugin("Odd", pre_enqueue=ValueError("boom"))
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.place("web") is Place.GATED
        plugin.answers["pre_enqueue"] = SUCCESS
        await c.advance(100)
        assert c.bound("web") == "n1"


async def test_pods_that_cannot_be_sorted_come_last(caplog: pytest.LogCaptureFixture) -> None:
    def sort_key(queued: Any) -> Any:
        if queued.pod.name.startswith("victim"):
            raise ValueError("boom")
        return queued.pod.name

    plugin = FakePlugin("Odd", sort_key=sort_key, pre_filter=After(1, SUCCESS))
    sort = {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Odd"}]}}
    config = {"profiles": [{"plugins": {**sort, "preFilter": {"enabled": [{"name": "Odd"}]}}}]}
    async with cluster(nodes=1, config=config, plugins=[plugin]) as c:
        await c.create(make_pod("first"))
        await c.settle()
        await c.create(make_pod("victim-2"), make_pod("b"), make_pod("victim-1"), make_pod("a"))
        await c.advance(10)
        tried = [call.pod for call in plugin.calls("pre_filter")]
        assert tried == [f"default/{name}" for name in ("first", "a", "b", "victim-2", "victim-1")]
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        pytest.param(
            FakePlugin("Odd", filter=After(1, SUCCESS)),
            'plugin "Odd": filter must not be async',
            id="async where nobody waits",
        ),
        pytest.param(
            type("NoName", (), {"filter": lambda *args: SUCCESS})(),
            'plugin "Odd": its name must be the one it is registered under, got None',
            id="nameless",
        ),
        pytest.param(
            type("Half", (), {"name": "Odd", "reserve": lambda *args: SUCCESS})(),
            'plugin "Odd": reserve needs an unreserve that undoes it',
            id="reserve without unreserve",
        ),
        pytest.param(
            type(
                "Late", (), {"name": "Odd", "timeout_seconds": "1m", "bind": lambda *a: SUCCESS}
            )(),
            "plugin \"Odd\": timeout_seconds must be a positive number, got '1m'",
            id="nonsense timeout",
        ),
        pytest.param(
            type(
                "Hasty", (), {"name": "Odd", "permit_wait_seconds": 0, "permit": lambda *a: wait()}
            )(),
            'plugin "Odd": permit_wait_seconds must be a positive number, got 0',
            id="waits for no time",
        ),
    ],
)
async def test_what_can_be_known_at_the_start_is_refused_at_the_start(
    plugin: Any, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with cluster(plugins={"Odd": plugin}):
            pass
    assert caught.value.problems == (f'profile "default-scheduler": {problem}',)

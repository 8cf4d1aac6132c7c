"""Whatever a plugin returns or raises, only the attempt that met it fails, and says why.

Beside each victim goes a pod for which the plugin behaves; it must be bound.
"""

# mypy: disable-error-code="arg-type,list-item"
# Wrong types are what these tests are about.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ksched.framework import (
    SUCCESS,
    FilterDependsOn,
    PostFilterResult,
    PreFilterResult,
    Scope,
    ScoreDependsOn,
    Status,
    Verdicts,
    unschedulable,
)
from ksched.framework.status import Code
from ksched.framework.verdicts import ChangedVerdicts, ClassScores
from ksched.testing import NEVER, Checkers, FakePlugin, cluster, make_node, make_pod

TWO = (make_node("n1"), make_node("node2"))
CRITICAL = "system-cluster-critical"
FILTER = 'running "Odd" filter plugin: '
SCORE = 'running Score plugins: plugin "Odd" failed with: '

GOOD: dict[str, Callable[..., Any]] = {
    "filter_nodes": lambda state, pod, nodes: Verdicts.passing(len(nodes)),
    # Unequal: otherwise one node stands for all, and normalize is asked about that one alone.
    "score_nodes": lambda state, pod, nodes: np.array([len(i.name) for i in nodes.infos], np.int64),
    "score": lambda state, pod, node: 0,
    "normalize": lambda state, pod, nodes, scores: np.zeros(len(scores), np.int64),
}
NEEDS: dict[str, tuple[str, ...]] = {
    "normalize": ("score_nodes",),
    "pre_score": ("score",),
    "unreserve": ("reserve",),
    "pre_bind_pre_flight": ("pre_bind",),
}


class Odd:
    """Behaves at all points but one, and there for all pods but ``victim``."""

    name = "Odd"

    def __init__(
        self, point: str, behaviour: Any, scope: Scope = Scope.POD, **methods: Any
    ) -> None:
        for needed in NEEDS.get(point, ()):
            setattr(self, needed, GOOD.get(needed, lambda *args: SUCCESS))

        def answer(*args: Any) -> Any:
            pod = next((arg for arg in args if hasattr(arg, "labels")), None)
            if pod is not None and pod.name != "victim":
                return GOOD.get(point, lambda *args: SUCCESS)(*args)
            return behaviour(*args) if callable(behaviour) else behaviour

        setattr(self, point, answer)
        if point == "reserve":
            self.unreserve = lambda *args: None
        if hasattr(self, "filter_nodes"):
            self.filter_depends_on = FilterDependsOn(scope, **methods)
        if hasattr(self, "score_nodes"):
            self.score_depends_on = ScoreDependsOn(scope, **methods)

    def __call__(self, args: Any, handle: Any) -> Odd:
        self.handle = handle
        return self


async def told(plugin: Any, size: str = "1", *, spares_others: bool = True) -> str:
    """What the victim is told."""
    async with cluster(nodes=TWO, plugins={"Odd": plugin}) as c:
        checkers = Checkers(c)
        # Of another template: what is kept for one must not spoil the other.
        await c.create(make_pod("victim").req(cpu=size), make_pod("next").req(cpu="2"))
        await c.settle()
        assert c.bound("victim") is None
        if spares_others:
            assert c.bound("next") is not None
        checkers.check_books()
        return c.message("victim")


def raising(kind: type[BaseException]) -> Callable[..., Any]:
    def raises(*args: Any) -> Any:
        raise kind("boom")

    return raises


# -- exceptions that are no ``Exception``

KINDS = [asyncio.CancelledError, SystemExit, GeneratorExit, KeyboardInterrupt]
POINTS = ["pre_enqueue", "pre_filter", "filter", "filter_nodes", "pre_score", "score"]
POINTS += ["score_nodes", "normalize", "reserve", "permit", "pre_bind_pre_flight", "pre_bind"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_method_can_neither_cancel_nor_end_the_scheduler(
    point: str, kind: type[BaseException]
) -> None:
    assert (await told(Odd(point, raising(kind)))).endswith(f": {kind.__name__}: boom")


@pytest.mark.parametrize("point", ["pre_filter", "reserve", "permit", "pre_bind"])
@pytest.mark.parametrize("kind", KINDS)
async def test_neither_can_an_async_method(point: str, kind: type[BaseException]) -> None:
    async def raises(state: Any, pod: Any, other: Any) -> Status:
        await asyncio.sleep(0)
        if pod.name == "victim":
            raise kind("boom")
        return SUCCESS

    plugin = Odd(point, None)
    setattr(plugin, point, raises)
    assert (await told(plugin)).endswith(f": {kind.__name__}: boom")


@pytest.mark.parametrize("kind", KINDS)
async def test_neither_can_who_is_only_told(kind: type[BaseException]) -> None:
    told_only = FakePlugin("Odd", post_bind=raising(kind))
    undoes = FakePlugin("Undoes", reserve=SUCCESS, unreserve=raising(kind))
    full = unschedulable("full")
    fails = FakePlugin("Fails", reserve=lambda s, pod, n: full if pod.name == "victim" else SUCCESS)
    async with cluster(nodes=1, plugins=[told_only, undoes, fails]) as c:
        await c.create(make_pod("victim"), make_pod("next"))
        await c.settle()
        assert c.message("victim") == "0/1 nodes are available: 1 full."
        assert c.bound("next") == "n1"


async def test_a_scheduler_that_is_stopped_while_a_plugin_works_stops() -> None:
    plugin = FakePlugin("Slow", pre_filter=NEVER)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert len(plugin.calls("pre_filter")) == 1
    assert c.message("web") == ""


# -- what cannot be told


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        pytest.param(Unprintable(), "Unprintable: (no text)", id="no text"),
        pytest.param(ValueError("x" * 5000), "ValueError: " + "x" * 1000, id="endless"),
        pytest.param(ValueError("a\udc80"), "ValueError: a\\udc80", id="half a character"),
    ],
)
async def test_an_exception_is_told_as_well_as_it_can(
    problem: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is captured of the log goes through a pipe that takes no half characters.
    monkeypatch.setattr(logging.getLogger("ksched"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("ksched.framework.runtime.guard"), "disabled", True)

    def raises(*args: Any) -> Any:
        raise problem

    assert await told(Odd("filter", raises)) == FILTER + text


async def test_what_cannot_be_printed_is_named_by_its_type() -> None:
    broken = type("Broken", (), {"__repr__": lambda self: 1 / 0})()
    message = await told(Odd("filter", lambda *args: broken))
    assert message.startswith(f"{FILTER}returned <Broken")
    assert message.endswith("wanted a Status")


async def test_what_breaks_while_it_is_looked_at_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    epochs = iter(range(1, 1000))

    class Epoch:
        def __ne__(self, other: object) -> bool:
            raise ValueError(f"boom {next(epochs) // 1000}")

    plugin = Odd(
        "filter_nodes", GOOD["filter_nodes"], Scope.CLUSTER, epoch=lambda state, pod: Epoch()
    )
    with caplog.at_level(logging.ERROR):
        async with cluster(nodes=1, plugins={"Odd": plugin}) as c:
            await c.create(*(make_pod(f"big{number}").req(cpu="100") for number in range(4)))
            await c.settle()
            # The first of them fits nowhere, and that would be kept for the others.
            assert "1 Insufficient cpu" in c.message("big0")
            assert "(ValueError: boom 0), wanted what can be compared" in c.message("big3")
            await c.create(make_pod("next"))
            await c.settle()
            assert c.bound("next") == "n1"
    assert len([record for record in caplog.records if record.exc_info]) == 1


# -- statuses


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        pytest.param(
            Status(Code.UNSCHEDULABLE, ["no"]),
            "returned ['no'], wanted reasons that are text",
            id="a list of reasons",
        ),
        pytest.param(
            Status(Code.UNSCHEDULABLE, "no"),
            "returned 'no', wanted reasons that are text",
            id="reasons that are one text",
        ),
        pytest.param(
            unschedulable("a\udc80"),
            "returned ('a\\udc80',), wanted reasons that are text",
            id="half a character",
        ),
        pytest.param(
            Status([1]),
            "returned [1], wanted a Code",
            id="a code that is none",
        ),
    ],
)
@pytest.mark.parametrize("point", ["pre_enqueue", "pre_filter", "filter", "reserve", "permit"])
async def test_a_status_with_nonsense_in_it_is_named(
    point: str, status: Status, problem: str
) -> None:
    assert (await told(Odd(point, status))).endswith(f": {problem}")


async def test_every_node_may_have_a_reason_of_its_own() -> None:
    """More than an int16 can number."""
    verdicts = Verdicts.of([unschedulable(str(number)) for number in range(40_000)])
    assert len(verdicts.statuses) == verdicts.codes[-1] == 40_000


async def test_a_coroutine_where_nobody_waits_is_named() -> None:
    async def later(*args: Any) -> Status:
        return SUCCESS

    message = await told(Odd("filter", lambda *args: later()))
    assert message.startswith(f"{FILTER}returned <coroutine object")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        pytest.param("n1", "returned 'n1', wanted a set of node names", id="text"),
        pytest.param(5, "returned 5, wanted a set of node names", id="a number"),
        pytest.param({5: ""}.keys(), "node(s) didn't satisfy plugin Odd", id="numbers"),
    ],
)
async def test_node_names_that_are_none(names: Any, problem: str) -> None:
    result = PreFilterResult(SUCCESS, names)
    message = await told(Odd("pre_filter", result))
    assert problem in message or "didn't satisfy plugin(s) [Odd]" in message


async def test_a_nominated_node_that_cannot_be_sent() -> None:
    result = PostFilterResult(SUCCESS, "a\udc80")
    message = await told(Odd("post_filter", result), size="100")
    assert message.endswith("returned 'a\\udc80', wanted a node's name")


# -- verdicts

ONE = np.array([0, 1], np.int16)
NO = unschedulable("no")


@pytest.mark.parametrize("scope", [Scope.POD, Scope.CLUSTER, Scope.NODE, Scope.RESOURCES])
@pytest.mark.parametrize(
    ("verdicts", "problem"),
    [
        pytest.param(Verdicts(ONE, None), "wanted a tuple of statuses", id="no statuses"),
        pytest.param(
            Verdicts(ONE, (one for one in (NO,))), "wanted a tuple of statuses", id="a generator"
        ),
        pytest.param(Verdicts(ONE, {1: NO}), "wanted a tuple of statuses", id="a dictionary"),
        pytest.param(Verdicts(ONE, (None,)), "wanted a Status", id="a status that is none"),
        pytest.param(
            Verdicts(ONE, (Status(Code.UNSCHEDULABLE, ["no"]),)), "that are text", id="a list"
        ),
        pytest.param(Verdicts(-ONE, (NO,)), "wanted codes of 1 statuses", id="a negative code"),
        pytest.param(Verdicts(ONE * 2, (NO,)), "wanted codes of 1 statuses", id="no such code"),
        pytest.param(
            Verdicts(np.array([0, 2**63], np.uint64), (NO,)), "codes of 1 statuses", id="huge"
        ),
        pytest.param(Verdicts(ONE.astype(object), (NO,)), "Verdicts for 2 nodes", id="objects"),
        pytest.param(Verdicts(ONE.reshape(2, 1), (NO,)), "Verdicts for 2 nodes", id="a matrix"),
        pytest.param(
            Verdicts(np.ma.masked_array(ONE, [True, True]), (NO,)), "for 2 nodes", id="masked"
        ),
        pytest.param(Verdicts(None, (NO,)), "wanted Verdicts for 2 nodes", id="no codes"),
        pytest.param(NO, "wanted Verdicts for 2 nodes", id="a status"),
    ],
)
async def test_verdicts_that_are_none_are_named(verdicts: Any, problem: str, scope: Scope) -> None:
    message = await told(Odd("filter_nodes", lambda *args: verdicts, scope))
    assert message.startswith(FILTER)
    assert message.endswith(problem)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(None, "returned None, wanted a mark and rows", id="nothing"),
        pytest.param((1,), "returned (1,), wanted a mark and rows", id="no rows"),
        pytest.param((1, [0]), "wanted rows of 2 nodes", id="a list"),
        pytest.param((1, np.array([2])), "wanted rows of 2 nodes", id="out of range"),
        pytest.param((1, np.array([-1])), "wanted rows of 2 nodes", id="negative"),
        pytest.param((1, np.array([0.0])), "wanted rows of 2 nodes", id="fractions"),
        pytest.param((1, np.array([0], np.uint64)), "wanted rows of 2 nodes", id="unsigned"),
        pytest.param((1, np.array([[0]])), "wanted rows of 2 nodes", id="a matrix"),
        pytest.param((1, np.ma.masked_array([0], [True])), "rows of 2 nodes", id="masked"),
        pytest.param((1, ChangedVerdicts(None)), "wanted pieces", id="no pieces"),
        pytest.param((1, ChangedVerdicts(iter(()))), "wanted pieces", id="a generator"),
        pytest.param((1, ChangedVerdicts([()])), "and a status", id="an empty piece"),
        pytest.param((1, ChangedVerdicts([(np.array([0]),)])), "and a status", id="no status"),
        pytest.param((1, ChangedVerdicts([(np.array([9]), NO)])), "and a status", id="no such row"),
        pytest.param(
            (1, ChangedVerdicts([(np.array([0]), None)])), "wanted a Status", id="no status at all"
        ),
        pytest.param(
            (1, ChangedVerdicts([(np.array([0]), [NO])])), "wanted a Status", id="unhashable"
        ),
        pytest.param(
            (1, ChangedVerdicts([(np.array([0]), Status(Code.UNSCHEDULABLE, ["no"]))])),
            "wanted reasons that are text",
            id="a list of reasons",
        ),
    ],
)
async def test_changes_that_are_none_are_named(answer: Any, problem: str) -> None:
    asked: list[str] = []

    def changes(state: Any, pod: Any, mark: Any) -> Any:
        # The first time all rows are asked about; what it says has changed counts from then on.
        asked.append(pod.name)
        return answer if asked.count("first") and pod.name == "victim" else (None, None)

    plugin = Odd("filter_nodes", GOOD["filter_nodes"], Scope.CLUSTER, changes=changes)
    async with cluster(nodes=TWO, plugins={"Odd": plugin}) as c:
        await c.create(make_pod("first").req(cpu="1"))
        await c.settle()
        await c.create(make_pod("victim").req(cpu="1"), make_pod("next").req(cpu="1"))
        await c.settle()
        assert c.message("victim").startswith(FILTER)
        assert c.message("victim").endswith(problem)
        assert c.bound("next") is not None


@pytest.mark.parametrize("group", [[], ([],), {}, np.zeros(2)])
async def test_a_group_that_cannot_be_looked_up_is_named(group: Any) -> None:
    plugin = Odd(
        "filter_nodes",
        GOOD["filter_nodes"],
        Scope.CLUSTER,
        changes=lambda state, pod, mark: (None, None),
        group=lambda state, pod: group if pod.name == "victim" else "",
    )
    message = await told(plugin)
    assert message.startswith(FILTER)
    assert message.endswith("wanted a group that can be looked up")


# -- scores

TWO_SCORES = "wanted an array of 2 scores"
WHOLE = "wanted whole numbers"


@pytest.mark.parametrize("point", ["normalize", "score_nodes"])
@pytest.mark.parametrize("scope", [Scope.POD, Scope.NODE, Scope.ROW, Scope.RESOURCES])
@pytest.mark.parametrize(
    ("scores", "problem"),
    [
        pytest.param(np.array([0.0, np.nan]), WHOLE, id="nan"),
        pytest.param(np.array([0.0, np.inf]), WHOLE, id="inf"),
        pytest.param(np.array([0.0, 1.5]), WHOLE, id="fractions"),
        pytest.param(np.array(["a", "b"]), WHOLE, id="text"),
        pytest.param(np.array([1, None], object), WHOLE, id="objects"),
        pytest.param(np.array([10**30, 0], object), WHOLE, id="huge"),
        pytest.param(np.ma.masked_array([1, 2], [True, False]), TWO_SCORES, id="masked"),
        pytest.param(np.zeros((2, 1), np.int64), TWO_SCORES, id="a matrix"),
        pytest.param(np.zeros(3, np.int64), TWO_SCORES, id="too many"),
        pytest.param(np.int64(3), TWO_SCORES, id="a number"),
        pytest.param([1, 2], TWO_SCORES, id="a list"),
        pytest.param(None, TWO_SCORES, id="nothing"),
        pytest.param(np.array([2**64 - 1, 0], np.uint64), f"at most {2**53}", id="wraps"),
    ],
)
async def test_scores_that_are_none_are_named(
    point: str, scope: Scope, scores: Any, problem: str
) -> None:
    message = await told(Odd(point, lambda *args: scores, scope))
    assert message.startswith(SCORE)
    assert message.endswith(problem)


CLASSES = "wanted an array of 2 classes"


@pytest.mark.parametrize(
    ("values", "ids", "problem"),
    [
        pytest.param([], [0, 0], "one for each class", id="no classes"),
        pytest.param(None, [0, 0], "one for each class", id="nothing"),
        pytest.param([1, float("nan")], [0, 1], "one for each class", id="nan"),
        pytest.param([1, 1.5], [0, 1], "one for each class", id="a fraction"),
        pytest.param([1, "2"], [0, 1], "one for each class", id="text"),
        pytest.param([1, 10**30], [0, 1], "[0, 100] after normalizing", id="huge"),
        pytest.param([1, -1], [0, 1], "[0, 100] after normalizing", id="negative"),
        pytest.param([1, 2], [0, 2], "wanted classes of 2", id="no such class"),
        pytest.param([1, 2], [0, -3], "wanted classes of 2", id="a negative class"),
        pytest.param([1, 2], [0], CLASSES, id="too few"),
        pytest.param([1, 1], [0], CLASSES, id="too few, all alike"),
        pytest.param([1, 2], [0.0, 1.0], CLASSES, id="fractions"),
        pytest.param([1, 2], None, CLASSES, id="no classes of nodes"),
    ],
)
async def test_class_scores_that_are_none_are_named(values: Any, ids: Any, problem: str) -> None:
    scores = ClassScores(values, ids if ids is None else np.array(ids))
    message = await told(Odd("score_nodes", lambda *args: scores))
    assert message.startswith("running Score plugins")
    assert message.endswith(problem)


async def test_an_epoch_of_scores_that_cannot_be_compared_is_named() -> None:
    plugin = Odd("score_nodes", GOOD["score_nodes"], Scope.NODE, epoch=lambda snapshot: np.zeros(2))
    plugin.normalize = GOOD["normalize"]  # type: ignore[attr-defined]
    async with cluster(nodes=TWO, plugins={"Odd": plugin}) as c:
        await c.create(make_pod("first"), make_pod("victim"))
        await c.settle()
        assert c.bound("first") is not None
        assert c.message("victim").endswith("wanted what can be compared")

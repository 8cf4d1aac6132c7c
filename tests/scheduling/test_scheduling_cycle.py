"""The scheduling cycle, from the snapshot to an assumed pod or the reasons against it.

schedule_one.go: schedulingCycle, schedulePod, findNodesThatFitPod, selectHost (v1.36).

Covers ``ksched.framework.runtime.pipeline`` too.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ksched.framework import (
    SUCCESS,
    PostFilterResult,
    PreFilterResult,
    Status,
    error,
    pending,
    unresolvable,
    unschedulable,
)
from ksched.queue.places import Place
from ksched.scheduling.scheduling_cycle import num_feasible_nodes_to_find, select_host
from ksched.testing import Call, Checkers, FakePlugin, cluster, make_node, make_pod
from ksched.testing.harness import Cluster

# Preemption would add its own sentence to every message.
ONLY_MINE = {
    "profiles": [
        {
            "plugins": {
                "postFilter": {
                    "disabled": [{"name": "DefaultPreemption"}, {"name": "DynamicResources"}]
                }
            }
        }
    ]
}


def counts(c: Cluster, pod: str) -> tuple[int, int]:
    queued = c.queued(pod)
    return queued.unschedulable_count, queued.consecutive_errors_count


# -- reserve and permit -----------------------------------------------------------------------


@pytest.mark.parametrize("point", ["reserve", "permit"])
@pytest.mark.parametrize(
    ("status", "reason", "message", "place", "expected"),
    [
        pytest.param(
            unschedulable("quota used up"),
            "Unschedulable",
            "0/1 nodes are available: 1 quota used up.",
            Place.UNSCHEDULABLE,
            (1, 0),
            id="rejects",
        ),
        pytest.param(
            unresolvable("quota used up", "ask again"),
            "Unschedulable",
            "0/1 nodes are available: 1 ask again, 1 quota used up.",
            Place.UNSCHEDULABLE,
            (1, 0),
            id="rejects for two reasons",
        ),
        pytest.param(
            pending("quota unknown"),
            "Unschedulable",
            "0/1 nodes are available: 1 quota unknown.",
            Place.UNSCHEDULABLE,
            (1, 0),
            id="is pending",
        ),
        pytest.param(
            error("no database"),
            "SchedulerError",
            'running {point} plugin "Middle": no database',
            Place.BACKOFF,
            (0, 1),
            id="fails",
        ),
    ],
)
async def test_a_no_after_the_choice_undoes_all_reservations_in_reverse(
    point: str, status: Status, reason: str, message: str, place: Place, expected: tuple[int, int]
) -> None:
    journal: list[Call] = []
    answers: dict[str, Any] = {"reserve": SUCCESS, point: status}
    plugins = [
        FakePlugin("First", journal=journal, reserve=SUCCESS),
        FakePlugin("Middle", journal=journal, events_to_register=[], **answers),
        FakePlugin("Last", journal=journal, reserve=SUCCESS),
    ]
    async with cluster(nodes=1, plugins=plugins) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        ran = [call.plugin for call in journal if call.method == "reserve"]
        assert ran == (["First", "Middle"] if point == "reserve" else ["First", "Middle", "Last"])
        undone = [call.plugin for call in journal if call.method == "unreserve"]
        assert undone == ["Last", "Middle", "First"]
        condition = c.condition("web")
        assert condition is not None
        assert condition["reason"] == reason
        text = message.format(point=point.capitalize())
        assert c.message("web") == text
        assert [event.note for event in c.events("web")] == [text]
        assert (c.place("web"), counts(c, "web")) == (place, expected)
        checkers.check_books()
        # The room is free for others at once.
        for plugin in plugins:
            plugin.answers = dict.fromkeys(plugin.answers, SUCCESS)
        await c.create(make_pod("next").req(cpu="3"))
        await c.settle()
        assert c.bound("next") == "n1"


# -- filter ---------------------------------------------------------------------------------------


async def test_an_empty_cluster_is_retried_after_the_error_backoff() -> None:
    after = FakePlugin("After", post_filter=PostFilterResult(SUCCESS))
    async with cluster(plugins=[after]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        condition = c.condition("web")
        assert condition is not None
        assert condition["reason"] == "Unschedulable"
        assert c.message("web") == "no nodes available to schedule pods"
        assert (c.place("web"), counts(c, "web")) == (Place.BACKOFF, (0, 1))
        assert after.calls() == []
        await c.add_nodes(1)
        await c.advance(2)
        assert c.bound("web") == "n1"


async def test_reasons_are_counted_and_sorted_as_text() -> None:
    nodes = [
        *(make_node(f"small-{number}").capacity(cpu="1") for number in range(10)),
        *(make_node(f"cordoned-{number}").unschedulable() for number in range(2)),
        make_node("tainted").taint("dedicated", "gpu"),
    ]
    async with cluster(nodes=nodes, config=ONLY_MINE) as c:
        await c.create(make_pod("web").req(cpu="2"))
        await c.settle()
        assert c.message("web") == (
            "0/13 nodes are available: 1 node(s) had untolerated taint(s), "
            "10 Insufficient cpu, 2 node(s) were unschedulable."
        )


async def test_the_first_plugin_that_rejects_a_node_names_the_reason() -> None:
    nodes = [make_node("n1").capacity(cpu="1").unschedulable()]
    async with cluster(nodes=nodes, config=ONLY_MINE) as c:
        await c.create(make_pod("web").req(cpu="2"))
        await c.settle()
        assert c.message("web") == "0/1 nodes are available: 1 node(s) were unschedulable."


@pytest.mark.parametrize(
    ("first", "second", "message", "asked"),
    [
        pytest.param(
            unresolvable("never"),
            unschedulable("not now"),
            "0/2 nodes are available: never.",
            1,
            id="unresolvable ends it",
        ),
        pytest.param(
            unschedulable("not now"),
            SUCCESS,
            "0/2 nodes are available: not now.",
            2,
            id="the others are still asked",
        ),
        pytest.param(
            unschedulable("not now"),
            unschedulable("nor now"),
            "0/2 nodes are available: nor now.",
            2,
            id="the last word counts",
        ),
        pytest.param(
            PreFilterResult(SUCCESS, frozenset({"n1"})),
            PreFilterResult(SUCCESS, frozenset({"n2"})),
            "0/2 nodes are available: node(s) didn't satisfy plugin(s) [A B] simultaneously.",
            2,
            id="nothing in common",
        ),
        pytest.param(
            PreFilterResult(SUCCESS, frozenset()),
            SUCCESS,
            "0/2 nodes are available: node(s) didn't satisfy plugin A.",
            1,
            id="nothing at all",
        ),
        pytest.param(
            PreFilterResult(SUCCESS, frozenset({"ghost"})),
            SUCCESS,
            "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [A].",
            2,
            id="a node that does not exist",
        ),
        pytest.param(
            error("out of order"),
            SUCCESS,
            'running PreFilter plugin "A": out of order',
            1,
            id="an error",
        ),
    ],
)
async def test_pre_filter_may_reject_a_pod_as_a_whole(
    first: object, second: object, message: str, asked: int
) -> None:
    journal: list[Call] = []
    plugins = [
        FakePlugin("A", journal=journal, pre_filter=first, events_to_register=[]),
        FakePlugin("B", journal=journal, pre_filter=second, events_to_register=[]),
    ]
    async with cluster(nodes=2, config=ONLY_MINE, plugins=plugins) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web") == message
        assert [call.method for call in journal].count("pre_filter") == asked


@pytest.mark.parametrize(
    ("first", "second", "rejectors"),
    [
        pytest.param(
            PreFilterResult(SUCCESS, frozenset({"n1"})),
            unresolvable("never"),
            {"B"},
            id="the second",
        ),
        pytest.param(
            PreFilterResult(SUCCESS, frozenset({"n1"})), unschedulable("no"), {"A", "B"}, id="both"
        ),
        pytest.param(
            PreFilterResult(SUCCESS, frozenset({"ghost"})), SUCCESS, {"A"}, id="who narrowed"
        ),
        pytest.param(
            PreFilterResult(SUCCESS, frozenset({"n1"})),
            PreFilterResult(SUCCESS, frozenset({"n2"})),
            {"A", "B"},
            id="those who disagree",
        ),
    ],
)
async def test_a_pod_waits_for_the_plugins_that_ruled_out_its_nodes(
    first: object, second: object, rejectors: set[str]
) -> None:
    plugins = [
        FakePlugin("A", pre_filter=first, events_to_register=[]),
        FakePlugin("B", pre_filter=second, events_to_register=[]),
    ]
    async with cluster(nodes=2, plugins=plugins) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.place("web") is Place.UNSCHEDULABLE
        assert c.queued("web").unschedulable_plugins == rejectors


async def test_a_pod_that_wants_a_node_by_name_waits_for_that_node() -> None:
    wish = make_pod("web").required_node_affinity(fields=[("metadata.name", "In", ["n9"])])
    async with cluster(nodes=1) as c:
        await c.create(wish)
        await c.settle()
        assert c.place("web") is Place.UNSCHEDULABLE
        await c.add_nodes([make_node("n8"), make_node("n9")])
        await c.settle()
        assert c.bound("web") == "n9"


# -- how many nodes are looked at ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("percentage", "nodes", "enough"),
    [
        pytest.param(0, 5000, 5000, id="unset means all"),
        pytest.param(100, 5000, 5000, id="all"),
        pytest.param(50, 99, 99, id="small clusters are searched fully"),
        pytest.param(50, 150, 100, id="never fewer than a hundred"),
        pytest.param(50, 1001, 500, id="rounded down"),
        pytest.param(1, 20000, 200, id="one percent"),
    ],
)
def test_num_feasible_nodes_to_find(percentage: int, nodes: int, enough: int) -> None:
    assert num_feasible_nodes_to_find(percentage, nodes) == enough


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        pytest.param({"percentageOfNodesToScore": 40}, 100, id="global"),
        pytest.param(
            {"percentageOfNodesToScore": 10, "profiles": [{"percentageOfNodesToScore": 50}]},
            125,
            id="the profile's own",
        ),
        pytest.param(
            {"percentageOfNodesToScore": 10, "profiles": [{"percentageOfNodesToScore": 0}]},
            250,
            id="the profile's own zero",
        ),
        pytest.param({}, 250, id="unset"),
    ],
)
async def test_an_explicit_percentage_bounds_the_search_and_rotates_it(
    config: dict[str, Any], seen: int
) -> None:
    spy = FakePlugin("Spy", filter=SUCCESS)
    async with cluster(nodes=250, config=config, plugins=[spy]) as c:
        searched = []
        for number in range(3):
            await c.create(make_pod(f"p{number}"))
            await c.settle()
            searched.append(
                [call.node for call in spy.calls("filter") if call.pod[-1] == str(number)]
            )
        assert [len(nodes) for nodes in searched] == [seen] * 3
        order = list(dict.fromkeys(node for nodes in searched for node in nodes))
        if seen < 250:
            assert searched[1] == [*order, *order][seen : 2 * seen]
            assert searched[2][0] == [*order, *order][2 * seen % 250]
        assert all(c.bound(f"p{number}") in nodes for number, nodes in enumerate(searched))


# -- nominations --------------------------------------------------------------------------------


async def nominate(c: Cluster, pod: str, node_name: str) -> None:
    """Nominate a gated pod and let it go."""
    await c.patch(pod, {"status": {"nominatedNodeName": node_name}}, subresource="status")
    await c.patch(pod, {"spec": {"schedulingGates": None}})
    await c.settle()


async def test_a_nominated_node_that_fits_is_taken_without_looking_further() -> None:
    spy = FakePlugin("Spy", filter=SUCCESS, score=0)
    async with cluster(nodes=5, plugins=[spy]) as c:
        await c.create(make_pod("web").gate("wait"))
        await nominate(c, "web", "n4")
        assert c.bound("web") == "n4"
        assert [call.node for call in spy.calls("filter")] == ["n4"]
        assert spy.calls("score") == []


@pytest.mark.parametrize("name", ["n1", "gone"])
async def test_a_nominated_node_that_does_not_fit_is_only_the_first_try(name: str) -> None:
    async with cluster(nodes=[make_node("n1").capacity(cpu="1"), make_node("n2")]) as c:
        await c.create(make_pod("web").req(cpu="2").gate("wait"))
        await nominate(c, "web", name)
        assert c.bound("web") == "n2"


async def test_room_made_for_a_pod_is_not_taken_by_another_of_its_priority() -> None:
    room = FakePlugin(
        "Room",
        post_filter=lambda state, pod, diagnosis: PostFilterResult(
            SUCCESS if pod.name == "web" else unschedulable("no victims"),
            "n1" if pod.name == "web" else None,
        ),
        pre_enqueue=lambda pod: unschedulable("later") if pod.name in held else SUCCESS,
    )
    held: set[str] = set()
    async with cluster(nodes=1, config=ONLY_MINE, plugins=[room]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("running").req(cpu="3"))
        await c.settle()
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        assert c.message("web") == "0/1 nodes are available: 1 Insufficient cpu."
        assert c.pod("web")["status"]["nominatedNodeName"] == "n1"
        # The room becomes free while the pod it was made for cannot be tried yet.
        held.add("web")
        await c.delete("running", grace_seconds=0)
        await c.settle()
        await c.create(make_pod("thief").req(cpu="3"))
        await c.settle()
        assert c.bound("thief") is None
        assert c.message("thief") == "0/1 nodes are available: 1 Insufficient cpu. no victims"
        held.clear()
        await c.advance(100)
        assert c.bound("web") == "n1"
        assert "nominatedNodeName" not in c.pod("web")["status"]
        checkers.check_books()


# -- post_filter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "said", "nominated"),
    [
        pytest.param(
            PostFilterResult(SUCCESS, "n1"), PostFilterResult(SUCCESS), "", "n1", id="first helps"
        ),
        pytest.param(
            PostFilterResult(unschedulable("no luck")),
            PostFilterResult(SUCCESS, "n1"),
            "",
            "n1",
            id="second helps",
        ),
        pytest.param(
            PostFilterResult(unschedulable("no luck")),
            PostFilterResult(unschedulable("no victims")),
            " no luck, no victims",
            None,
            id="nobody helps",
        ),
        pytest.param(
            PostFilterResult(unschedulable("no luck"), "n1"),
            PostFilterResult(unresolvable("hopeless")),
            " hopeless",
            None,
            id="hopeless",
        ),
        pytest.param(
            PostFilterResult(unresolvable("hopeless")),
            PostFilterResult(SUCCESS, "n1"),
            " hopeless",
            None,
            id="hopeless ends it",
        ),
        pytest.param(
            PostFilterResult(unschedulable("no luck")),
            PostFilterResult(error("not found")),
            " not found",
            None,
            id="an error",
        ),
        pytest.param(
            PostFilterResult(unschedulable("no luck"), "n1"),
            PostFilterResult(unschedulable("no victims"), "n2"),
            " no luck, no victims",
            "n2",
            id="the last nomination counts",
        ),
    ],
)
async def test_what_post_filter_says_is_added_to_the_reasons(
    first: PostFilterResult, second: PostFilterResult, said: str, nominated: str | None
) -> None:
    plugins = [FakePlugin("A", post_filter=first), FakePlugin("B", post_filter=second)]
    async with cluster(nodes=2, config=ONLY_MINE, plugins=plugins) as c:
        await c.create(make_pod("web").req(cpu="100"))
        await c.settle()
        assert c.message("web") == f"0/2 nodes are available: 2 Insufficient cpu.{said}"
        assert c.pod("web")["status"].get("nominatedNodeName") == nominated
        assert c.scheduler.queue.nominator.node_of(c.uid("web")) == nominated
        assert c.queued("web").unschedulable_plugins == {"NodeResourcesFit"}


# -- choice -----------------------------------------------------------------------------------


def test_ties_are_broken_evenly_and_repeatably() -> None:
    totals = np.array([3, 9, 1, 9, 9], np.int64)
    chosen = Counter(select_host(None, totals, random.Random(seed)) for seed in range(3000))
    assert set(chosen) == {1, 3, 4}
    assert min(chosen.values()) > 900
    rows = np.array([10, 11, 12, 13, 14], np.intp)
    assert {select_host(rows, totals, random.Random(7)) for _ in range(5)} <= {11, 13, 14}


async def test_a_profile_without_scores_spreads_pods_by_chance() -> None:
    none = {"score": {"disabled": [{"name": "*"}]}, "preScore": {"disabled": [{"name": "*"}]}}
    async with cluster(nodes=3, config={"profiles": [{"plugins": none}]}) as c:
        await c.create(*(make_pod(f"p{number}") for number in range(30)))
        await c.settle()
        assert {c.bound(f"p{number}") for number in range(30)} == {"n1", "n2", "n3"}


async def test_the_best_score_wins_by_weight() -> None:
    likes = {"n1": 100, "n2": 60, "n3": 0}
    one = FakePlugin("One", score=lambda state, pod, node: likes[node.name])
    two = FakePlugin("Two", score=lambda state, pod, node: 100 - likes[node.name])
    score = {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": "One", "weight": 1}, {"name": "Two", "weight": 3}],
    }
    config = {"profiles": [{"plugins": {"score": score}}]}
    async with cluster(nodes=3, config=config, plugins=[one, two]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n3"

"""What extenders do to decisions (schedule_one.go: findNodesThatPassExtenders, prioritizeNodes,
extendersBinding; preemption.go: callExtenders; v1.36)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ksched.errors import ConfigError, ExtenderError
from ksched.metrics import Metrics
from ksched.queue.places import Place
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.harness import Cluster

FPGA = "example.com/fpga"
DOWN = ExtenderError("extender is down")


def config(*extenders: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", **one} for one in extenders], **more}


FILTER = {"filterVerb": "filter", "nodeCacheCapable": True}
PRIORITIZE = {"prioritizeVerb": "prioritize", "weight": 1, "nodeCacheCapable": True}
# No opinion of its own on where a pod should go.
NO_SCORES = [
    {
        "schedulerName": "default-scheduler",
        "plugins": {"score": {"disabled": [{"name": "*"}]}},
    }
]


def only(*names: str, **more: Any) -> dict[str, Any]:
    return {"NodeNames": list(names), **more}


def all_of(question: Any) -> dict[str, Any]:
    return only(*question["NodeNames"])


# -- filter -------------------------------------------------------------------------------------


async def test_pod_goes_where_the_extender_lets_it(extenders) -> None:
    extenders.on("filter", only("n2"))
    async with cluster(3, config=config(FILTER)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n2"
    (question,) = extenders.questions("filter")
    assert sorted(question["NodeNames"]) == ["n1", "n2", "n3"]
    assert question["Nodes"] is None


async def test_extender_without_a_node_cache_is_sent_whole_objects(extenders) -> None:
    extenders.on("filter", lambda asked: {"Nodes": {"items": asked["Nodes"]["items"][:1]}})
    node = make_node("n1").to_dict()
    node["spec"]["providerID"] = "cloud://n1"
    pod = make_pod("web").to_dict()
    pod["spec"]["containers"][0]["workingDir"] = "/srv"
    async with cluster([node], config=config({"filterVerb": "filter"})) as c:
        await c.create(pod)
        await c.settle()

        assert c.bound("web") == "n1"
        stored = c.nodes()[0]
    (question,) = extenders.questions("filter")
    assert question["NodeNames"] is None
    assert question["Nodes"]["metadata"] == {}
    (sent,) = question["Nodes"]["items"]
    for field in ("kind", "apiVersion"):
        stored.pop(field, None)
    stored["metadata"].pop("managedFields", None)
    assert sent == stored
    assert sent["spec"]["providerID"] == "cloud://n1"
    assert question["Pod"]["spec"]["containers"][0]["workingDir"] == "/srv"
    assert "nodeName" not in question["Pod"]["spec"]


async def test_nodes_as_a_list_are_no_answer_to_whole_nodes(extenders) -> None:
    """Upstream reads NodeNames only from an extender that was sent names."""
    extenders.on("filter", only("n1"))
    async with cluster(1, config=config({"filterVerb": "filter"})) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") is None


async def test_each_filter_sees_what_the_one_before_left(extenders) -> None:
    extenders.on("filter", only("n1", "n2"), "http://first")
    extenders.on("filter", only("n2"), "http://second")
    first, second = ({**FILTER, "urlPrefix": f"http://{one}"} for one in ("first", "second"))
    async with cluster(3, config=config(first, second)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n2"
    (question,) = extenders.questions("filter", "http://second")
    assert sorted(question["NodeNames"]) == ["n1", "n2"]


async def test_ignorable_extenders_come_last_in_their_own_order(extenders) -> None:
    names = ["a-ignorable", "b", "c-ignorable", "d"]
    several = []
    for name in names:
        url = f"http://{name}"
        extenders.on("filter", all_of, url)
        several.append({**FILTER, "urlPrefix": url, "ignorable": "ignorable" in name})
    async with cluster(1, config=config(*several)) as c:
        await c.create(make_pod("web"))
        await c.settle()

    asked = [url.removeprefix("http://") for url, _, _ in extenders.asked]
    assert asked == ["b", "d", "a-ignorable", "c-ignorable"]


async def test_nodes_ruled_out_by_plugins_are_not_sent(extenders) -> None:
    extenders.on("filter", all_of)
    full = make_node("full").capacity(cpu="0")
    async with cluster([full, make_node("free")], config=config(FILTER)) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

    assert [question["NodeNames"] for question in extenders.questions("filter")] == [["free"]]


async def test_extender_is_not_asked_when_no_node_is_left(extenders) -> None:
    async with cluster([make_node("full").capacity(cpu="0")], config=config(FILTER)) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.message("web").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert extenders.asked == []


async def test_percentage_of_nodes_to_score_bounds_what_extenders_see(extenders) -> None:
    extenders.on("filter", all_of)
    async with cluster(220, config=config(FILTER, percentageOfNodesToScore=50)) as c:
        await c.create(make_pod("web"))
        await c.settle()

    (question,) = extenders.questions("filter")
    assert len(question["NodeNames"]) == 110


async def test_reasons_of_extenders_are_told_with_those_of_plugins(extenders) -> None:
    extenders.on(
        "filter",
        only(FailedNodes={"n1": "no fpga", "n2": "x"}, FailedAndUnresolvableNodes={"n2": "broken"}),
    )
    nodes = [make_node("n1"), make_node("n2"), make_node("n3").capacity(cpu="0"), make_node("n4")]
    async with cluster(nodes, config=config(FILTER)) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.message("web").startswith(
            "0/4 nodes are available: 1 Insufficient cpu, 1 broken, 1 no fpga, "
            '1 node(s) were left out by extender "http://x".'
        )
        assert c.queued("web").unschedulable_plugins == {"Extender", "NodeResourcesFit"}
        assert c.place("web") is Place.UNSCHEDULABLE


async def test_what_an_extender_says_of_a_node_it_was_not_asked_about_counts(extenders) -> None:
    extenders.on("filter", only(FailedNodes={"n1": "no fpga", "full": "no fpga", "other": "no"}))
    nodes = [make_node("n1"), make_node("full").capacity(cpu="0")]
    async with cluster(nodes, config=config(FILTER)) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.message("web").startswith("0/2 nodes are available: 2 no fpga.")
        assert c.queued("web").unschedulable_plugins == {"Extender", "NodeResourcesFit"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c: c.add_nodes([make_node("n2")]), id="a node is added"),
        pytest.param(
            lambda c: c.patch_node("n1", {"metadata": {"labels": {"a": "b"}}}),
            id="a node is changed",
        ),
        pytest.param(lambda c: c.create(make_pod("other").node("n1")), id="a pod is bound"),
    ],
)
async def test_any_change_wakes_a_pod_that_an_extender_rejected(extenders, change) -> None:
    extenders.on("filter", only())
    async with cluster(1, config=config(FILTER)) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.place("web") is Place.UNSCHEDULABLE
        extenders.on("filter", all_of)
        await change(c)
        await c.advance(2)

        assert c.bound("web")


async def test_failed_filter_fails_the_attempt_and_names_the_extender(extenders) -> None:
    extenders.on("filter", DOWN)
    async with cluster(1, config=config(FILTER)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        condition = c.condition("web")
        assert condition is not None
        assert (condition["reason"], condition["message"]) == ("SchedulerError", str(DOWN))
        assert c.queued("web").consecutive_errors_count == 1
        extenders.on("filter", all_of)
        await c.advance(2)
        assert c.bound("web") == "n1"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(
            {"Error": "no licence"}, 'extender "http://x": filter: no licence', id="error"
        ),
        pytest.param(
            only("n1", "mars"),
            'extender "http://x" claims a filtered node "mars" which is not found in the input '
            "node list",
            id="unknown name",
        ),
        pytest.param(
            {"Nodes": {"items": [{"metadata": {"name": "mars"}}]}},
            'extender "http://x" claims a filtered node "mars" which is not found in the input '
            "node list",
            id="unknown node",
        ),
        pytest.param(
            {"NodeNames": "n1"},
            'extender "http://x": filter: answer not understood: NodeNames: Expected '
            '`array | null`, got `str`, got \'{"NodeNames": "n1"}\'',
            id="wrong type",
        ),
    ],
)
@pytest.mark.parametrize("ignorable", [False, True])
async def test_lies_are_failures(extenders, answer, message, ignorable) -> None:
    extenders.on("filter", answer)
    async with cluster(1, config=config({**FILTER, "ignorable": ignorable})) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.message("web") == ("" if ignorable else message)
        assert c.bound("web") == ("n1" if ignorable else None)


async def test_ignorable_failure_is_told_once_until_it_is_over(extenders, caplog) -> None:
    caplog.set_level(logging.INFO, "ksched.framework.runtime.extenders")
    extenders.on("filter", DOWN)
    async with cluster(1, config=config({**FILTER, "ignorable": True})) as c:
        for name in ("a", "b"):
            await c.create(make_pod(name))
            await c.settle()
        extenders.on("filter", all_of)
        await c.create(make_pod("c"))
        await c.settle()

        assert all(c.bound(name) for name in "abc")
    told = [record.message for record in caplog.records]
    assert told == ["going on without an extender", "extender answers again"]


# -- interest -----------------------------------------------------------------------------------


def asking_for(resource: str) -> dict[str, Any]:
    pod = make_pod("web").to_dict()
    pod["spec"]["containers"] = [
        {"name": "c", "image": "i", "resources": {"limits": {resource: "1"}}}
    ]
    return pod


@pytest.mark.parametrize(
    ("pod", "asked"),
    [
        pytest.param(asking_for(FPGA), True, id="what it manages"),
        pytest.param(asking_for("example.com/gpu"), False, id="another resource"),
        pytest.param(make_pod("web").to_dict(), False, id="nothing"),
    ],
)
async def test_extender_is_asked_about_pods_that_want_what_it_manages(
    extenders, pod, asked
) -> None:
    extenders.on("filter", all_of)
    managed = [{"name": FPGA}]
    node = make_node("n1").capacity({FPGA: "4", "example.com/gpu": "4", "cpu": "4", "pods": "9"})
    async with cluster([node], config=config({**FILTER, "managedResources": managed})) as c:
        await c.create(pod)
        await c.settle()

        assert c.bound("web") == "n1"
    assert bool(extenders.asked) is asked


async def test_resource_ignored_by_the_scheduler_is_the_extenders_to_count(extenders) -> None:
    extenders.on("filter", all_of)
    managed = [{"name": FPGA, "ignoredByScheduler": True}]
    async with cluster(1, config=config({**FILTER, "managedResources": managed})) as c:
        await c.create(asking_for(FPGA))
        await c.settle()

        assert c.bound("web") == "n1"


# -- prioritize ---------------------------------------------------------------------------------


def scores(**by_node: int) -> list[dict[str, Any]]:
    return [{"Host": name, "Score": score} for name, score in by_node.items()]


async def test_best_score_wins(extenders) -> None:
    extenders.on("prioritize", scores(n1=1, n2=9, n3=3, mars=10))
    async with cluster(3, config=config(PRIORITIZE, profiles=NO_SCORES)) as c:
        await c.create(*(make_pod(f"web-{i}") for i in range(4)))
        await c.settle()

        assert {c.bound(f"web-{i}") for i in range(4)} == {"n2"}


async def test_scores_are_scaled_weighted_and_added_to_those_of_plugins(extenders) -> None:
    """An empty n2 leads by less than 100 * 2 points; three points of an extender are 30."""
    label = {"disk": "ssd"}
    nodes = [make_node("n1"), make_node("n2").label(label)]
    plugins = {
        "schedulerName": "default-scheduler",
        "plugins": {
            "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity"}]},
        },
    }
    pod = make_pod("web").to_dict()
    term = {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    }
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    for weight, score, winner in ((1, 9, "n2"), (2, 5, "either"), (3, 4, "n1")):
        extenders.on("prioritize", scores(n1=score))
        one = {**PRIORITIZE, "weight": weight}
        async with cluster(nodes, config=config(one, profiles=[plugins])) as c:
            await c.create(pod)
            await c.settle()
            assert winner in (c.bound("web"), "either")


async def test_extenders_are_asked_for_scores_at_the_same_time(extenders) -> None:
    async def slowly(question: Any) -> Any:
        await asyncio.sleep(2)
        return scores(n1=5)

    for name in ("a", "b", "c"):
        extenders.on("prioritize", slowly, f"http://{name}")
    several = [{**PRIORITIZE, "urlPrefix": f"http://{name}"} for name in ("a", "b", "c")]
    async with cluster(2, config=config(*several, profiles=NO_SCORES)) as c:
        await c.create(make_pod("web"))
        await c.settle()
        await c.advance(2)

        assert c.bound("web") == "n1"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(DOWN, id="failure"),
        pytest.param({"Host": "n1"}, id="wrong type"),
        pytest.param(scores(n1=10**30), id="absurd score"),
        pytest.param(scores(n1=-(2**62)), id="absurdly negative score"),
    ],
)
@pytest.mark.parametrize("ignorable", [False, True])
async def test_failed_scores_are_left_out(extenders, answer, ignorable) -> None:
    extenders.on("prioritize", answer, "http://a")
    extenders.on("prioritize", scores(n2=1), "http://b")
    one = {**PRIORITIZE, "urlPrefix": "http://a", "ignorable": ignorable}
    two = {**PRIORITIZE, "urlPrefix": "http://b"}
    async with cluster(2, config=config(one, two, profiles=NO_SCORES)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n2"


async def test_negative_scores_do_not_revive_infeasible_nodes(extenders) -> None:
    extenders.on("prioritize", lambda asked: scores(**dict.fromkeys(asked["NodeNames"], -9)))
    nodes = [make_node("full").capacity(cpu="0"), make_node("n1"), make_node("n2")]
    async with cluster(nodes, config=config(PRIORITIZE)) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.bound("web") in ("n1", "n2")


async def test_single_feasible_node_is_not_scored(extenders) -> None:
    async with cluster(1, config=config(PRIORITIZE)) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
    assert extenders.asked == []


# -- bind ---------------------------------------------------------------------------------------

BIND = {"bindVerb": "bind"}


def bind_calls(metrics: Metrics) -> int:
    """How often Bind plugins were timed."""
    series = ("Bind", "Success", "default-scheduler")
    return metrics.framework_extension_point_duration.of(*series).count


def binding(c: Cluster) -> Any:
    async def bind(question: Any) -> Any:
        await c.bind(question["PodName"], question["Node"])
        return {"Error": ""}

    return bind


async def test_extender_binds_in_the_schedulers_place(extenders) -> None:
    metrics = Metrics()
    async with cluster(1, config=config(BIND), metrics=metrics) as c:
        extenders.on("bind", binding(c))
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
        uid = c.uid("web")
        assert [event.note for event in c.events("web")] == [
            "Successfully assigned default/web to n1"
        ]
        binders = [one.user for one in c.requests if one.path.endswith("/binding")]
        assert binders == ["test"]
    assert bind_calls(metrics) == 0
    assert extenders.questions("bind") == [
        {"PodName": "web", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
    ]


async def test_failed_bind_gives_the_place_back_and_is_tried_again(extenders) -> None:
    async with cluster([make_node("n1").capacity(cpu="1")], config=config(BIND)) as c:
        extenders.on("bind", {"Error": "quota"})
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()

        assert c.message("web") == 'extender "http://x": bind: quota'
        assert c.scheduler.cache.statistics().assumed_pods == 0
        extenders.on("bind", binding(c))
        await c.advance(3)
        assert c.bound("web") == "n1"


async def test_bind_that_took_effect_counts_whatever_was_answered(extenders) -> None:
    async with cluster(1, config=config(BIND)) as c:

        async def lose_the_answer(question: Any) -> Any:
            await c.bind(question["PodName"], question["Node"])
            return DOWN

        extenders.on("bind", lose_the_answer)
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
        assert c.message("web") == ""
        assert len(extenders.questions("bind")) == 1


@pytest.mark.parametrize("has_happened", [False, True], ids=["not bound", "bound"])
async def test_plugins_bind_when_an_ignorable_extender_fails(extenders, has_happened) -> None:
    async with cluster(1, config=config({**BIND, "ignorable": True})) as c:

        async def fail(question: Any) -> Any:
            if has_happened:
                await c.bind(question["PodName"], question["Node"])
            return DOWN

        extenders.on("bind", fail)
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
        assert c.message("web") == ""


async def test_pods_that_do_not_interest_the_binder_are_bound_by_plugins(extenders) -> None:
    managed, metrics = [{"name": FPGA}], Metrics()
    settings = config({**BIND, "managedResources": managed})
    async with cluster(1, config=settings, metrics=metrics) as c:
        await c.create(make_pod("web"))
        await c.settle()

        assert c.bound("web") == "n1"
    assert extenders.asked == []
    assert bind_calls(metrics) == 1


# -- waiting ------------------------------------------------------------------------------------


async def test_everything_else_goes_on_while_an_extender_thinks(extenders) -> None:
    gate = asyncio.Event()

    async def think(question: Any) -> Any:
        if question["Pod"]["metadata"]["name"] == "slow":
            await gate.wait()
        return all_of(question)

    async def bind_slowly(question: Any) -> Any:
        await asyncio.sleep(1)
        await c.bind(question["PodName"], question["Node"])
        return {}

    extenders.on("filter", think)
    one = {**FILTER, **BIND, "httpTimeout": "60s"}
    async with cluster(2, config=config(one)) as c:
        extenders.on("bind", bind_slowly)
        await c.create(make_pod("early"), make_pod("slow"))
        await c.settle()
        assert c.bound("early") is None
        await c.delete_node("n1")
        await c.advance(1)

        assert c.bound("early"), "bindings go on"
        assert c.scheduler.cache.statistics().nodes == 1, "watches go on"
        snapshot = c.scheduler.cache.snapshot
        assert sorted(snapshot.table.rows) == ["n1", "n2"], "the snapshot does not change"
        gate.set()
        await c.advance(20)
        assert c.bound("slow") == "n2"


async def test_hanging_extender_costs_its_pod_the_timeout(extenders) -> None:
    async def hang(question: Any) -> Any:
        await asyncio.Event().wait()

    extenders.on("filter", hang)
    managed = [{"name": FPGA, "ignoredByScheduler": True}]
    one = {**FILTER, "managedResources": managed, "httpTimeout": "3s"}
    async with cluster(1, config=config(one)) as c:
        await c.create(asking_for(FPGA), make_pod("other"))
        await c.advance(2.9)
        assert c.bound("other") is None, "the cycle is serialized"
        await c.advance(0.1)

        assert c.message("web").endswith("filter: timed out")
        assert c.bound("other") == "n1"


# -- configuration ------------------------------------------------------------------------------


async def test_settings_that_can_never_work_are_all_named_at_the_start() -> None:
    broken = config(
        {"urlPrefix": "127.0.0.1:80"},
        {"urlPrefix": "https://user:secret@h/", "tlsConfig": {"caFile": "/no/such/file"}},
        {"urlPrefix": "https://h", "tlsConfig": {"insecure": True, "caData": "eA=="}},
        {"urlPrefix": "https://h", "tlsConfig": {"certData": "eA=="}},
    )
    with pytest.raises(ConfigError) as raised:
        async with cluster(0, config=broken):
            pass

    problems = raised.value.problems
    assert [problem.partition(":")[0] for problem in problems] == [
        "extenders[0].urlPrefix",
        "extenders[1].tlsConfig",
        "extenders[2].tlsConfig",
        "extenders[3].tlsConfig",
    ]
    assert "secret" not in str(raised.value)

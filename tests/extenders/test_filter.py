"""Extenders rule out nodes (schedule_one.go: findNodesThatPassExtenders, v1.36)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ksched.errors import ExtenderError
from ksched.queue.places import Place
from ksched.testing import cluster, make_node, make_pod

FPGA = "example.com/fpga"
FILTER = {"filterVerb": "filter", "nodeCacheCapable": True}
DOWN = ExtenderError("extender is down")


def config(*extenders: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", **one} for one in extenders], **more}


def only(*names: str, **more: Any) -> dict[str, Any]:
    return {"NodeNames": list(names), **more}


def all_of(question: Any) -> dict[str, Any]:
    return only(*question["NodeNames"])


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


async def test_extender_is_sent_the_newest_objects(extenders) -> None:
    """Also when nothing changed that the scheduler itself reads."""
    extenders.on("filter", only(FailedNodes={"n1": "no"}))
    async with cluster(1, config=config({"filterVerb": "filter"})) as c:
        await c.create(make_pod("web"))
        await c.settle()
        versions = {"status": {"nodeInfo": {"kernelVersion": "7.1"}}}
        await c.patch_node("n1", versions, subresource="status")
        await c.patch("web", {"metadata": {"annotations": {"example.com/slots": "2"}}})
        await c.settle()
        await c.create(make_pod("other"))
        await c.add_nodes([make_node("n2")])
        await c.advance(2)

    last = {one["Pod"]["metadata"]["name"]: one for one in extenders.questions("filter")}
    for question in last.values():
        by_name = {one["metadata"]["name"]: one for one in question["Nodes"]["items"]}
        assert by_name["n1"]["status"]["nodeInfo"]["kernelVersion"] == "7.1"
    assert last["web"]["Pod"]["metadata"]["annotations"] == {"example.com/slots": "2"}


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


async def test_long_texts_are_cut_to_what_a_pods_status_can_hold(extenders) -> None:
    async with cluster(1, config=config(FILTER)) as c:
        extenders.on("filter", {"Error": "x" * 10_000_000})
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web") == f'extender "http://x": filter: {"x" * 1000}...'
        extenders.on("filter", only(FailedNodes={"n1": "y" * 10_000_000}))
        await c.advance(5)
        assert f"1 {'y' * 1000}..." in c.message("web")


async def test_ignorable_failure_is_told_once_until_it_is_over(extenders, caplog) -> None:
    caplog.set_level(logging.INFO, "ksched.extenders.chain")
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


# -- which pods ---------------------------------------------------------------------------------


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

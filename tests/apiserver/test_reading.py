"""GET and LIST: pages, selectors, versions.

Covers ``ksched.apiserver.discovery``, ``ksched.apiserver.resource_registry``,
``ksched.apiserver.routes`` and ``ksched.apiserver.selection`` too.
"""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
ALL = "/api/v1/pods"


async def many(client, count):
    for number in range(count):
        await client.create_pod(f"p{number}")


async def test_a_missing_object_is_described(client):
    status, answer = await client.send("GET", f"{PODS}/web")
    assert status == 404
    assert answer == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "web" not found',
        "reason": "NotFound",
        "details": {"name": "web", "kind": "pods"},
        "code": 404,
    }


async def test_the_group_is_part_of_the_message(client):
    _, answer = await client.send("GET", "/apis/apps/v1/namespaces/default/deployments/web")
    assert answer["message"] == 'deployments.apps "web" not found'
    assert answer["details"] == {"name": "web", "group": "apps", "kind": "deployments"}


async def test_items_of_a_list_go_without_kind(client):
    await client.create_pod("web")
    answer = await client.get(PODS)
    assert (answer["kind"], answer["apiVersion"]) == ("PodList", "v1")
    assert set(answer["items"][0]) == {"metadata", "spec", "status"}


async def test_a_list_is_in_key_order(client):
    for namespace in ("b", "a", "a-b"):
        await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for name in ("z", "y"):
            await client.create(f"/api/v1/namespaces/{namespace}/pods", client.pod(name))
    items = (await client.get(ALL))["items"]
    keys = [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in items]
    assert keys == ["a-b/y", "a-b/z", "a/y", "a/z", "b/y", "b/z"]
    assert await client.names("/api/v1/namespaces/a/pods") == ["y", "z"]


async def test_pages_show_the_state_of_the_first_page(client):
    await many(client, 5)
    first = await client.get(f"{PODS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    await client.ok("DELETE", f"{PODS}/p3")
    await client.create_pod("p2a")
    label = {"metadata": {"labels": {"new": "yes"}}}
    await client.patch(f"{PODS}/p4", label, "merge")
    second = await client.get(f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    third = await client.get(f"{PODS}?limit=2&continue={second['metadata']['continue']}")
    pages = [[i["metadata"]["name"] for i in page["items"]] for page in (first, second, third)]
    assert pages == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert "labels" not in third["items"][0]["metadata"]
    assert "continue" not in third["metadata"]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert versions == {first["metadata"]["resourceVersion"]}


async def test_pages_of_a_selection_do_not_count_what_remains(client):
    await many(client, 3)
    page = await client.get(f"{PODS}?limit=1&fieldSelector=status.phase=Pending")
    assert "remainingItemCount" not in page["metadata"]
    assert page["metadata"]["continue"]


async def test_an_expired_page_offers_to_go_on_inconsistently(client, server):
    await many(client, 3)
    first = await client.get(f"{PODS}?limit=1")
    await client.create_pod("p9")
    server.store.compact()
    status, answer = await client.send(
        "GET", f"{PODS}?limit=1&continue={first['metadata']['continue']}"
    )
    assert (status, answer["reason"]) == (410, "Expired")
    assert answer["message"].startswith("The provided continue parameter is too old")
    rest = await client.names(f"{PODS}?continue={answer['metadata']['continue']}")
    assert rest == ["p1", "p2", "p9"]


async def test_a_forged_continue_token_is_a_bad_request(client):
    status, answer = await client.send("GET", f"{PODS}?limit=1&continue=nonsense")
    assert (status, answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("app=web", ["a"], id="equals"),
        pytest.param("app==web", ["a"], id="double equals"),
        pytest.param("app!=web", ["b", "c"], id="differs or is absent"),
        pytest.param("app in (web,db)", ["a", "b"], id="in"),
        pytest.param("app notin (web)", ["b", "c"], id="not in, or absent"),
        pytest.param("app", ["a", "b"], id="exists"),
        pytest.param("!app", ["c"], id="does not exist"),
        pytest.param("app=web,tier=1", ["a"], id="both"),
        pytest.param("tier>1", ["b"], id="greater"),
        pytest.param("tier<2", ["a"], id="less"),
        pytest.param("", ["a", "b", "c"], id="empty"),
    ],
)
async def test_label_selectors(client, selector, names):
    await client.create_pod("a", metadata={"labels": {"app": "web", "tier": "1"}})
    await client.create_pod("b", metadata={"labels": {"app": "db", "tier": "2"}})
    await client.create_pod("c")
    quoted = selector.replace(" ", "%20").replace("=", "%3D")
    assert await client.names(f"{PODS}?labelSelector={quoted}") == names


@pytest.mark.parametrize("selector", ["a=b=c", "app in web", "=x", "a b"])
async def test_a_label_selector_that_cannot_be_read_is_a_bad_request(client, selector):
    quoted = selector.replace(" ", "%20").replace("=", "%3D")
    status, answer = await client.send("GET", f"{PODS}?labelSelector={quoted}")
    assert (status, answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("spec.nodeName=n1", ["bound"], id="node"),
        pytest.param("spec.nodeName!=", ["bound"], id="any node"),
        pytest.param("spec.nodeName=", ["done", "other"], id="no node"),
        pytest.param("metadata.name=other", ["other"], id="name"),
        pytest.param(
            "status.phase!=Succeeded,status.phase!=Failed", ["bound", "other"], id="not terminal"
        ),
        pytest.param("spec.schedulerName=mine", ["other"], id="scheduler"),
    ],
)
async def test_field_selectors_of_pods(client, selector, names):
    await client.create_pod("bound")
    await client.bind("bound", "n1")
    await client.create_pod("other", schedulerName="mine")
    await client.create_pod("done")
    await client.patch(f"{PODS}/done/status", {"status": {"phase": "Failed"}}, "merge")
    assert await client.names(f"{ALL}?fieldSelector={selector.replace('=', '%3D')}") == names


async def test_an_unknown_field_is_a_bad_request(client):
    status, answer = await client.send("GET", f"{PODS}?fieldSelector=spec.color%3Dred")
    assert (status, answer["message"]) == (400, "field label not supported: spec.color")


async def test_unschedulable_nodes_can_be_selected(client):
    await client.create_node("n1")
    await client.create_node("n2")
    await client.patch("/api/v1/nodes/n2", {"spec": {"unschedulable": True}}, "merge")
    assert await client.names("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse") == ["n1"]
    assert await client.names("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue") == ["n2"]


async def test_an_exact_version_shows_the_past(client, server):
    await client.create_pod("a")
    version = (await client.get(PODS))["metadata"]["resourceVersion"]
    await client.create_pod("b")
    exact = f"{PODS}?resourceVersionMatch=Exact&resourceVersion={version}"
    assert await client.names(exact) == ["a"]
    assert await client.names(f"{PODS}?resourceVersion={version}") == ["a", "b"]
    assert await client.names(f"{PODS}?resourceVersion=0") == ["a", "b"]
    server.store.compact()
    assert (await client.send("GET", exact))[0] == 410


async def test_a_version_from_the_future_times_out(client):
    status, answer = await client.send("GET", f"{PODS}?resourceVersion=99999")
    assert (status, answer["reason"]) == (504, "Timeout")
    assert answer["message"].startswith("Timeout: Too large resource version: 99999, current: ")
    assert answer["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        pytest.param(
            "resourceVersionMatch=Exact",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
            id="match without version",
        ),
        pytest.param(
            "resourceVersionMatch=Exact&resourceVersion=0",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            id="exactly any",
        ),
        pytest.param(
            "sendInitialEvents=true", "sendInitialEvents is forbidden for list", id="not a watch"
        ),
        pytest.param(
            "watch=true&sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            id="initial events without match",
        ),
        pytest.param(
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            id="match without initial events",
        ),
    ],
)
async def test_options_that_contradict_each_other_are_invalid(client, query, problem):
    status, answer = await client.send("GET", f"{PODS}?{query}")
    assert (status, answer["reason"]) == (422, "Invalid")
    assert answer["message"].startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert problem in answer["message"]


async def test_paths_nobody_serves_are_not_found(client):
    response = await client.respond("GET", "/apis/example.com/v1/things")
    assert (response.status, response.body) == (404, b"404 page not found\n")


async def test_an_unknown_method_is_not_allowed(client):
    status, answer = await client.send("POST", f"{PODS}/web", {})
    assert (status, answer["reason"]) == (405, "MethodNotAllowed")

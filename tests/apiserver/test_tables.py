"""Tables and discovery: what kubectl reads."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ksched.api.watched_kinds import Unstructured, WatchedKind
from ksched.apiserver.request import Request
from ksched.apiserver.served_resources import CUSTOM_RESOURCE_DEFINITIONS, RESOURCES
from ksched.apiserver.table_columns import human_duration, pod_status
from ksched.apiserver.tables import wants_table
from ksched.testing import custom_resource_definition

THINGS = WatchedKind.custom(
    Unstructured, group="example.com", version="v1", plural="things", kind="Thing"
)
PODS = "/api/v1/namespaces/default/pods"
KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


def table(server, path):
    answer = server.handle(Request("GET", path, accept=KUBECTL))
    decoded = msgspec.json.decode(answer.body)
    assert decoded["kind"] == "Table"
    names = [column["name"] for column in decoded["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in decoded["rows"]]


async def test_pods_have_kubectls_columns(client, server):
    await client.create_pod("web")
    await asyncio.sleep(90)
    [row] = table(server, PODS)
    assert row == {
        "Name": "web",
        "Ready": "0/1",
        "Status": "Pending",
        "Restarts": "0",
        "Age": "90s",
        "IP": "<none>",
        "Node": "<none>",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


async def test_a_single_object_is_a_table_of_one_row(client, server):
    await client.create_node("n1")
    await client.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, "merge")
    [row] = table(server, "/api/v1/nodes/n1")
    assert (row["Name"], row["Status"]) == ("n1", "Unknown,SchedulingDisabled")


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: str(r.group_resource))
async def test_every_kind_can_be_shown_as_a_table(client, server, resource):
    root = f"/apis/{resource.group_version}" if resource.group else "/api/v1"
    scope = "/namespaces/default" if resource.namespaced else ""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": client.pod()["spec"]}
    body = {"metadata": {"name": "x"}, "spec": client.pod()["spec"]}
    if resource.group == "apps" or resource.plural in ("replicationcontrollers", "jobs"):
        template["spec"]["restartPolicy"] = "Never" if resource.plural == "jobs" else "Always"
        body["spec"] = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        if resource.plural == "replicationcontrollers":
            body["spec"]["selector"] = {"a": "b"}
    if resource.group == "events.k8s.io":
        words = {"reportingController": "a", "reportingInstance": "b", "action": "c", "reason": "d"}
        body |= {**words, "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z"}
    if resource is CUSTOM_RESOURCE_DEFINITIONS:
        body = custom_resource_definition(THINGS)
    if resource.plural == "podgroups":
        body["spec"] = {"schedulingPolicy": {"basic": {}}}
    await client.create(f"{root}{scope}/{resource.plural}", body)
    rows = table(server, f"{root}{scope}/{resource.plural}")
    assert any(row["Name"] == body["metadata"]["name"] for row in rows)


async def test_a_watch_can_be_a_stream_of_tables(client, server):
    await client.create_pod("web")
    watch = server.handle(Request("GET", f"{PODS}?watch=true", accept=KUBECTL))
    event = msgspec.json.decode(await anext(watch.lines()))
    watch.close()
    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "Table"
    [row] = event["object"]["rows"]
    assert row["cells"][0] == "web"
    assert row["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        pytest.param(KUBECTL, "v1", id="kubectl"),
        pytest.param("application/json", None, id="plain"),
        pytest.param("*/*", None, id="anything"),
        pytest.param(
            "application/json,application/json;as=Table;v=v1;g=meta.k8s.io", None, id="plain first"
        ),
        pytest.param(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            None,
            id="only as protobuf",
        ),
        pytest.param("application/json;as=Table;v=v9;g=meta.k8s.io", None, id="unknown version"),
    ],
)
def test_tables_are_given_to_those_who_prefer_them(accept, version):
    found = wants_table(accept, "")
    assert (found and found.version) == version


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (601, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (10 * 3600, "10h"),
        (50 * 3600, "2d2h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (-5, "<invalid>"),
    ],
)
def test_ages(seconds, text):
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        pytest.param({"status": {"phase": "Running"}}, "Running", id="running"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}},
            "Terminating",
            id="going",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
                }
            },
            "SchedulingGated",
            id="gated",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}],
                }
            },
            "Completed",
            id="done",
        ),
    ],
)
def test_the_status_word(pod, word):
    assert pod_status({"metadata": {}, **pod}) == word


async def test_discovery_names_every_resource(client):
    groups = (await client.get("/apis"))["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    assert all(group["preferredVersion"]["version"] == "v1" for group in groups)
    versions = ["/api/v1"]
    versions += [f"/apis/{one['groupVersion']}" for group in groups for one in group["versions"]]
    listed = {}
    for path in versions:
        answer = await client.get(path)
        for entry in answer["resources"]:
            listed[answer["groupVersion"], entry["name"]] = entry
    for resource in RESOURCES:
        entry = listed[resource.group_version, resource.plural]
        assert (entry["kind"], entry["namespaced"]) == (resource.kind, resource.namespaced)
    assert listed["v1", "pods"]["shortNames"] == ["po"]
    assert listed["v1", "pods/eviction"]["kind"] == "Eviction"
    assert listed["apps/v1", "deployments/scale"]["kind"] == "Scale"


async def test_the_server_says_who_and_how_it_is(client):
    assert (await client.get("/version"))["major"] == "1"
    assert (await client.respond("GET", "/readyz")).body == b"ok"
    index = await client.get("/openapi/v3")
    assert set(index["paths"]) >= {"api/v1", "apis/apps/v1"}
    document = await client.get(index["paths"]["api/v1"]["serverRelativeURL"])
    path = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert path["patch"]["parameters"][0]["name"] == "fieldValidation"


async def test_a_custom_kind_has_the_columns_of_its_definition(client, server):
    definition = custom_resource_definition(THINGS)
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = "/apis/example.com/v1/namespaces/default/things"
    await client.create(path, {"metadata": {"name": "one"}, "spec": {"size": 3}})
    await asyncio.sleep(90)
    [row] = table(server, path)
    assert row == {"Name": "one", "Phase": None, "Size": 3, "Age": "90s"}

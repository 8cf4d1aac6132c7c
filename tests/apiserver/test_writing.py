"""POST and PUT: names, metadata, optimistic concurrency, the two halves of an object.

Covers ``ksched.apiserver.object_defaults`` too.
"""

from __future__ import annotations

import re

import pytest

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def test_the_server_fills_in_the_metadata(client):
    status, pod = await client.send("POST", PODS, client.pod("web"))
    metadata = pod["metadata"]
    assert status == 201
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert (metadata["namespace"], metadata["generation"]) == ("default", 1)
    assert metadata["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert metadata["resourceVersion"].isdecimal()


async def test_what_the_writer_says_about_system_fields_is_ignored(client):
    given = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    pod = await client.create_pod("web", metadata=given)
    assert pod["metadata"]["uid"] != "mine"
    assert pod["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert pod["metadata"]["generation"] == 1


async def test_names_are_generated(client):
    body = client.pod("")
    body["metadata"] = {"generateName": "web-"}
    names = {(await client.create(PODS, body))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_unknown_fields_are_kept(client):
    pod = await client.create_pod("web", futureField={"a": [1]})
    assert pod["spec"]["futureField"] == {"a": [1]}


async def test_a_second_object_of_a_name_already_exists(client):
    await client.create_pod("web")
    status, answer = await client.send("POST", PODS, client.pod("web"))
    assert (status, answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'pods "web" already exists'


async def test_a_namespace_must_exist(client):
    status, answer = await client.send("POST", "/api/v1/namespaces/nope/pods", client.pod())
    assert (status, answer["message"]) == (404, 'namespaces "nope" not found')


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
async def test_every_cluster_has_the_system_namespaces(client, name):
    assert (await client.get(f"/api/v1/namespaces/{name}"))["status"]["phase"] == "Active"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param({"kind": "Node"}, 400, "cannot be handled as a Pod", id="another kind"),
        pytest.param({"apiVersion": "v2"}, 400, 'no kind "Pod" is registered', id="version"),
        pytest.param(
            {"metadata": {"name": "a", "namespace": "kube-system"}},
            400,
            "does not match the namespace sent on the request",
            id="namespace",
        ),
        pytest.param(
            {"metadata": {"name": "a", "resourceVersion": "5"}},
            500,
            "resourceVersion should not be set on objects to be created",
            id="resourceVersion",
        ),
        pytest.param({"metadata": {}}, 422, "name or generateName is required", id="no name"),
    ],
)
async def test_objects_that_do_not_belong_are_refused(client, change, code, words):
    status, answer = await client.send("POST", PODS, {**client.pod("a"), **change})
    assert status == code
    assert words in answer["message"]


async def test_bodies_that_are_no_json_are_bad_requests(client):
    status, answer = await client.send("POST", PODS, b"{")
    assert (status, answer["reason"]) == (400, "BadRequest")


async def test_yaml_is_understood(client):
    body = b"metadata: {name: a}\nspec: {containers: [{name: c, image: x}]}\n"
    assert (await client.send("POST", PODS, body, "application/yaml"))[0] == 201


async def test_other_media_types_are_not(client):
    status, answer = await client.send("POST", PODS, b"<pod/>", "text/xml")
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_a_stale_version_is_a_conflict(client):
    pod = await client.create_pod("web")
    await client.bind("web", "n1")
    status, answer = await client.send("PUT", f"{PODS}/web", pod)
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == (
        'Operation cannot be fulfilled on pods "web": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_without_a_version_pods_are_overwritten_and_leases_are_not(client):
    pod = await client.create_pod("web")
    pod["metadata"] = {"name": "web", "labels": {"a": "b"}}
    assert (await client.ok("PUT", f"{PODS}/web", pod))["metadata"]["labels"] == {"a": "b"}
    await client.create(LEASES, {"metadata": {"name": "l"}})
    status, answer = await client.send("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}})
    assert status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified" in answer["message"]


async def test_a_put_creates_only_what_may_be_created_so(client):
    assert (await client.send("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}}))[0] == 201
    assert (await client.send("PUT", f"{PODS}/web", client.pod("web")))[0] == 404


async def test_a_put_does_not_bring_back_what_was_deleted(client):
    lease = await client.create(LEASES, {"metadata": {"name": "l"}})
    await client.ok("DELETE", f"{LEASES}/l")
    status, answer = await client.send("PUT", f"{LEASES}/l", lease)
    assert (status, answer["reason"]) == (409, "Conflict")
    uid = lease["metadata"]["uid"]
    assert f"UID in precondition: {uid}, UID in object meta: " in answer["message"]


async def test_another_incarnation_is_a_conflict(client):
    pod = await client.create_pod("web")
    pod["metadata"]["uid"], pod["metadata"]["resourceVersion"] = "other", ""
    status, answer = await client.send("PUT", f"{PODS}/web", pod)
    assert status == 409
    assert "Precondition failed: UID in precondition: other" in answer["message"]


async def test_name_in_url_and_body_must_agree(client):
    await client.create_pod("web")
    status, answer = await client.send("PUT", f"{PODS}/web", client.pod("other"))
    assert status == 400
    assert "(other) does not match the name on the URL (web)" in answer["message"]


async def test_a_write_that_changes_nothing_keeps_the_version(client):
    pod = await client.create_pod("web", metadata={"labels": {"a": "b"}})
    again = await client.ok("PUT", f"{PODS}/web", pod)
    assert again["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    reordered = {key: pod[key] for key in reversed(pod)}
    again = await client.ok("PUT", f"{PODS}/web", reordered)
    assert again == pod
    _, patched = await client.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}}, "merge")
    assert patched == pod


async def test_the_object_itself_does_not_write_status(client):
    pod = await client.create_pod("web")
    pod["status"]["phase"] = "Running"
    assert (await client.ok("PUT", f"{PODS}/web", pod))["status"]["phase"] == "Pending"


async def test_status_does_not_write_the_object(client):
    pod = await client.create_pod("web")
    pod["status"]["phase"] = "Running"
    pod["spec"]["nodeName"] = "n1"
    written = await client.ok("PUT", f"{PODS}/web/status", pod)
    assert written["status"]["phase"] == "Running"
    assert "nodeName" not in written["spec"]
    assert written["metadata"]["generation"] == 1


async def test_status_given_at_birth_counts_for_nodes_only(client):
    pod = {**client.pod("web"), "status": {"phase": "Running"}}
    assert (await client.create(PODS, pod))["status"]["phase"] == "Pending"
    node = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready"}]}}
    created = await client.create("/api/v1/nodes", node)
    assert [c["type"] for c in created["status"]["conditions"]] == ["Ready"]
    budget = {"metadata": {"name": "b"}, "status": {"disruptionsAllowed": 5}}
    assert (await client.create(BUDGETS, budget))["status"]["disruptionsAllowed"] == 0


async def test_generation_counts_changes_of_the_spec(client):
    path = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": client.pod()["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(path, {"metadata": {"name": "r"}, "spec": spec})
    _, labelled = await client.patch(f"{path}/r", {"metadata": {"labels": {"x": "y"}}}, "merge")
    _, reported = await client.patch(f"{path}/r/status", {"status": {"replicas": 1}}, "merge")
    _, scaled = await client.patch(f"{path}/r", {"spec": {"replicas": 3}}, "merge")
    assert [o["metadata"]["generation"] for o in (labelled, reported, scaled)] == [1, 1, 2]


async def test_scale_reads_and_writes_the_replicas(client):
    path = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": client.pod()["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(path, {"metadata": {"name": "r"}, "spec": spec})
    scale = await client.get(f"{path}/r/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
        "Scale",
        {"replicas": 1},
        "a=b",
    )
    scale["spec"]["replicas"] = 4
    await client.ok("PUT", f"{path}/r/scale", scale)
    assert (await client.get(f"{path}/r"))["spec"]["replicas"] == 4
    status, _ = await client.send("PUT", f"{path}/r/scale", scale)
    assert status == 409


async def test_a_dry_run_answers_but_does_not_store(client):
    assert (await client.send("POST", f"{PODS}?dryRun=All", client.pod("web")))[0] == 201
    assert await client.names(PODS) == []


async def test_pods_may_be_resized_through_their_subresource(client):
    small = {"requests": {"cpu": "1"}}
    containers = [{"name": "c", "image": "pause:3.9", "resources": small}]
    await client.create_pod("web", containers=containers)
    resources = {"requests": {"cpu": "2"}}
    body = client.pod("web", containers=[{"name": "c", "image": "other", "resources": resources}])
    assert (await client.send("PUT", f"{PODS}/web", body))[0] == 422
    resized = await client.ok("PUT", f"{PODS}/web/resize", body)
    [container] = resized["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("pause:3.9", resources)
    assert resized["metadata"]["generation"] == 2
    nothing = client.pod("web", containers=[{"name": "c", "image": "x", "resources": {}}])
    status, answer = await client.send("PUT", f"{PODS}/web/resize", nothing)
    assert status == 422
    assert "Pod QOS Class may not change as a result of resizing" in answer["message"]


async def test_the_request_log_names_verb_resource_user_and_code(client, server):
    await client.create_pod("web")
    await client.bind("web", "n1")
    await client.send("GET", f"{PODS}/nope")
    lines = [(r.verb, r.resource, r.user, r.code) for r in server.requests]
    assert lines == [
        ("create", "pods", "system:admin", 201),
        ("create", "pods/binding", "system:admin", 201),
        ("get", "pods", "system:admin", 404),
    ]

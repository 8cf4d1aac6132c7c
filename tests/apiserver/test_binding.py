"""pods/binding (``BindingREST``).

Covers ``ksched.apiserver.subresources`` too.
"""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"


async def test_a_bound_pod_shows_its_node_and_condition(client):
    await client.create_pod("web")
    status, answer = await client.bind("web", "n1")
    assert (status, answer["status"], answer["kind"]) == (201, "Success", "Status")
    pod = await client.get(f"{PODS}/web")
    assert pod["spec"]["nodeName"] == "n1"
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert pod["metadata"]["generation"] == 1


async def test_binding_clears_the_nomination_and_the_old_verdict(client):
    await client.create_pod("web")
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    patch = {"status": {"nominatedNodeName": "n2", "conditions": [verdict]}}
    await client.patch(f"{PODS}/web/status", patch, "strategic")
    await client.bind("web", "n1")
    status = (await client.get(f"{PODS}/web"))["status"]
    assert "nominatedNodeName" not in status
    assert [(c["type"], c["status"], c.get("reason")) for c in status["conditions"]] == [
        ("PodScheduled", "True", None)
    ]


async def test_labels_and_annotations_of_the_binding_are_merged(client):
    await client.create_pod("web", metadata={"labels": {"a": "1"}, "annotations": {"x": "1"}})
    await client.bind("web", "n1", labels={"zone": "z"}, annotations={"x": "2"})
    metadata = (await client.get(f"{PODS}/web"))["metadata"]
    assert metadata["labels"] == {"a": "1", "zone": "z"}
    assert metadata["annotations"] == {"x": "2"}


async def test_a_second_binding_is_a_conflict_that_names_the_first_node(client):
    await client.create_pod("web")
    await client.bind("web", "n1")
    status, answer = await client.bind("web", "n2")
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == (
        'Operation cannot be fulfilled on pods/binding "web": '
        'pod web is already assigned to node "n1"'
    )
    assert (await client.get(f"{PODS}/web"))["spec"]["nodeName"] == "n1"


async def test_the_uid_of_the_binding_is_a_precondition(client):
    uid = (await client.create_pod("web"))["metadata"]["uid"]
    status, answer = await client.bind("web", "n1", uid="other")
    assert (status, answer["reason"]) == (409, "Conflict")
    assert f"UID in precondition: other, UID in object meta: {uid}" in answer["message"]
    assert (await client.bind("web", "n1", uid=uid))[0] == 201


async def test_a_missing_pod_is_not_found(client):
    status, answer = await client.bind("web", "n1")
    assert (status, answer["message"]) == (404, 'pods "web" not found')


async def test_a_pod_being_deleted_cannot_be_bound(client):
    await client.create_pod("web", metadata={"finalizers": ["example.com/wait"]})
    await client.ok("DELETE", f"{PODS}/web")
    status, answer = await client.bind("web", "n1")
    assert status == 409
    assert "is being deleted, cannot be assigned to a host" in answer["message"]


async def test_a_gated_pod_cannot_be_bound(client):
    await client.create_pod("web", schedulingGates=[{"name": "example.com/gate"}])
    status, answer = await client.bind("web", "n1")
    assert status == 409
    assert "non-empty .spec.schedulingGates" in answer["message"]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param(
            {"metadata": {"name": "web"}, "target": {}},
            500,
            "target.name: Required value",
            id="no node",
        ),
        pytest.param(
            {"metadata": {"name": "web"}, "target": {"kind": "Pod", "name": "n"}},
            500,
            'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"',
            id="not a node",
        ),
        pytest.param(
            {"metadata": {"name": "other"}, "target": {"name": "n"}},
            400,
            "name in URL does not match name in Binding object",
            id="another pod",
        ),
    ],
)
async def test_nonsense_bindings_are_refused(client, body, code, message):
    await client.create_pod("web")
    status, answer = await client.send("POST", f"{PODS}/web/binding", body)
    assert (status, answer["message"]) == (code, message)


async def test_legacy_bindings_name_the_pod_in_the_body(client):
    await client.create_pod("web")
    body = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}
    status, _ = await client.send("POST", "/api/v1/namespaces/default/bindings", body)
    assert status == 201
    assert (await client.get(f"{PODS}/web"))["spec"]["nodeName"] == "n1"


async def test_a_dry_run_binds_nothing(client):
    await client.create_pod("web")
    body = {"metadata": {"name": "web"}, "target": {"name": "n1"}}
    assert (await client.send("POST", f"{PODS}/web/binding?dryRun=All", body))[0] == 201
    assert "nodeName" not in (await client.get(f"{PODS}/web"))["spec"]

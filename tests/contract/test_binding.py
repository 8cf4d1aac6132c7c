"""pods/binding: the one write that a scheduler exists for."""

from __future__ import annotations

import pytest

from ksched.api.resources import PODS
from ksched.errors import ApiError, Conflict, NotFound

pytestmark = pytest.mark.real_time


async def test_a_bound_pod_shows_its_node_and_condition(api):
    await api.bind(await api.create_pod("web"), "n1")

    pod = await api.get(PODS, "web")

    assert pod["spec"]["nodeName"] == "n1"
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]


async def test_the_answer_is_a_success_without_the_pod(api):
    await api.create_pod("web")
    body = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}

    answer = await api.send("POST", PODS.path(api.namespace, "web", "binding"), body)

    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)


async def test_binding_takes_the_nomination_and_the_old_verdict_away(api):
    pod = await api.create_pod("web")
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"nominatedNodeName": "n2", "conditions": [verdict]}
    await api.patch(PODS, "web", {"status": status}, subresource="status")

    await api.bind(pod, "n1")

    status = (await api.get(PODS, "web"))["status"]
    assert "nominatedNodeName" not in status
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "reason" not in condition


@pytest.mark.parametrize("node_name", ["n1", "n2"], ids=["same node", "other node"])
async def test_a_bound_pod_is_not_bound_again(api, node_name):
    pod = await api.create_pod("web")
    await api.bind(pod, "n1")

    with pytest.raises(Conflict) as caught:
        await api.bind(pod, node_name)

    assert caught.value.reason == "Conflict"
    assert 'pod web is already assigned to node "n1"' in caught.value.message
    assert (await api.get(PODS, "web"))["spec"]["nodeName"] == "n1"


async def test_a_deleted_pod_is_not_found(api):
    pod = await api.create_pod("web")
    await api.delete(PODS, "web")

    with pytest.raises(NotFound, match='pods "web" not found'):
        await api.bind(pod, "n1")


async def test_a_pod_that_is_being_deleted_is_not_bound(api):
    pod = await api.create_pod("web", metadata={"finalizers": ["example.com/wait"]})
    await api.delete(PODS, "web")

    with pytest.raises(Conflict, match="pod web is being deleted, cannot be assigned to a host"):
        await api.bind(pod, "n1")


async def test_the_uid_tells_a_pod_from_its_successor(api):
    first = await api.create_pod("web")
    await api.delete(PODS, "web")
    second = await api.create_pod("web")

    with pytest.raises(Conflict) as caught:
        await api.bind(first, "n1")

    uids = (first["metadata"]["uid"], second["metadata"]["uid"])
    expected = "Precondition failed: UID in precondition: {}, UID in object meta: {}"
    assert expected.format(*uids) in caught.value.message
    await api.bind(second, "n1")


async def test_a_gated_pod_is_not_bound(api):
    pod = await api.create_pod("web", schedulingGates=[{"name": "wait"}])

    with pytest.raises(Conflict, match=r"pod web has non-empty \.spec\.schedulingGates"):
        await api.bind(pod, "n1")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param({"kind": "Pod", "name": "n1"}, "target.kind: Unsupported value", id="a pod"),
        pytest.param({"kind": "Node"}, "target.name: Required value", id="no name"),
    ],
)
async def test_a_target_is_a_node(api, target, message):
    await api.create_pod("web")
    body = {"metadata": {"name": "web"}, "target": target}

    with pytest.raises(ApiError, match=message) as caught:
        await api.send("POST", PODS.path(api.namespace, "web", "binding"), body)

    # A mistake of the caller, but this is what kube-apiserver calls it.
    assert caught.value.code == 500


async def test_labels_and_annotations_come_with_the_binding(api):
    await api.create_pod("web", metadata={"labels": {"a": "1"}, "annotations": {"x": "1"}})
    body = {
        "metadata": {"name": "web", "labels": {"zone": "z"}, "annotations": {"x": "2"}},
        "target": {"kind": "Node", "name": "n1"},
    }

    await api.send("POST", PODS.path(api.namespace, "web", "binding"), body)

    metadata = (await api.get(PODS, "web"))["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "1", "zone": "z"}, {"x": "2"})
